"""What the tests of MTP and EAGLE-3 training share: batches by hand, a training loop, and the engine beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from drafters.base import Commit, Drafter, DraftRequest
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses, Method
from tests.drafters.models import greedy, lean, prompt, reference

__all__ = [
    "CLOSE",
    "FAMILY",
    "Listening",
    "Row",
    "accepted_by_engine",
    "batch_of",
    "draft_after",
    "frozen",
    "overfit",
    "same",
    "shares",
    "texts",
]

Row = tuple[list[int], list[tuple[int, int]]]
"""Tokens, and the [start, end) ranges of the answers."""

FAMILY = "qwen3"
# Sums of a few dozen products near 1 in float64, made in another order on both sides.
CLOSE = 1e-11
ANSWER = 24
PROMPTS = [prompt(seed, 6 + seed) for seed in range(3)]


@cache
def frozen(dtype: torch.dtype = torch.float64) -> FrozenTarget:
    """A tiny target with random weights."""
    return FrozenTarget(reference(FAMILY, dtype=dtype))


def texts(dtype: torch.dtype = torch.float64) -> list[Row]:
    """Prompts with the target's own greedy answers, and where these stand."""
    made: list[Row] = []
    for start in PROMPTS:
        answer = greedy(FAMILY, start, ANSWER, dtype=dtype)
        made.append(([*start, *answer], [(len(start), len(start) + len(answer))]))
    return made


def batch_of(
    target: FrozenTarget,
    rows: Sequence[Row],
    layers: Sequence[int],
    length: int | None = None,
    beyond: float = float("nan"),
) -> Batch:
    """Rows of tokens and answer ranges, padded to ``length`` or the longest, with ``beyond`` in all states there."""
    lengths = [len(tokens) for tokens, _ in rows]
    length = max(lengths) if length is None else length
    ids = torch.zeros((len(rows), length), dtype=torch.long)
    answers = torch.zeros((len(rows), length), dtype=torch.bool)
    for index, (tokens, ranges) in enumerate(rows):
        ids[index, : len(tokens)] = torch.tensor(tokens)
        for start, end in ranges:
            answers[index, start:end] = True
    states = target.hidden_states(ids, lengths, (*layers, target.num_layers)).clone()
    for index, end in enumerate(lengths):
        states[index, end:] = beyond
    return Batch(ids, torch.tensor(lengths), answers, states[:, :, :-1], states[:, :, -1])


def overfit(method: Method, batch: Batch, steps: int, rate: float = 3e-3) -> list[Losses]:
    """Train on one batch over and over."""
    optimizer = torch.optim.AdamW(method.module.parameters(), lr=rate, weight_decay=0.0)
    made = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / steps)
        losses = method.losses(batch, torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (losses.total / losses.weight).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        made.append(losses)
    return made


def shares(losses: Losses) -> list[float]:
    """Share of the chains of at least that length that were right so far, position by position."""
    return [float(share) for share in losses.accepted / losses.drafted]


def same(one: Losses, other: Losses, tolerance: float = CLOSE) -> None:
    """Refuse any difference in what two batches gave."""
    torch.testing.assert_close(one.total, other.total, rtol=0, atol=tolerance)
    torch.testing.assert_close(one.weight, other.weight)
    assert torch.equal(one.drafted, other.drafted)
    assert torch.equal(one.accepted, other.accepted)


def draft_after(drafter: Drafter, target: FrozenTarget, tokens: Sequence[int]) -> list[int]:
    """What the engine's drafter drafts after ``tokens``, with the target's features."""
    ids = torch.tensor([tokens[:-1]])
    features = target.hidden_states(ids, [ids.shape[1]], drafter.feature_layers)[0]
    drafter.open(0, 200)
    drafter.commit([Commit(0, 0, tuple(tokens), features)])
    return list(drafter.propose([DraftRequest(0, tokens, 63)])[0].token_ids)


def accepted_by_engine(drafter: Drafter, dtype: torch.dtype) -> tuple[float, float]:
    """Run the engine on the prompts of `texts`: acceptance length (accepted + 1 a round), and the length that full
    acceptance would give, for the last draft of a text is cut."""
    runner = Runner(lean(FAMILY, dtype=dtype), cache_tokens=600, drafters={"it": drafter})
    sequences = [runner.add(Request(tuple(start), max_tokens=ANSWER, drafter="it")) for start in PROMPTS]
    while runner.busy:
        runner.step()
    for sequence, (tokens, _) in zip(sequences, texts(dtype), strict=True):
        assert list(sequence.token_ids) == tokens
    rounds = [done for sequence in sequences for done in sequence.rounds]
    drafted = sum(done.num_draft_tokens for done in rounds)
    accepted = sum(done.num_accepted_tokens for done in rounds)
    return accepted / len(rounds) + 1, drafted / len(rounds) + 1


class Listening:
    """Passes on what a projection makes, and keeps it."""

    def __init__(self, inner: Callable[[Tensor], Tensor]) -> None:
        self._inner = inner
        self.heard: list[Tensor] = []

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] → [n, out]."""
        made = self._inner(rows)
        self.heard.append(made)
        return made
