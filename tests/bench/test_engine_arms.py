"""The builtin engine as the benchmark drives it, on a tiny model."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from bench.engine_arms import Ours
from drafters.engine.lengths import FullLength
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Runner
from drafters.prompt_lookup import PromptLookup
from tests.drafters.models import greedy, lean, prompt


class Noting(FullLength):
    """A policy that notes when it is made to forget."""

    def __init__(self) -> None:
        self.resets = 0

    def reset(self) -> None:
        """One more."""
        self.resets += 1


def test_each_run_starts_from_what_the_policies_knew_at_first() -> None:
    """Two runs, two resets, and the same tokens."""
    policy, records = Noting(), list[RoundRecord]()
    runner = Runner(
        lean("llama"), 200, {"lookup": PromptLookup(4, 1, 3)}, lengths={"lookup": policy}, on_round=records.append
    )
    ours = Ours.__new__(Ours)  # without loading and measuring a model
    ours._records = records
    made = [ours.run(runner, [tuple(prompt(5, 9))], 8, "lookup") for _ in range(2)]
    assert policy.resets == 2
    assert made[0].outputs == made[1].outputs == [greedy("llama", prompt(5, 9), 8)]
