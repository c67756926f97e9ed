"""What a run writes down: plain frozen records, one row a step, in integer nanoseconds of one monotonic clock.

Unknown is ``None``, never 0. The wire names of speculative counters are vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

Phase = Literal["warm_up", "counted", "cool_down"]
SpecSource = Literal["round", "request", "window"]
ErrorKind = Literal[
    "connect", "disconnect", "http_status", "timeout", "protocol", "cancelled", "not_sent", "empty", "engine_dead"
]
CellStatus = Literal["done", "failed"]
ENGINE_DIED = "the server process ended"
"""The error message of a cell whose server died; the cell is then run again."""


@dataclass(frozen=True, slots=True, order=True)
class CellKey:
    """The unit of measurement: one arm on one workload at one concurrency, once."""

    workload: str
    arm: str
    concurrency: int
    repeat: int


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """Counts of speculative decoding, addable and subtractable; names and meanings are vLLM's (V1, 0.32).

    ``num_drafts`` counts the rounds in which at least one token was drafted. ``num_accepted_tokens`` leaves the bonus token out.
    ``num_accepted_tokens_per_pos[i]`` counts the rounds in which draft position ``i`` (from 0) was accepted. ``num_drafts`` and
    the per-position counts are ``None`` where the engine does not tell them.
    """

    num_drafts: int | None
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_tokens_per_pos: tuple[int, ...] | None = None

    def __add__(self, other: SpecCounters) -> SpecCounters:
        return self._combine(other, 1)

    def __sub__(self, other: SpecCounters) -> SpecCounters:
        return self._combine(other, -1)

    def _combine(self, other: SpecCounters, sign: int) -> SpecCounters:
        per_pos: tuple[int, ...] | None = None
        if self.num_accepted_tokens_per_pos is not None and other.num_accepted_tokens_per_pos is not None:
            left, right = self.num_accepted_tokens_per_pos, other.num_accepted_tokens_per_pos
            size = max(len(left), len(right))
            left, right = left + (0,) * (size - len(left)), right + (0,) * (size - len(right))
            per_pos = tuple(a + sign * b for a, b in zip(left, right, strict=True))
        drafts = (
            None if self.num_drafts is None or other.num_drafts is None else self.num_drafts + sign * other.num_drafts
        )
        return SpecCounters(
            drafts,
            self.num_draft_tokens + sign * other.num_draft_tokens,
            self.num_accepted_tokens + sign * other.num_accepted_tokens,
            per_pos,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """One propose→verify pass of one request; what the engine does not tell is ``None``.

    ``t_ns`` is when it was verified, or, where only the client's clock is known, when its chunk arrived. ``round_index`` numbers
    the engine's own rounds and is the same for all requests that shared one, ``batch_size`` says how many they were. ``draft_ns``,
    ``verify_ns`` and ``host_ns`` (the rest) are the times of the whole round, not this request's share; so are ``prefill_tokens``
    (prompt tokens fed in the same forward) and ``context_tokens`` (tokens that its requests had before it, summed).
    """

    t_ns: int
    num_draft_tokens: int
    num_accepted_tokens: int
    batch_size: int | None = None
    round_index: int | None = None
    draft_ns: int | None = None
    verify_ns: int | None = None
    host_ns: int | None = None
    prefill_tokens: int | None = None
    context_tokens: int | None = None

    def to_row(self) -> list[int | None]:
        """Return the values in the order of the fields; those of an engine that tells no more are left out at the end."""
        row = [getattr(self, field.name) for field in fields(self)]
        known = [length for length in (4, 8) if not any(value is not None for value in row[length:])]
        return row[: known[0]] if known else row

    @classmethod
    def from_row(cls, row: Sequence[int | None]) -> Round:
        """Inverse of :meth:`to_row`."""
        return cls(*row)  # type: ignore[arg-type]  # the first three were written as numbers


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One model call, successful or not.

    ``due_ns`` ≤ ``sent_ns`` ≤ ``first_token_ns`` ≤ ``end_ns``. ``instance`` numbers the task's start within the cell (a task can be
    started more than once when the concurrency exceeds the number of tasks). ``decode_passes`` counts the target's forward
    passes after the prompt, those without a draft included. ``error_kind`` and ``error_message`` are ``None`` for a success.
    """

    cell: CellKey
    attempt: int
    phase: Phase
    instance: int
    task_id: str
    step_index: int
    kind: str
    language: str
    due_ns: int
    sent_ns: int | None
    first_token_ns: int | None
    end_ns: int
    tool_wait_ns: int
    max_tokens: int
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    output_sha256: str | None
    decode_passes: int | None
    spec: SpecCounters | None
    spec_source: SpecSource | None
    finish_reason: str | None
    chunks: int
    error_kind: ErrorKind | None = None
    error_message: str | None = None

    def to_row(self) -> dict[str, Any]:
        """Return the record as one flat row: the keys of the cell and of ``spec`` stand beside the others."""
        row: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "cell":
                row.update(workload=value.workload, arm=value.arm, concurrency=value.concurrency, repeat=value.repeat)
            elif field.name == "spec":
                row.update(counters_to_row(value))
            else:
                row[field.name] = value
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> StepRecord:
        """Inverse of :meth:`to_row`."""
        plain = {f.name: row[f.name] for f in fields(cls) if f.name not in ("cell", "spec")}
        cell = CellKey(row["workload"], row["arm"], row["concurrency"], row["repeat"])
        return cls(cell=cell, spec=counters_from_row(row), **plain)


@dataclass(frozen=True, slots=True)
class CellRecord:
    """One finished or failed cell: when it ran, what the server's own counters said, and how caches were kept apart.

    ``server_before`` and ``server_after`` are the engine's counters around the cell (the cell had the engine to itself), ``None``
    where it has none. ``cache_policy`` says what was done about prompt caches: salt, reset or shared. ``started_at`` is the wall clock
    (UTC), since the monotonic one means nothing across a resumed run. ``drained`` tells whether the server was seen without work
    after the cut tail, ``None`` if nobody looked. ``counted_steps`` are the rows of counted tasks that it left among the steps, ``None``
    in runs that did not write it down. ``foreign_requests`` are the requests of others that the server was seen to work on or to have
    finished while the cell ran, ``None`` if it does not tell. ``energy_j`` is what the graphics processors used between ``start_ns`` and
    ``end_ns``, ``None`` where it could not be read.
    """

    cell: CellKey
    attempt: int
    order: int
    status: CellStatus
    start_ns: int
    end_ns: int
    counted_tasks: int
    cache_policy: str
    server_before: SpecCounters | None = None
    server_after: SpecCounters | None = None
    error_message: str | None = None
    started_at: str | None = None
    drained: bool | None = None
    counted_steps: int | None = None
    foreign_requests: int | None = None
    energy_j: float | None = None

    def to_row(self) -> dict[str, Any]:
        """Return one flat row; counters get the prefixes ``before_`` and ``after_``."""
        row: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "cell":
                row.update(workload=value.workload, arm=value.arm, concurrency=value.concurrency, repeat=value.repeat)
            elif field.name in ("server_before", "server_after"):
                prefix = field.name.removeprefix("server_") + "_"
                row.update({prefix + key: item for key, item in counters_to_row(value).items()})
            else:
                row[field.name] = value
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> CellRecord:
        """Inverse of :meth:`to_row`."""
        own = [f.name for f in fields(cls) if f.name not in ("cell", "server_before", "server_after")]
        plain = {name: row[name] for name in own if name in row}  # a field that came later has its default
        cell = CellKey(row["workload"], row["arm"], row["concurrency"], row["repeat"])
        before = counters_from_row({k.removeprefix("before_"): v for k, v in row.items() if k.startswith("before_")})
        after = counters_from_row({k.removeprefix("after_"): v for k, v in row.items() if k.startswith("after_")})
        return cls(cell=cell, server_before=before, server_after=after, **plain)


def counters_to_row(counters: SpecCounters | None) -> dict[str, Any]:
    """Return the four counters as flat keys, all ``None`` where nothing is known."""
    per_pos = counters.num_accepted_tokens_per_pos if counters else None
    return {
        "num_drafts": counters.num_drafts if counters else None,
        "num_draft_tokens": counters.num_draft_tokens if counters else None,
        "num_accepted_tokens": counters.num_accepted_tokens if counters else None,
        "num_accepted_tokens_per_pos": None if per_pos is None else list(per_pos),
    }


def counters_from_row(row: Mapping[str, Any]) -> SpecCounters | None:
    """Inverse of :func:`counters_to_row`."""
    if row["num_draft_tokens"] is None:
        return None
    per_pos = row["num_accepted_tokens_per_pos"]
    return SpecCounters(
        row["num_drafts"],
        row["num_draft_tokens"],
        row["num_accepted_tokens"],
        None if per_pos is None else tuple(per_pos),
    )
