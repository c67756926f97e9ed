"""Draws charts for another process: a Vega-Lite specification a line of standard input, an SVG a line of standard output, both JSON.

Run as a file, so that it imports the engine that draws and nothing else of the package. The charts of a page differ in little more than
their data, so that a specification which differs in nothing else is not compiled to Vega again.
"""

import json
import sys
from typing import Any

import vl_convert

FIRST = {"data": {"values": [{"x": 1, "y": 1}]}, "mark": "line", "encoding": {"x": {"field": "x"}, "y": {"field": "y"}}}


class Compiler:
    """Makes Vega of Vega-Lite, each specification once, whatever its data are."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def vega(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the Vega specification of one whose data stand in ``datasets``, by name.

        Raises:
            ValueError: if the engine refuses it.
        """
        values = spec.pop("datasets", {})
        key = json.dumps(spec)
        for number, name in enumerate(values):
            key = key.replace(json.dumps(name), f'"data{number}"')
        if key not in self._known:
            empty: dict[str, list[Any]] = {f"data{number}": [] for number in range(len(values))}
            self._known[key] = vl_convert.vegalite_to_vega({**json.loads(key), "datasets": empty})
        found = self._known[key]
        rows = {f"data{number}": own for number, own in enumerate(values.values())}
        data = [{**item, "values": rows[item["name"]]} if item["name"] in rows else item for item in found["data"]]
        return {**found, "data": data}


def main() -> None:
    """Draw until nothing more comes; one drawing is made beforehand, since the first takes as long as several others."""
    compiler = Compiler()
    vl_convert.vega_to_svg(compiler.vega(FIRST))
    for line in sys.stdin.buffer:
        try:
            answer = {"svg": vl_convert.vega_to_svg(compiler.vega(json.loads(line)))}
        except ValueError as error:
            answer = {"error": str(error)}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
