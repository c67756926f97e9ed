"""What MTP and EAGLE share: how long commits are fed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from drafters import pairs
from drafters.layers import CachedRows
from drafters.mtp import Mtp, untrained
from tests.drafters.feeding import CLOSE, commit_of, draft_of
from tests.drafters.models import lean, prompt


def test_long_commits_are_fed_in_passes_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 8 pairs a pass, shared: 19 and 5 pairs go as 4 + 4, 4 + 1, then 8 and 3 of the longer one alone; the
    drafts are those of one pass."""
    texts = [prompt(1, 20), prompt(2, 6)]
    whole, parts = (Mtp(untrained(lean("llama")), lean("llama"), 3) for _ in range(2))
    commits = [commit_of(whole, "llama", text, 0, number) for number, text in enumerate(texts)]
    passes: list[list[int]] = []
    run = pairs.Pairs.run

    def watched(self: pairs.Pairs, token_ids: Sequence[int], hidden: Tensor, rows: Sequence[CachedRows]) -> Tensor:
        passes.append([len(part.positions) for part in rows])
        return run(self, token_ids, hidden, rows)

    monkeypatch.setattr(pairs.Pairs, "run", watched)
    for drafter, chunk in ((whole, 512), (parts, 8)):
        monkeypatch.setattr(pairs, "CHUNK", chunk)
        for number in range(2):
            drafter.open(number, 40)
        drafter.commit(commits)
    assert passes == [[19, 5], [4, 4], [4, 1], [8], [3]]
    for number, text in enumerate(texts):
        torch.testing.assert_close(parts.logits(number), whole.logits(number), rtol=0, atol=CLOSE)
        assert draft_of(parts, text, 3, number) == draft_of(whole, text, 3, number)
