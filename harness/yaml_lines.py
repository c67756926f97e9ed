"""What a YAML file says and in which line: every complaint about a file names the line of the key that is to blame."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator

from harness.errors import WorkloadError

Lines = dict[tuple[str | int, ...], int]
"""Line of each key that a file spells out, by its path from the top."""


def _plain(value: Any) -> Any:
    """Return an option's value, lists and mappings inside it included; YAML also knows dates, sets and infinities."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str | int) for key in value):
            raise ValueError("the keys of a mapping are texts or whole numbers")
        return {key: _plain(item) for key, item in value.items()}
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError(f"a {type(value).__name__} is no option; give numbers, texts, lists or mappings of them")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("an option is a finite number")
    return value


Options = dict[str, Annotated[Any, AfterValidator(_plain)]]
"""Options of a method, an engine or a server by name; which there are and what each may be is their business."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader without YAML 1.1's surprise booleans: only true and false, so that an arm may be called ``off``."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def parse(path: Path, text: str, what: str, keys: Iterable[str]) -> tuple[dict[str, Any], Lines]:
    """Return the mapping that a file holds and its lines; ``what`` it is and which ``keys`` it has are said where it is none.

    Raises:
        WorkloadError: with file and line.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            lines = dict(_lines(path, node, ())) if node is not None else {}
            data = loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise WorkloadError(
            f"{path}:{line}: not YAML: {error.problem or error}; check indentation and quoting"
        ) from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise WorkloadError(f"{path}:{line}: a control character {error.character!r}; remove it") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none, such as 2026-13-01
        raise WorkloadError(f"{path}:1: not YAML: {error}; put texts in quotes") from error
    except RecursionError as error:
        raise WorkloadError(
            f"{path}:1: an anchor that contains itself, or nesting without end; {what} needs neither"
        ) from error
    if not isinstance(data, dict):
        given = "an empty file" if data is None else type(data).__name__
        raise WorkloadError(f"{path}:1: {what} is a mapping of keys ({', '.join(keys)}), not {given}")
    return data, lines


def _lines(path: Path, node: yaml.Node, at: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    yield at, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                raise WorkloadError(f"{path}:{key.start_mark.line + 1}: key {name!r} appears twice; keep one")
            seen.add(name)
            yield from _lines(path, value, (*at, name))
            yield (*at, name), key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(path, value, (*at, index))


def nearest_line(lines: Mapping[tuple[str | int, ...], int], location: Sequence[str | int]) -> int:
    """Return the line of a key, or of the nearest key around it that the file spells out."""
    at = tuple(location)
    while at and at not in lines:
        at = at[:-1]
    return lines.get(at, 1)
