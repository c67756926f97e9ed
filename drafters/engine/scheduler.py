"""Which sequences take part in a round. Imports no torch.

First come, first served. A sequence is admitted only when slots for its prompt and for every token it may still produce
are free, so nothing that runs can run out of memory, and nothing is ever thrown out half-way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from drafters.engine.sequence import RequestError, RunningSequence, Status
from drafters.engine.slots import Kept, Slots, common_length

__all__ = ["Admission", "Chunk", "Plan", "Scheduler"]


@dataclass(frozen=True, slots=True)
class Admission:
    """A sequence that joins; the K/V of its first ``num_tokens`` tokens is to be copied from ``source`` to its slot.

    The copies of a plan must be made in order and before anything is written.
    """

    sequence: RunningSequence
    source: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a prompt to be fed: tokens ``start`` to ``end`` (excluded)."""

    sequence: RunningSequence
    start: int
    end: int

    @property
    def last(self) -> bool:
        """Whether the prompt is complete with it, so that a first token follows."""
        return self.end == len(self.sequence.request.prompt)


@dataclass(frozen=True, slots=True)
class Plan:
    """One round: who joins, what prompts are fed, and who decodes."""

    admissions: list[Admission] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    decoding: list[RunningSequence] = field(default_factory=list)


class Scheduler:
    """Queue and batch of the engine.

    ``capacity`` bounds the tokens held in memory, ``max_sequences`` the batch, ``max_length`` one sequence (prompt and
    output), ``prefill_tokens`` the prompt tokens fed in one round. ``prefix_reuse`` off neither copies nor keeps
    anything.
    """

    def __init__(
        self,
        capacity: int,
        max_sequences: int,
        max_length: int,
        prefill_tokens: int = 512,
        prefix_reuse: bool = True,
    ) -> None:
        for name, value in (
            ("max_sequences", max_sequences),
            ("max_length", max_length),
            ("prefill_tokens", prefill_tokens),
        ):
            if value < 1:
                raise ValueError(f"{name} is {value}; allowed: 1 or more")
        self.slots = Slots(capacity)
        self.max_sequences = max_sequences
        self.max_length = max_length
        self.prefill_tokens = prefill_tokens
        self.prefix_reuse = prefix_reuse
        self._waiting: deque[RunningSequence] = deque()
        self._active: dict[int, RunningSequence] = {}
        self._stuck: RunningSequence | None = None  # found no room, and nobody has left since

    @property
    def num_waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._waiting)

    @property
    def num_active(self) -> int:
        """Sequences that hold slots."""
        return len(self._active)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._waiting or self._active)

    def add(self, sequence: RunningSequence) -> None:
        """Queue a sequence. Raises RequestError for one that could never be admitted."""
        prompt, max_tokens = len(sequence.request.prompt), sequence.request.max_tokens
        if prompt + max_tokens > self.max_length:
            raise RequestError(
                f"a prompt of {prompt} tokens and max_tokens {max_tokens} make {prompt + max_tokens}; "
                f"allowed: {self.max_length} together. Shorten the prompt or ask for fewer tokens"
            )
        if sequence.reserved > self.slots.capacity:
            raise RequestError(
                f"the request needs memory for {sequence.reserved} tokens; this engine has {self.slots.capacity}. "
                "Shorten the prompt or ask for fewer tokens"
            )
        self._waiting.append(sequence)

    def plan(self) -> Plan:
        """Admit what fits, then share the prompt budget in order of arrival; all others decode."""
        plan = Plan()
        while self._waiting and len(self._active) < self.max_sequences and self._waiting[0] is not self._stuck:
            admission = self._admit(self._waiting[0])
            if admission is None:
                self._stuck = self._waiting[0]
                break  # those behind wait too: a long prompt must not be overtaken for ever
            self._waiting.popleft()
            plan.admissions.append(admission)
        budget = self.prefill_tokens
        for sequence in self._active.values():
            if sequence.status is Status.RUNNING:
                plan.decoding.append(sequence)
            elif budget > 0:
                end = min(len(sequence.request.prompt), sequence.computed + budget)
                plan.chunks.append(Chunk(sequence, sequence.computed, end))
                budget -= end - sequence.computed
        return plan

    def finish(self, sequence: RunningSequence) -> None:
        """Take an ended sequence out of the batch; what it computed stays for reuse while there is room."""
        if self._active.pop(sequence.sequence_id, None) is None:
            return
        self._stuck = None
        if self.prefix_reuse:
            kept = sequence.token_ids[: sequence.computed]
            self.slots.keep(sequence.slot, sequence.reserved, kept, min(sequence.featured, len(kept)))
        else:
            self.slots.release(sequence.slot, sequence.reserved)

    def abort(self, sequence: RunningSequence) -> bool:
        """End a sequence wherever it stands and free its slots at once; False when it had ended already."""
        if sequence.status is Status.FINISHED:
            return False
        if sequence.status is Status.WAITING:
            self._waiting.remove(sequence)
        sequence.finish("abort")
        self.finish(sequence)
        return True

    def drop(self, sequence: RunningSequence) -> None:
        """End an active sequence of which nothing is certain any more: its slots are free, nothing stays for reuse.

        Does nothing to one that is not active.
        """
        if self._active.pop(sequence.sequence_id, None) is not None:
            self._stuck = None
            sequence.finish("abort")
            self.slots.release(sequence.slot, sequence.reserved)

    def _admit(self, sequence: RunningSequence) -> Admission | None:
        source, shared, featured, kept = self._longest_prefix(sequence) if self.prefix_reuse else (-1, 0, 0, None)
        slot = self.slots.reserve(sequence.reserved, sparing=kept)
        if slot is None and kept is not None:
            # Its own source is in the way: computing again beats waiting.
            source, shared, featured, kept = -1, 0, 0, None
            slot = self.slots.reserve(sequence.reserved)
        if slot is None:
            return None
        if kept is not None:
            if shared == len(kept.token_ids):
                self.slots.drop(kept)  # the new sequence holds all of it; the copy is made before the space is written
            else:
                self.slots.touch(kept)
        sequence.slot, sequence.computed, sequence.cached_tokens = slot, shared, shared
        sequence.featured = min(shared, featured)
        sequence.status = Status.PREFILLING
        self._active[sequence.sequence_id] = sequence
        return Admission(sequence, source, shared)

    def _longest_prefix(self, sequence: RunningSequence) -> tuple[int, int, int, Kept | None]:
        """Where the longest known beginning stands, how long it is, how much of it has features, and who left it."""
        # The last prompt token is always fed: its logits are needed.
        prompt = list(sequence.request.prompt[:-1])
        best: tuple[int, int, int, Kept | None] = (-1, 0, 0, None)
        for kept in self.slots.kept:
            length = _longer(prompt, kept.token_ids, kept.featured if sequence.needs_features else None, best[1])
            if length > best[1]:
                best = kept.slot, length, kept.featured, kept
        for other in self._active.values():
            limit = other.featured if sequence.needs_features else other.computed
            length = _longer(prompt, other.token_ids, limit, best[1])
            if length > best[1]:
                best = other.slot, length, other.featured, None
        return best


def _longer(prompt: list[int], tokens: Sequence[int], limit: int | None, known: int) -> int:
    """How many of ``prompt``'s first tokens ``tokens`` begin with, up to ``limit``; 0 where that is not above
    ``known``."""
    end = min(len(prompt), len(tokens) if limit is None else limit)
    # Most candidates fail at the one token that would make them longer, which spares comparing the rest.
    if end <= known or tokens[known] != prompt[known]:
        return 0
    return common_length(prompt[:end], list(tokens[:end]))
