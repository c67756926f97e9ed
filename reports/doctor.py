"""The one screen of `harness doctor`: a line a topic, what the server could tell better, and whether it is fit to be measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.doctor.diagnosis import TOPICS, Diagnosis, Observation, Unknown
from reports.wording import UNKNOWN, Wording, text_width, wording

_MARKS = {"good": "✓", "note": "·", "warning": "!", "bad": "✗"}
_LONGEST = 300  # of a server's own words in one line
_NARROWEST = 40
_NAME = re.compile(r"[a-z_]{3,}")  # YAML would read y, no and on as something else
_WORDS = frozenset({"null", "true", "false", "yes", "off"})


def doctor_screen(diagnosis: Diagnosis, lang: str, width: int) -> str:
    """Return the screen as plain text, lines of at most ``width`` columns where words allow it.

    Raises:
        UsageError: if there are no texts in this language.
    """
    words = wording(lang)
    lines = [words.text("doctor.title", url=diagnosis.base_url), ""]
    labels = {topic: words.text(f"doctor.topic.{topic}") for topic in TOPICS}
    column = max(text_width(label) for label in labels.values()) + 4
    for item in sorted(diagnosis.observations, key=lambda item: TOPICS.index(item.topic)):
        head = f"{_MARKS[item.level]} {labels[item.topic]}"
        lines += _wrapped(_padded(head, column), _said(item, words), width)
    if diagnosis.unknown:
        lines += ["", words.text("doctor.unknown")]
        for unknown in diagnosis.unknown:
            lines += _wrapped("· ", _lacking(unknown, words), width)
    topics = ", ".join(labels[topic] for topic in dict.fromkeys(diagnosis.obstacles))
    lines += ["", words.text(f"doctor.grade.{diagnosis.grade}", topics=topics or UNKNOWN)]
    if diagnosis.fit and diagnosis.kind is not None:
        lines += _wrapped("", words.text("doctor.next", engine=_engine(diagnosis)), width)
    return "\n".join(lines)


def _said(item: Observation, words: Wording) -> str:
    values: Mapping[str, Any] = {name: _brief(value) for name, value in item.values.items()}
    return words.text(f"doctor.said.{item.topic}.{item.code}", **values)


def _lacking(unknown: Unknown, words: Wording) -> str:
    return f"{words.label('doctor.fact', unknown.fact)}: {unknown.remedy}"


def _engine(diagnosis: Diagnosis) -> str:
    """Return the workload's line for this server; YAML reads JSON's texts."""
    values = {"base_url": diagnosis.base_url, "model": diagnosis.model}
    quoted = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value]
    further = [f"{key}: {_flow(value)}" for key, value in diagnosis.further.items() if value]
    return f"engine: {{{', '.join([f'kind: {diagnosis.kind}', *quoted, *further])}}}"


def _flow(value: Any) -> str:
    """Return a value as YAML on one line: keys bare where they are names, texts as JSON writes them."""
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    keys = [key if _NAME.fullmatch(key) and key not in _WORDS else json.dumps(key, ensure_ascii=False) for key in value]
    return f"{{{', '.join(f'{key}: {_flow(item)}' for key, item in zip(keys, value.values(), strict=True))}}}"


def _brief(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    flat = " ".join(value.split())
    return flat if len(flat) <= _LONGEST else flat[: _LONGEST - 1] + "…"


def _padded(text: str, column: int) -> str:
    return text + " " * (column - text_width(text))


def _wrapped(head: str, text: str, width: int) -> Iterator[str]:
    """Yield a head and a text behind it, further lines of the text under its first."""
    column = text_width(head)
    room = max(width - column, _NARROWEST)
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and text_width(longer) > room:
            yield head + line
            head, line = " " * column, word
        else:
            line = longer
    yield head + line
