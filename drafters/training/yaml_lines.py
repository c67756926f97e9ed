"""A YAML file with the line of each of its keys, so that every complaint can name one. Imports no torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from drafters.training.stage import StageError

# harness/yaml_lines.py walks a file likewise. It stays twice: neither side may import the other, and a third package for the thirty
# lines that both have (errors, loaders and what a fault is called differ) would need its own errors to be translated on both sides.
__all__ = ["Lines", "explain", "read_yaml"]

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Where the keys of a file stand."""

    path: Path
    known: Mapping[Location, int]

    def where(self, *location: str | int) -> str:
        """Return ``file:line`` of a key, or of the nearest enclosing one that the file spells out."""
        at = tuple(location)
        while at and at not in self.known:
            at = at[:-1]
        return f"{self.path}:{self.known.get(at, 1)}"


def read_yaml(path: Path) -> tuple[dict[str, Any], Lines]:
    """Read a file that holds a mapping.

    Raises StageError, with file and line, for a file that cannot be read, is not UTF-8, not YAML or has a key twice.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise StageError(f"{path}: cannot be read: {error.strerror}; give the path of a .yaml file") from error
    except UnicodeDecodeError as error:
        raise StageError(f"{path}:1: not UTF-8 (byte {error.start}); save the file as UTF-8") from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        known = dict(_lines(path, node, ())) if node is not None else {}
        data = yaml.safe_load(text)
    except StageError:
        raise  # it is a ValueError, and says by itself which line it means
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise StageError(f"{path}:{line}: not YAML: {error.problem or error}; check indentation and quoting") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line_text = next(iter(str(error).splitlines()), type(error).__name__)
        raise StageError(f"{path}:1: not YAML: {line_text}; check quoting and anchors") from error
    if not isinstance(data, dict):
        given = "an empty file" if data is None else f"{data!r:.60}"
        raise StageError(f"{path}:1: a mapping of keys is needed, not {given}")
    return data, Lines(path, known)


def _lines(path: Path, node: yaml.Node, at: Location) -> Iterator[tuple[Location, int]]:
    yield at, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                raise StageError(f"{path}:{key.start_mark.line + 1}: key {name!r} appears twice; keep one")
            seen.add(name)
            yield from _lines(path, value, (*at, name))
            yield (*at, name), key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(path, value, (*at, index))


def explain(error: ValidationError, model: type[BaseModel], lines: Lines) -> str:
    """Return a line for every fault, each with file and line, what was given and what is allowed."""
    return "\n".join(dict.fromkeys(_one(item, model, lines) for item in error.errors()))


def _one(item: Any, model: type[BaseModel], lines: Lines) -> str:
    location = tuple(item["loc"])
    place, key = lines.where(*location), ".".join(map(str, location))
    if item["type"] == "extra_forbidden":
        allowed = _fields(model, location[:-1])
        close = difflib.get_close_matches(str(location[-1]), allowed, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"{place}: unknown key {key!r}; {hint}allowed: {', '.join(allowed)}"
    if item["type"] == "missing":
        return f"{place}: key {key!r} is missing; add it"
    message = item["msg"].removeprefix("Value error, ")
    given = f"{key} is {item['input']!r:.80}: " if key and item["type"] != "value_error" else f"{key}: " if key else ""
    return f"{place}: {given}{message[:1].lower()}{message[1:]}"


def _fields(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Names of the keys beside the one complained about."""
    found: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        annotation = found.model_fields[part].annotation
        models = [entry for entry in _flat(annotation) if isinstance(entry, type) and issubclass(entry, BaseModel)]
        if not models:
            return []
        found = models[0]
    return list(found.model_fields)


def _flat(annotation: Any) -> Iterator[Any]:
    inner = getattr(annotation, "__args__", ())
    if not inner:
        yield annotation
    for entry in inner:
        yield from _flat(entry)
