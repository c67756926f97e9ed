"""Drawings of charts, made beside this process: the engine that draws holds the interpreter of the process in which it runs."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

_PROGRAM = (sys.executable, "-P", str(Path(__file__).with_name("draw.py")))


def begin() -> None:
    """Start the process that draws, so that it is ready once the first drawing is asked for."""
    _desk()


def end() -> None:
    """Let the process go that draws; the next drawing starts another."""
    if _desk.cache_info().currsize:
        _desk().close()
        _desk.cache_clear()


def svg(spec: Mapping[str, Any], finish: Callable[[str], str] = str) -> Future[str]:
    """Return the SVG of a Vega-Lite specification, once it is drawn and ``finish`` was done to it.

    Raises:
        ValueError: by the result, if the engine refuses the specification.
    """
    return _desk().ask(spec, finish)


class _Desk:
    """The process that draws, and the thread that waits for it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._process = subprocess.Popen(_PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        atexit.register(self.close)

    def ask(self, spec: Mapping[str, Any], finish: Callable[[str], str]) -> Future[str]:
        return self._thread.submit(lambda: finish(self._drawn(spec)))

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._process.terminate()
        self._process.communicate()

    def _drawn(self, spec: Mapping[str, Any]) -> str:
        question, answers = self._process.stdin, self._process.stdout
        assert question is not None
        assert answers is not None
        try:
            question.write(json.dumps(spec).encode() + b"\n")
            question.flush()
            answer = json.loads(answers.readline())
        except (OSError, ValueError):  # it is gone, and nothing is lost but time
            import vl_convert

            return str(vl_convert.vegalite_to_svg(dict(spec)))
        if "error" in answer:
            raise ValueError(answer["error"])
        return str(answer["svg"])


@cache  # as long as this process
def _desk() -> _Desk:
    return _Desk()
