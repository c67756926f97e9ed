"""Drawings made by a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import vl_convert

from reports import drawings
from reports.draw import Compiler


def spec(*heights: int, mark: str = "line") -> dict[str, Any]:
    """Return a chart of some points."""
    rows = [{"x": place, "y": height} for place, height in enumerate(heights)]
    axes = {name: {"field": name, "type": "quantitative"} for name in ("x", "y")}
    return {"data": {"name": "points"}, "mark": mark, "encoding": axes, "datasets": {"points": rows}}


def test_a_drawing_is_that_of_the_engine_itself() -> None:
    """Asked for one after another and looked at later: each is its own, as if this process had drawn it."""
    wanted = [spec(1, 2, 3), spec(3, 2, 1), spec(1, 2, 3, mark="bar"), spec(5, 5)]
    asked = [drawings.svg(item) for item in wanted]
    assert [item.result() for item in asked] == [vl_convert.vegalite_to_svg(item) for item in wanted]


def test_what_differs_in_its_data_alone_is_compiled_once() -> None:
    """The same Vega but for its values."""
    compiler = Compiler()
    first, second = compiler.vega(spec(1, 2)), compiler.vega(spec(7, 8, 9))
    assert first["marks"] is second["marks"]
    assert [item["values"] for item in (first["data"][0], second["data"][0])] == [
        [{"x": 0, "y": 1}, {"x": 1, "y": 2}],
        [{"x": 0, "y": 7}, {"x": 1, "y": 8}, {"x": 2, "y": 9}],
    ]


def test_what_the_engine_refuses_is_an_error_and_the_next_is_drawn() -> None:
    """A mark that does not exist."""
    refused, drawn = drawings.svg({"mark": "doodle"}), drawings.svg(spec(1, 2))
    with pytest.raises(ValueError, match="conversion failed"):
        refused.result()
    assert drawn.result().startswith("<svg")


def test_after_the_end_another_process_draws() -> None:
    """What was let go is not asked again."""
    before = drawings.svg(spec(1, 2)).result()
    drawings.end()
    drawings.end()
    assert drawings.svg(spec(1, 2)).result() == before


_INTERRUPTED = """
import time
from reports import drawings
try:  # before the line is printed: the signal may come while it is
    drawings.begin()
    print("drawing", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    drawings.end()
"""


def test_ctrl_c_in_a_terminal_is_no_error_of_the_process_that_draws() -> None:
    """It goes to the whole group of processes of the terminal; the one that asks ends the one that draws."""
    program = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"drawing\n"
    os.killpg(program.pid, signal.SIGINT)
    _, said = program.communicate(timeout=20)
    assert (program.returncode, said) == (0, b"")
