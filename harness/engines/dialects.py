"""Engine kind → dialect: the single dispatch."""

from __future__ import annotations

from collections.abc import Mapping

from harness.engines.dialect import Dialect

DIALECTS: Mapping[str, Dialect] = {}


def dialect(kind: str) -> Dialect:
    """Return the dialect of an engine kind.

    Raises:
        KeyError: if it is no kind of remote server.
    """
    return DIALECTS[kind]
