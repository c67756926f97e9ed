"""The whole engine samples from the target: frequencies of thousands of texts against probabilities written down.

Seeds are fixed, so nothing here fails by chance from run to run. The thresholds are such that a right engine with other
seeds would fail one of these comparisons less than once in a million tries: there are about 120 of them, each with
a chance below 1e-9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest
import torch
from torch import Tensor

from drafters.base import Commit, Draft, DraftRequest, Sampling, Verdict
from drafters.engine import runner as engine
from drafters.engine.lengths import FullLength, Rest
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RunningSequence
from drafters.sampling import pick
from drafters.verify import Rule
from tests.drafters.engine.sampled import (
    BUILD,
    DRAFTERS,
    DRAWN,
    PROMPT,
    SAMPLINGS,
    Made,
    chi_square,
    generate,
    tiny,
    total_variation,
    variation_bound,
)
from tests.drafters.rows import AnyLength

CHANCE = 1e-9
COUNT = 600
"""Sequences for each drafter and each of three samplings."""


def assert_drawn_from_the_target(made: Made) -> None:
    """Every drafter's texts, over all samplings together and each by itself."""
    for name, by_sampling in made.items():
        assert chi_square(by_sampling) > CHANCE, name
        for sampling, sequences in by_sampling.items():
            bound = variation_bound(len(sequences), sampling, CHANCE)
            assert total_variation(sequences, sampling) < bound, (name, sampling)


def assert_biased(made: Made) -> None:
    """Every drafter's texts show it beyond doubt, by the very comparison that those of a right engine pass."""
    for name, by_sampling in made.items():
        assert chi_square(by_sampling) < CHANCE, name


@cache
def everything() -> Made:
    """All drafters side by side in one engine: chains, trees, drawn and one-hot drafts in the same rounds."""
    return generate(DRAFTERS, COUNT)


@pytest.mark.parametrize("name", DRAFTERS)
def test_texts_are_drawn_from_the_target(name: str) -> None:
    """Each drafter's texts, made among those of all others, are distributed as the target's own; drafts are accepted
    and refused."""
    by_sampling = everything()[name]
    assert_drawn_from_the_target({name: by_sampling})
    rounds = [each for sequences in by_sampling.values() for sequence in sequences for each in sequence.rounds]
    drafted, accepted = sum(r.num_draft_tokens for r in rounds), sum(r.num_accepted_tokens for r in rounds)
    assert 0.03 < accepted / drafted < 0.7
    assert max(r.num_accepted_tokens for r in rounds) >= 2


def test_block_verification_draws_from_the_target_and_keeps_more() -> None:
    """The same texts in distribution, and more tokens a round than token by token."""
    made = generate(DRAWN, COUNT, rule="block")
    assert_drawn_from_the_target(made)

    def kept(texts: Made, name: str) -> int:
        return sum(s.rounds[0].num_accepted_tokens for sequences in texts[name].values() for s in sequences)

    singly = generate(DRAWN, COUNT)  # with the same seeds, so that the first drafts are the same
    assert all(kept(made, name) > kept(singly, name) for name in DRAWN)


def test_greedy_requests_among_sampled_ones_get_the_greedy_text() -> None:
    """In the same rounds, drafted for by the same drafters."""
    room = 600
    drafters = {name: BUILD[name](room) for name in ("draft_model", "eagle3 tree")}
    runner = Runner(tiny(0), room, drafters, 8, prefix_reuse=False)
    alone = runner.add(Request(PROMPT, 12))
    while runner.busy:
        runner.step()
    running = [
        runner.add(Request(PROMPT, 12, sampling=Sampling(heat), seed=seed, drafter=name))
        for seed, (heat, name) in enumerate(
            [(0.0, "draft_model"), (1.0, "draft_model"), (0.0, "eagle3 tree"), (1.0, None)]
        )
    ]
    while runner.busy:
        runner.step()
    assert running[0].output == running[2].output == alone.output
    assert running[1].output != alone.output


# --- dynamic lengths -----------------------------------------------------------------------------------------------


class ByText(FullLength):
    """A length that the committed tokens decide, and how the rounds before went."""

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """Sums, by their remainder."""
        return [
            min(bound, (sum(s.token_ids) + sum(r.num_accepted_tokens for r in s.rounds)) % 4)
            for s, bound in zip(sequences, bounds, strict=True)
        ]


@pytest.mark.parametrize("rule", ["standard", "block"])
@pytest.mark.parametrize("policy", [AnyLength(3), ByText()])
def test_lengths_chosen_before_the_draft_change_no_distribution(policy: FullLength, rule: Rule) -> None:
    """By the dice, or by what is committed and how it came about: the texts are the target's, copied prompts or not."""
    names = (*DRAWN, "eagle3 tree") if rule == "standard" else DRAWN
    made = generate(names, COUNT // 2, rule, dict.fromkeys(names, policy), batch=200, reuse=True)
    assert_drawn_from_the_target(made)
    assert made["draft_model"][SAMPLINGS[0]][-1].cached_tokens > 0
    lengths = {sequence.rounds[0].num_draft_tokens for sequence in made["draft_model"][SAMPLINGS[0]]}
    assert lengths == {0, 1, 2, 3}


class Cutting:
    """The draft model's chains, ended before the first token for which ``keep`` of its row and itself is false."""

    feature_layers: tuple[int, ...] = ()
    tree = False
    max_nodes = 3

    def __init__(self, keep: Callable[[Tensor, int], bool], with_probs: bool = True) -> None:
        self._inner = BUILD["draft_model"](8000)
        self._keep = keep
        self._with_probs = with_probs

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Draft and cut."""
        cut = []
        for draft in self._inner.propose(requests):
            length = 0
            while length < len(draft):
                assert draft.probs is not None
                if not self._keep(draft.probs[length], draft.token_ids[length]):
                    break
                length += 1
            left = draft.truncated(length)
            cut.append(left if self._with_probs else Draft(left.token_ids))
        return cut

    def open(self, sequence_id: int, max_length: int) -> None:
        """Pass it on."""
        self._inner.open(sequence_id, max_length)

    def commit(self, commits: Sequence[Commit]) -> None:
        """Pass it on."""
        self._inner.commit(commits)

    def release(self, sequence_id: int) -> None:
        """Pass it on."""
        self._inner.release(sequence_id)


def own_probability(row: Tensor, token: int) -> bool:
    """A minimum on the drawn token's own probability: it looks at the draw."""
    return float(row[token]) >= 0.3


def best_probability(row: Tensor, token: int) -> bool:
    """A minimum on the row's best: known before the draw."""
    return float(row.max()) >= 0.5


@pytest.mark.parametrize("rule", ["standard", "block"])
def test_a_cut_that_looks_at_the_drawn_token_is_caught(rule: Rule) -> None:
    """Withholding drawn tokens for being improbable skews the texts; the same cut on the row, or on a token that is
    verified as one-hot, does not."""
    drafters = {
        "own": Cutting(own_probability),
        "best": Cutting(best_probability),
        "one-hot": Cutting(own_probability, with_probs=False),
    }
    made = generate(drafters, COUNT, rule)
    assert_biased({"own": made.pop("own")})
    assert_drawn_from_the_target(made)


# --- rules that are wrong ------------------------------------------------------------------------------------------


def accept_all(
    target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[float]], rule: Rule
) -> list[Verdict]:
    """Wrong: whatever is drafted stands."""
    verdicts = []
    for rows, draft, values in zip(torch.split(target, [len(d) + 1 for d in drafts]), drafts, uniforms, strict=True):
        added = pick(rows[-1:], torch.tensor([values[-1]]))
        verdicts.append(Verdict(tuple(range(len(draft))), int(added)))
    return verdicts


def replace_from_the_target(
    target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[float]], rule: Rule
) -> list[Verdict]:
    """Wrong: a refused token is replaced from the target, without what the draft had."""
    verdicts = []
    for rows, draft, values in zip(torch.split(target, [len(d) + 1 for d in drafts]), drafts, uniforms, strict=True):
        kept = 0
        for token, row, value in zip(draft.token_ids, rows, values, strict=False):
            drawn_with = 1.0 if draft.probs is None else float(draft.probs[kept, token])
            if value >= float(row[token]) / drawn_with:
                break
            kept += 1
        added = pick(rows[kept : kept + 1], torch.tensor([values[min(kept + 1, len(draft))]]))
        verdicts.append(Verdict(tuple(range(kept)), int(added)))
    return verdicts


@pytest.mark.parametrize("wrong", [accept_all, replace_from_the_target])
def test_a_wrong_rule_in_the_engine_is_caught(
    wrong: Callable[..., list[Verdict]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many texts as a right rule passes with, or fewer, drawn and one-hot drafts alike."""
    monkeypatch.setattr(engine, "verify_sampled_batch", wrong)
    assert_biased(generate(("draft_model", "dflash2", "dflash"), COUNT // 2))
