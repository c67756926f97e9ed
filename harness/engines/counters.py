"""Pure parsers of engines' own counters: Prometheus text in, :class:`SpecCounters` out. No network, no state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.errors import EngineProtocolError
from harness.records import SpecCounters

# `name{labels} value [timestamp]`, Prometheus text format 0.0.4; `#` lines are skipped before
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
# llama.cpp b11549, vLLM 0.32 and LMDeploy 0.18 write the same four names behind their own prefix, vLLM's older releases without `_total`
_SPEC = re.compile(
    r"^(?:llamacpp|vllm|lmdeploy):spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)(?:_total)?$"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a Prometheus page."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse_samples(text: str) -> Iterator[Sample]:
    """Yield the samples of a Prometheus page; comments and blank lines are skipped.

    Raises:
        EngineProtocolError: with the line number, on a line that is neither a comment nor a sample.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _SAMPLE.match(stripped)
        if match is None:
            raise EngineProtocolError(
                f"metrics line {number} is not of the form 'name{{labels}} value': {stripped!r:.120}"
            )
        try:
            value = float(match["value"])
        except ValueError as error:
            raise EngineProtocolError(f"metrics line {number}: {match['value']!r:.40} is not a number") from error
        yield Sample(match["name"], _labels(match["labels"] or "", number), value)


def spec_counters(text: str) -> SpecCounters | None:
    """Return the lifetime counters of speculative decoding on a llama.cpp, vLLM or LMDeploy metrics page.

    Several engines (label ``engine``, ``model_name``) are summed. ``None`` if the page has no such counters at all; a server
    that has drafted nothing yet gives zeros and an empty tuple of positions.

    Raises:
        EngineProtocolError: if the page is malformed, or has some of the counters but not drafted and accepted tokens.
    """
    totals: dict[str, int] = {}
    per_position: dict[int, int] = {}
    for sample in parse_samples(text):
        match = _SPEC.match(sample.name)
        if match is None:
            continue
        count = whole(sample)
        if match[1] == "accepted_tokens_per_pos":
            position = sample.labels.get("position", "")
            if not position.isdecimal():
                raise EngineProtocolError(f"{sample.name} has position {position!r}; expected a whole number from 0")
            per_position[int(position)] = per_position.get(int(position), 0) + count
        else:
            totals[match[1]] = totals.get(match[1], 0) + count
    if not totals and not per_position:
        return None
    missing = [name for name in ("draft_tokens", "accepted_tokens") if name not in totals]
    if missing:
        raise EngineProtocolError(
            f"the metrics page has spec_decode counters but not spec_decode_num_{missing[0]}; this engine version is unknown"
        )
    # the lines per position appear with the first draft: until then no position has a count, after it a missing one is unknown
    positions: tuple[int, ...] | None = () if totals["draft_tokens"] == 0 else None
    if per_position:
        positions = tuple(per_position.get(index, 0) for index in range(max(per_position) + 1))
    return SpecCounters(totals.get("drafts"), totals["draft_tokens"], totals["accepted_tokens"], positions)


def whole(sample: Sample) -> int:
    """Return the value of a counter.

    Raises:
        EngineProtocolError: if it is no whole number from 0.
    """
    if not sample.value.is_integer() or sample.value < 0:
        raise EngineProtocolError(f"{sample.name} is {sample.value!r}; a counter is a whole number from 0")
    return int(sample.value)


def total(text: str, *names: str) -> int | None:
    """Return the sum of all samples with one of these names, over all labels; ``None`` if the page has none of them.

    Raises:
        EngineProtocolError: if the page is malformed, or a value is no whole number from 0.
    """
    found = [whole(sample) for sample in parse_samples(text) if sample.name in names]
    return sum(found) if found else None


def labels_of(text: str, name: str) -> dict[str, str]:
    """Return the labels of the first sample of this name, without those that name model and engine; empty if there is none.

    Raises:
        EngineProtocolError: if the page is malformed.
    """
    found = next((sample.labels for sample in parse_samples(text) if sample.name == name), {})
    return {key: value for key, value in found.items() if key not in ("engine", "model_name", "engine_type")}


def _labels(text: str, number: int) -> dict[str, str]:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            raise EngineProtocolError(f'metrics line {number}: labels {text!r:.80} are not of the form name="value"')
        labels[match[1]] = match[2]
        at = match.end()
    return labels
