"""A chart as a specification in Vega-Lite 6 (its documentation names every key): layers of marks over rows, and one look for all charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.wording import text_width

Row = Mapping[str, Any]
Channel = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
WIDTH, HEIGHT = 400, 230  # plot area in px; with its axis a chart fits a phone at a legible size
INK = "currentColor"  # the page's own text colour, so that one drawing serves light, dark and print
LABEL_PX = 6.6  # of a label, for each column of text_width
LEGEND_PX = 180  # of a name in a legend; a longer one is cut
_WIDEST_PX = 12  # of a column: hardly a letter is wider than the font is high


@dataclass(frozen=True, slots=True)
class Layer:
    """Marks of one kind, one for each row, or one through all rows that share a colour. Encodings go by channel (x, y, color, …)."""

    rows: Sequence[Row]
    mark: Mapping[str, Any]
    encoding: Mapping[str, Channel]

    def fields(self) -> Iterator[str]:
        """Yield the columns of the rows that are drawn."""
        return (channel["field"] for channel in self.encoding.values())


@dataclass(frozen=True, slots=True)
class Plot:
    """Layers over each other, the last on top; ``height`` is of the plot area in px."""

    layers: Sequence[Layer]
    height: int = HEIGHT

    def specification(self) -> dict[str, Any]:
        """Return it for the engine that draws; rows that layers share stand in it once, under ``datasets``, in what is drawn of them."""
        sources: dict[int, Sequence[Row]] = {}
        fields: dict[int, dict[str, None]] = {}
        for layer in self.layers:
            sources[id(layer.rows)] = layer.rows
            fields.setdefault(id(layer.rows), {}).update(dict.fromkeys(layer.fields()))
        names = {key: f"data{number}" for number, key in enumerate(sources)}
        return {
            "$schema": SCHEMA,
            "layer": [
                {"data": {"name": names[id(layer.rows)]}, "mark": layer.mark, "encoding": layer.encoding}
                for layer in self.layers
            ],
            "datasets": {
                names[key]: [{field: row[field] for field in fields[key]} for row in rows]
                for key, rows in sources.items()
            },
            "width": WIDTH,
            "height": self.height,
            "background": "transparent",
            "config": _look(self._legend_limit()),
        }

    def _legend_limit(self) -> int:
        """Return 0, no limit, where no name in the legend comes near it: each look at a limit measures all texts once more."""
        colours = (layer.encoding["color"]["scale"]["domain"] for layer in self.layers if "color" in layer.encoding)
        longest = max((text_width(name) for names in colours for name in names), default=0)
        return LEGEND_PX if longest * _WIDEST_PX > LEGEND_PX else 0


def layer(rows: Sequence[Row], mark: str, encoding: Mapping[str, Channel], **options: Any) -> Layer:
    """Return marks of one kind: ``line``, ``point``, ``rule``, ``area`` or ``text``, with options of it."""
    return Layer(rows, {"type": mark, **options}, encoding)


def number(field: str, **options: Any) -> Channel:
    """Return a channel of a column of numbers."""
    return {"field": field, "type": "quantitative", **options}


def name(field: str, **options: Any) -> Channel:
    """Return a channel of a column of names."""
    return {"field": field, "type": "nominal", **options}


def named_rows(field: str, names: Sequence[str], wider: float = 1.0) -> Channel:
    """Return a vertical axis with a row a name, in this order and as wide as the longest.

    Without a Korean font the engine takes Hangul for narrower than it is drawn, so that the width is reckoned here.
    """
    extent = wider * LABEL_PX * max(map(text_width, names)) + 8
    return name(field, sort=list(names), title=None, axis={"minExtent": extent, "grid": True})


def _look(legend_limit: int) -> dict[str, Any]:
    text = {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }
    lines = {"gridColor": INK, "gridOpacity": 0.14, "domainColor": INK, "tickColor": INK}
    legend = {"orient": "bottom", "direction": "horizontal", "columns": 3, "symbolSize": 90, "columnPadding": 30}
    return {
        "aria": False,  # the drawing is one image with one name; its figures stand in the table beside it
        "font": "sans-serif",
        "axis": {**text, **lines, "titlePadding": 8, "labelLimit": 0},
        "legend": {**text, **legend, "labelLimit": legend_limit, "labelOffset": 6},
        "view": {"stroke": None},
    }
