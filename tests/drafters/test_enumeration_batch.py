"""The batch's own code under exact enumeration: every comparison is followed both ways, every added token weighted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.base import Draft, Verdict
from drafters.sampling import Draw, UniformDraw, distribution
from drafters.verify import Rule, verify_sampled
from drafters.verify_batch import verify_sampled_batch
from tests.drafters.enumeration import EXACT, BatchRule, batch_outcomes, outcomes
from tests.drafters.tables import (
    SUPPORTS,
    Drafter,
    Language,
    Prefix,
    committed,
    completed,
    cut_chain,
    drawn_chain,
    gap,
    languages,
    likeliest_chain,
    likeliest_tree,
    target_rows,
    without_replacement,
)

BIASED = 1e-3
RULES: tuple[Rule, ...] = ("standard", "block")


def drafts_of(drafter: Drafter) -> list[tuple[Draft, float]]:
    """Every draft that can come, with its probability."""
    made: list[Draft] = []

    def draft(draw: Draw) -> int:
        made.append(drafter((), draw))
        return len(made) - 1

    weights = outcomes(draft)
    return [(draft, weights[number]) for number, draft in enumerate(made)]


def gaps(target: Language, drafters: Sequence[Drafter], verify: BatchRule, length: int) -> list[float]:
    """For each drafter how far a round's joint distribution is from the target's; all drafts of all in one batch."""
    parts = [drafts_of(drafter) for drafter in drafters]
    order = [(number, place) for number, part in enumerate(parts) for place in range(len(part))]
    random.Random(0).shuffle(order)  # neighbours of every kind
    drafts = [parts[number][place][0] for number, place in order]
    verdicts = batch_outcomes([(target_rows(target, (), draft), draft) for draft in drafts], verify)
    rounds: list[list[tuple[Prefix, float]]] = [[] for _ in drafters]
    for (number, place), draft, distribution_of_it in zip(order, drafts, verdicts, strict=True):
        weight = parts[number][place][1]
        rounds[number] += [(committed(draft, verdict), weight * p) for verdict, p in distribution_of_it.items()]
    return [gap(target, completed(target, part, length), length) for part in rounds]


def nothing(prefix: Prefix, draw: Draw) -> Draft:
    """A draft of no tokens."""
    return Draft(())


@pytest.mark.parametrize("supports", SUPPORTS)
@pytest.mark.parametrize(("vocab", "k"), [(8, 1), (8, 2), (4, 3)])
@pytest.mark.parametrize("rule", RULES)
def test_mixed_batches_give_the_target_joint(rule: Rule, vocab: int, k: int, supports: str) -> None:
    """Drawn, one-hot and empty drafts and drafts cut before the draw stand in one batch, and each gives the target's
    joint."""
    target, source = languages(vocab, supports, seed=30)
    cut = cut_chain(source, k, lambda row, token: float(row.max()) >= 0.6)
    drafters = [drawn_chain(source, k), likeliest_chain(source, k), nothing, cut]
    assert max(gaps(target, drafters, partial(verify_sampled_batch, rule=rule), k + 1)) < EXACT


@pytest.mark.parametrize("rule", RULES)
def test_trees_among_chains_give_the_target_joint(rule: Rule) -> None:
    """Trees, drawn and one-hot, keep the standard rule beside chains under either."""
    target, source = languages(3, "zeros", seed=31)
    drafters = [without_replacement(source), drawn_chain(source, 2), likeliest_tree(source), likeliest_chain(source, 2)]
    assert max(gaps(target, drafters, partial(verify_sampled_batch, rule=rule), 4)) < EXACT


def one_by_one(rule: Callable[[Tensor, Draft, Draw], Verdict]) -> BatchRule:
    """A rule for one sequence in the batch's clothes."""

    def verify(target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[Any]]) -> list[Verdict]:
        parts = torch.split(target, [len(draft) + 1 for draft in drafts])
        return [rule(part, draft, UniformDraw(iter(u))) for part, draft, u in zip(parts, drafts, uniforms, strict=True)]

    return verify


def with_another_temperature(
    rule: Rule, target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[Any]]
) -> list[Verdict]:
    """Wrong: the drafter's distribution is recomputed at another temperature than it was drawn at."""
    changed = [
        draft if draft.probs is None else Draft(draft.token_ids, distribution(draft.probs.log(), 2.0))
        for draft in drafts
    ]
    return verify_sampled_batch(target, changed, uniforms, rule)


def accepting_everything(target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[Any]]) -> list[Verdict]:
    """Wrong: whatever is drafted stands."""
    return one_by_one(lambda rows, draft, draw: Verdict(tuple(range(len(draft))), draw.choose(rows[-1])))(
        target, drafts, uniforms
    )


def test_biased_batches_are_caught() -> None:
    """The same comparison shows a recomputed draft distribution under either rule, and a rule that accepts all; the
    empty draft, at which nothing can go wrong, stays right."""
    target, source = languages(4, "zeros", seed=1)
    wrong: list[BatchRule] = [partial(with_another_temperature, rule) for rule in RULES]
    for verify in [*wrong, accepting_everything]:
        biased, empty = gaps(target, [drawn_chain(source, 2), nothing], verify, 3)
        assert biased > BIASED
        assert empty < EXACT


def test_one_uniform_for_two_questions_is_caught() -> None:
    """The enumeration refuses a rule that reads the same uniform twice: its answers are not independent."""

    def stingy(target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[Any]]) -> list[Verdict]:
        return verify_sampled_batch(target, drafts, [[u[0]] * len(u) for u in uniforms])

    target, source = languages(4, "zeros", seed=1)
    with pytest.raises(AssertionError):
        gaps(target, [drawn_chain(source, 1)], stingy, 2)


@pytest.mark.parametrize("rule", RULES)
def test_batch_and_single_rule_have_the_same_distribution_of_verdicts(rule: Rule) -> None:
    """Found by two different ways of following chance: branches of the draw there, comparisons and steps here."""
    target, source = languages(4, "filtered", seed=32)
    drafts = [draft for draft, _ in drafts_of(drawn_chain(source, 3))]
    rows = [target_rows(target, (), draft) for draft in drafts]
    batch = batch_outcomes(list(zip(rows, drafts, strict=True)), partial(verify_sampled_batch, rule=rule))
    for part, draft, verdicts in zip(rows, drafts, batch, strict=True):
        singly = outcomes(lambda draw, part=part, draft=draft: verify_sampled(part, draft, draw, rule))  # type: ignore[misc]
        assert verdicts == pytest.approx(singly, abs=EXACT)
