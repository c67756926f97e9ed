"""The builtin engine as the benchmark drives it: its runner in this process, every round timed from outside.

A round's wall time runs from the end of the step before to its own end, so that whatever the loop around the engine costs
is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drafters.catalog import build
from drafters.engine.assembly import assemble
from drafters.engine.config import EngineConfig, ServedDrafter
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RunningSequence
from drafters.specs import PromptLookupSpec, SyntheticSpec

__all__ = [
    "ACCEPTANCE",
    "BATCH",
    "CONTEXT",
    "CONTROLLED",
    "LOOKUP",
    "NGRAMS",
    "NUM_TOKENS",
    "SHORT_CONTROLLED",
    "SHORT_NGRAMS",
    "SYNTHETIC",
    "Ours",
    "Pass",
    "Round",
    "RoundSums",
]

BATCH = 16
CONTEXT = 512
LOOKUP = "lookup"
CONTROLLED = "lookup-controlled"
SHORT_CONTROLLED = "lookup-short-controlled"
SYNTHETIC = "synthetic"
NUM_TOKENS = 8
ACCEPTANCE = 0.7
NGRAMS = (2, 4)
"""Shortest and longest run of tokens that the lookup compares."""
SHORT_NGRAMS = (1, 2)
"""The same as transformers does by default."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round's record, its wall time, and the tokens it gave all sequences."""

    record: RoundRecord
    wall_ns: int
    tokens: int


@dataclass(frozen=True, slots=True)
class RoundSums:
    """Sums over rounds in which ``batch`` sequences decoded and no prompt was fed.

    ``outside_ns`` is wall time outside the target's forwards and the drafters' work: scheduling, building the rows,
    choosing tokens, records, and the loop around the engine.
    """

    batch: int
    rounds: int
    drafting_rounds: int
    tokens: int
    drafted: int
    accepted: int
    forward_ns: int
    draft_ns: int
    wall_ns: int
    outside_ns: int

    @classmethod
    def of(cls, rounds: Sequence[Round], batch: int) -> RoundSums:
        """Sum up what was run at ``batch``."""
        counted = [r for r in rounds if r.record.batch_size == batch and not r.record.prefill_tokens]
        forward = sum(r.record.forward_ns for r in counted)
        draft = sum(r.record.draft_ns for r in counted)
        wall = sum(r.wall_ns for r in counted)
        return cls(
            batch=batch,
            rounds=len(counted),
            drafting_rounds=sum(r.record.num_draft_tokens > 0 for r in counted),
            tokens=sum(r.tokens for r in counted),
            drafted=sum(r.record.num_draft_tokens for r in counted),
            accepted=sum(r.record.num_accepted_tokens for r in counted),
            forward_ns=forward,
            draft_ns=draft,
            wall_ns=wall,
            outside_ns=wall - forward - draft,
        )


@dataclass(frozen=True, slots=True)
class Pass:
    """Requests run to their end: ``outputs`` in order, ``arrivals[i]`` the (nanoseconds, tokens) that sequence i got."""

    outputs: list[list[int]]
    arrivals: list[list[tuple[int, int]]]
    whole_s: float
    rounds: list[Round]

    def sums(self, batch: int) -> dict[str, Any]:
        """The rounds at ``batch``, as plain values."""
        return asdict(RoundSums.of(self.rounds, batch))


class Ours:
    """One target behind two runners: ``fresh`` computes every prompt, ``cached`` reuses what it has seen.

    ``costs`` is the controller's cost model. What controller and costs learn from rounds is forgotten before each run.
    Drafters: lookup in the prompt with k 8, the same under the goodput controller, that with transformers' lengths of
    n-grams, and synthetic acceptance of 0.7.
    """

    def __init__(self, model: Path, threads: int, progress: Callable[[str], None]) -> None:
        lookup = PromptLookupSpec(num_tokens=NUM_TOKENS, min_ngram=NGRAMS[0], max_ngram=NGRAMS[1])
        short = PromptLookupSpec(num_tokens=NUM_TOKENS, min_ngram=SHORT_NGRAMS[0], max_ngram=SHORT_NGRAMS[1])
        synthetic = SyntheticSpec(num_tokens=NUM_TOKENS, acceptance=ACCEPTANCE)
        config = EngineConfig(
            model=model,
            threads=threads,
            drafters={
                LOOKUP: ServedDrafter(spec=lookup),
                CONTROLLED: ServedDrafter(spec=lookup, lengths="goodput"),
                SHORT_CONTROLLED: ServedDrafter(spec=short, lengths="goodput"),
            },
            max_sequences=BATCH,
            context_tokens=CONTEXT,
            prefix_reuse=False,
        )
        self._records: list[RoundRecord] = []
        assembled = assemble(config, on_round=self._records.append, progress=progress)
        self.fresh, self.costs = assembled.runner, assembled.costs
        self.target = self.fresh.target
        room = 2 * config.total_cache_tokens  # every prompt of a batch stays while the next one runs
        self.cached = Runner(
            self.target,
            room,
            {name: build(spec, self.target, room) for name, spec in ((LOOKUP, lookup), (SYNTHETIC, synthetic))},
            max_sequences=BATCH,
            prefix_reuse=True,
            on_round=self._records.append,
        )

    def run(
        self,
        runner: Runner,
        prompts: Sequence[tuple[int, ...]],
        tokens: int,
        drafter: str | None = None,
        num_draft_tokens: int | None = None,
    ) -> Pass:
        """Add all requests at once and step until they have ended; greedy, end tokens ignored.

        Draft lengths start from nothing but the costs measured at the start, whatever ran before.
        """
        runner.reset_drafting()
        self._records.clear()
        rounds: list[Round] = []
        began = before = time.monotonic_ns()
        sequences = [
            runner.add(Request(prompt, tokens, drafter=drafter, num_draft_tokens=num_draft_tokens))
            for prompt in prompts
        ]
        arrivals: Mapping[int, list[tuple[int, int]]] = {sequence.sequence_id: [] for sequence in sequences}
        while runner.busy:
            events = runner.step()
            for event in events:
                arrivals[event.sequence.sequence_id].append((time.monotonic_ns(), len(event.token_ids)))
            now = time.monotonic_ns()
            if len(self._records) > len(rounds):
                rounds.append(Round(self._records[-1], now - before, sum(len(event.token_ids) for event in events)))
            before = now
        whole = (before - began) / 1e9
        return Pass(_outputs(sequences, tokens), [arrivals[s.sequence_id] for s in sequences], whole, rounds)


def _outputs(sequences: Sequence[RunningSequence], tokens: int) -> list[list[int]]:
    short = [sequence for sequence in sequences if len(sequence.output) != tokens]
    if short:
        raise RuntimeError(f"{len(short)} answers of another length than the {tokens} tokens asked for")
    return [sequence.output for sequence in sequences]
