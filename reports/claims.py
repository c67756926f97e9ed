"""The pages of ``drafters claims``, in Korean and English: ``python -m reports.claims RESULTS FOLDER``.

Everything said of a claim stands in its JSON already; here it becomes a page with a table, a chart a claim, commands and hashes.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from reports import plot
from reports.charts import BASELINE_COLOUR, COLOURS, Chart, chart
from reports.plot import Plot, layer, named_rows
from reports.sections import Headline, Section, page
from reports.tables import Table, write_frame
from reports.wording import LANGUAGES, UNKNOWN, Wording, wording

__all__ = ["main", "render", "write_all"]

Claim = Mapping[str, Any]
CERTAINTY = {"holds": "clear", "does_not_hold": "clear", "cannot_be_said": "unsure"}
"""How a verdict's line is marked on the page."""
ROW_PX = 22
MOST_ROWS = 40
"""Of a chart; the table has all."""
LONGEST_LABEL = 60
PART = " · "  # between the parts of a label


def write_all(results: Path, folder: Path) -> list[Path]:
    """Write ``claims.<lang>.html``, ``figures.csv``, ``claims.json`` and copies of the raw counts; return the pages.

    Raises OSError where the folder cannot be written, ValueError for results that are damaged.
    """
    claims = [json.loads(path.read_text("utf-8")) for path in sorted((results / "claims").glob("*.json"))]
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for lang in LANGUAGES:
        pages.append(folder / f"claims.{lang}.html")
        pages[-1].write_text(render(claims, lang), encoding="utf-8", newline="\n")
    write_frame(_figures(claims), folder / "figures.csv", ())
    (folder / "claims.json").write_text(json.dumps(claims, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if (results / "counts").is_dir():
        shutil.copytree(results / "counts", folder / "counts", dirs_exist_ok=True)
    return pages


def render(claims: Sequence[Claim], lang: str) -> str:
    """Return the page of some claims as text."""
    words = wording(lang)
    target = sorted({name for claim in claims for name in claim["files"] if not name.startswith("ref:")} & {"ref-koen"})
    lines = [
        Headline(
            words.text("claims.verdict_line", number=claim["number"], title=own["title"], verdict=own["verdict"]),
            CERTAINTY[claim["verdict"]],
            " ".join((words.text("claims.certainty." + claim["verdict"]), _answered(claim, words))),
        )
        for claim in claims
        for own in [claim["said"][lang]]
    ]
    content = {
        "title": words.text("claims.title"),
        "subtitle": words.text(
            "claims.subtitle",
            n=len(claims),
            scales=", ".join(sorted({Path(claim["scale"]).stem for claim in claims})),
            target=", ".join(target) or UNKNOWN,
            minutes=_minutes(claims),
            verdicts=_count(claims, words),
        ),
        "headlines": lines,
        "nothing": None,
        "sections": [_overview(claims, words), *(_section(claim, words) for claim in claims), _hashes(claims, words)],
    }
    return page(words, content)


def _minutes(claims: Sequence[Claim]) -> str:
    """Return the work of all stages, those that claims share once; unknown where one has no time."""
    spent = {stage["folder"]: stage["seconds"] for claim in claims for stage in claim["stages"]}
    return UNKNOWN if None in spent.values() else f"{sum(spent.values()) / 60:.0f}"


def _count(claims: Sequence[Claim], words: Wording) -> str:
    """Say how many claims had each verdict."""
    said = {claim["verdict"]: claim["said"][words.lang]["verdict"] for claim in claims}
    found = [claim["verdict"] for claim in claims]
    return ", ".join(f"{said[verdict]} {found.count(verdict)}" for verdict in CERTAINTY if verdict in said)


def _answered(claim: Claim, words: Wording) -> str:
    passed = [part["passed"] for part in claim["parts"]]
    return words.text("claims.answered", yes=passed.count(True), n=len(passed))


def _scales(claims: Sequence[Claim], words: Wording) -> tuple[str, ...]:
    """Say how much was run, once a scale."""
    work = {Path(claim["scale"]).stem: claim["work"] for claim in claims}
    return tuple(
        words.text("claims.scale", name=name, **{key: f"{value:,}" for key, value in own.items()})
        for name, own in work.items()
    )


def _overview(claims: Sequence[Claim], words: Wording) -> Section:
    rows = []
    for claim in claims:
        own = claim["said"][words.lang]
        rows.append((str(claim["number"]), own["claim"], own["verdict"], _why(claim, words), own["advice"]))
    headers = tuple(words.text(f"claims.header.{name}") for name in ("number", "claim", "verdict", "why", "advice"))
    table = Table(words.text("claims.table.all"), headers, (False,) * 5, tuple(rows))
    title = words.text("claims.section.table")
    return Section("claims-all", title, words.text("claims.lead.table"), tables=(table,), notes=_scales(claims, words))


def _why(claim: Claim, words: Wording) -> str:
    """The question that decided, and how many of all were answered yes."""
    passed = [part["passed"] for part in claim["parts"]]
    if not passed:
        return UNKNOWN
    wanted = {"holds": True, "does_not_hold": False, "cannot_be_said": None}[claim["verdict"]]
    said = claim["said"][words.lang]["parts"][passed.index(wanted)]
    return f"{said} {_answered(claim, words)}"


def _section(claim: Claim, words: Wording) -> Section:
    own, number = claim["said"][words.lang], claim["number"]
    notes = [own["how"]]
    notes.append(words.text("claims.seeds", n=claim["seeds"]) if claim["seeds"] else words.text("claims.no_seeds"))
    forms = {name[1] for one in claim["figures"] for name in one["names"] if name[0] == "form"}
    if forms == {"plain"}:
        notes.append(words.text("claims.plain_only"))
    seconds = claim["seconds"]
    notes.append(
        words.text("claims.unknown_time")
        if seconds is None
        else words.text("claims.time", minutes=f"{seconds / 60:.1f}")
    )
    if claim["invalid"]:
        notes.append(words.text("claims.invalid", codes=", ".join(claim["invalid"])))
    headers = tuple(words.text(f"claims.header.{name}") for name in ("figure", "value"))
    rows = tuple((label, value) for label, value in own["figures"])
    table = Table(words.text("claims.table.figures"), headers, (False, True), rows)
    measured = [stage["command"] for stage in claim["stages"] if " evaluate " in stage["command"]]
    code = [(words.text("claims.command"), claim["command"])]
    code += [(words.text("claims.stage_command"), line) for line in measured[-1:]]
    chart = _chart(claim, words)
    return Section(
        f"claim-{number}",
        f"{number}. {own['title']} — {own['verdict']}",
        f"{own['claim']} {own['advice']}",
        charts=() if chart is None else (chart,),
        tables=(table,),
        notes=tuple(notes),
        bullets=tuple(own["parts"]),
        code=tuple(code),
    )


def _hashes(claims: Sequence[Claim], words: Wording) -> Section:
    files = {name: sha256 for claim in claims for name, sha256 in claim["files"].items()}
    headers = tuple(words.text(f"claims.header.{name}") for name in ("name", "sha256"))
    table = Table(words.text("claims.table.hashes"), headers, (False, False), tuple(sorted(files.items())))
    title = words.text("claims.section.hashes")
    return Section("claims-hashes", title, words.text("claims.lead.hashes"), tables=(table,), detail=True)


def _chart(claim: Claim, words: Wording) -> Chart | None:
    """A row a figure of the commonest unit, with its interval; none where no figure is known."""
    labels = [label for label, _ in claim["said"][words.lang]["figures"]]
    known = [(label, one) for label, one in zip(labels, claim["figures"], strict=True) if one["value"] is not None]
    if not known:
        return None
    units = [one["unit"] for _, one in known]
    unit = max(dict.fromkeys(units), key=units.count)
    own = [label for label, one in known if one["unit"] == unit]
    short, common = _without_common(own)
    rows = [
        {
            "name": label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…",
            "value": one["value"],
            "low": one["value"] if one["low"] is None else one["low"],
            "high": one["value"] if one["high"] is None else one["high"],
        }
        for label, one in zip(short, (one for _, one in known if one["unit"] == unit), strict=True)
    ][:MOST_ROWS]
    names = list(dict.fromkeys(row["name"] for row in rows))
    y = named_rows("name", names, wider=1.15)  # long labels hold many wide letters
    scale, axis = {"zero": False}, {"format": ".0%" if unit == "share" else ".2f", "tickCount": 5}
    ends = {"x": plot.number("low", title=None, scale=scale, axis=axis), "x2": {"field": "high"}, "y": y}
    values = {"x": plot.number("value", scale=scale), "y": y}
    layers = [
        layer(rows, "rule", ends, strokeWidth=2.4, color=BASELINE_COLOUR),
        layer(rows, "point", values, filled=True, size=60, opacity=1, color=COLOURS[0]),
    ]
    title = " · ".join((words.text("claims.chart", number=claim["number"]), *common))
    return chart(Plot(layers, ROW_PX * len(names)), title, f"claim-{claim['number']}")


def _without_common(labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return labels without the parts that all of them have, and those parts, which one heading can say."""
    parts = [label.split(PART) for label in labels]
    common = [part for part in parts[0] if all(part in own for own in parts)]
    if any(set(own) <= set(common) for own in parts):  # nothing would be left of one
        return list(labels), []
    return [PART.join(part for part in own if part not in common) for own in parts], common


def _figures(claims: Sequence[Claim]) -> pl.DataFrame:
    """Every figure as a row, in English."""
    rows = [
        {
            "claim": claim["number"], "name": claim["name"], "verdict": claim["verdict"], "figure": label,
            **{key: one[key] for key in ("unit", "value", "low", "high", "tasks", "seeds")},
        }
        for claim in claims
        for (label, _), one in zip(claim["said"]["en"]["figures"], claim["figures"], strict=True)
    ]  # fmt: skip
    numbers = dict.fromkeys(("value", "low", "high"), pl.Float64) | dict.fromkeys(("claim", "tasks", "seeds"), pl.Int64)
    texts = dict.fromkeys(("name", "verdict", "figure", "unit"), pl.String)
    order = ("claim", "name", "verdict", "figure", "unit", "value", "low", "high", "tasks", "seeds")
    return pl.DataFrame(rows, schema={name: {**numbers, **texts}[name] for name in order})


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report of a folder of results; 2 where it cannot be read or written."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 2:
        sys.stderr.write(
            "error: give the folder of the results and the folder to write: python -m reports.claims RESULTS FOLDER\n"
        )
        return 2
    try:
        pages = write_all(Path(given[0]), Path(given[1]))
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(
            f"error: {given[0]} → {given[1]}: {error!r:.300}; run the claims again: their stages are kept\n"
        )
        return 2
    for path in pages:
        sys.stderr.write(f"report: {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
