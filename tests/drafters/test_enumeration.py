"""Exact distributions of the verified process: every branch of chance is followed and weighted, nothing is sampled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor

from drafters.base import Draft, Verdict
from drafters.sampling import Draw, distribution
from drafters.verify import acceptance_ratio, verify_block, verify_sampled
from tests.drafters.enumeration import EXACT, outcomes
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
    siblings_with_a_stale_row,
    target_rows,
    with_replacement,
    without_replacement,
)

Rule = Callable[[Tensor, Draft, Draw], Verdict]

BIASED = 1e-3  # what a wrong rule errs by at least, nine orders of magnitude above rounding


def one_round(prefix: Prefix, target: Language, drafter: Drafter, rule: Rule, draw: Draw) -> Prefix:
    """Draft, verify, and return the tokens the round committed."""
    draft = drafter(prefix, draw)
    return committed(draft, rule(target_rows(target, prefix, draft), draft, draw))


def continued(target: Language, drafter: Drafter, rule: Rule, length: int) -> dict[Prefix, float]:
    """The joint distribution of the first ``length`` tokens when rounds go on until they are out.

    A round depends on the committed prefix alone, so each prefix is enumerated once and the rounds are chained.
    """
    reached: list[dict[Prefix, float]] = [defaultdict(float) for _ in range(length + 1)]
    reached[0][()] = 1.0
    for done in range(length):
        for prefix, weight in reached[done].items():
            for tokens, probability in outcomes(
                lambda draw, prefix=prefix: one_round(prefix, target, drafter, rule, draw)  # type: ignore[misc]
            ).items():
                sequence = (*prefix, *tokens)[:length]
                reached[len(sequence)][sequence] += weight * probability
    return reached[length]


def distance(target: Language, drafter: Drafter, rule: Rule, length: int) -> float:
    """The largest difference between the process's joint distribution and the target's."""
    return gap(target, continued(target, drafter, rule, length), length)


@pytest.mark.parametrize("supports", SUPPORTS)
@pytest.mark.parametrize(("vocab", "k", "length"), [(3, 3, 5), (4, 2, 4), (8, 1, 3), (8, 2, 2)])
@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_drawn_chains_give_the_target_joint(rule: Rule, vocab: int, k: int, length: int, supports: str) -> None:
    """A chain drawn from any distribution leaves the joint distribution of the output as the target's, exactly."""
    target, source = languages(vocab, supports, seed=1)
    assert distance(target, drawn_chain(source, k), rule, length) < EXACT


@pytest.mark.parametrize("supports", SUPPORTS)
@pytest.mark.parametrize("vocab", [5, 8])
@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_a_round_of_three_drawn_tokens_and_the_target_after_it(rule: Rule, vocab: int, supports: str) -> None:
    """All four tokens that such a round can give, jointly; where it gives fewer the target goes on by itself."""
    target, source = languages(vocab, supports, seed=8)
    drafter = drawn_chain(source, 3)
    rounds = outcomes(lambda draw: one_round((), target, drafter, rule, draw))
    assert gap(target, completed(target, rounds.items(), 4), 4) < EXACT


@pytest.mark.parametrize("supports", SUPPORTS)
@pytest.mark.parametrize(("vocab", "k", "length"), [(3, 3, 5), (8, 3, 3)])
@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_chains_without_chance_give_the_target_joint(
    rule: Rule, vocab: int, k: int, length: int, supports: str
) -> None:
    """A one-hot chain is exact too, also where the target gives its token no probability."""
    target, source = languages(vocab, supports, seed=2)
    assert distance(target, likeliest_chain(source, k), rule, length) < EXACT


@pytest.mark.parametrize("supports", SUPPORTS)
@pytest.mark.parametrize(("vocab", "length"), [(3, 4), (5, 2)])
@pytest.mark.parametrize("drafter", [without_replacement, with_replacement, likeliest_tree])
def test_trees_give_the_target_joint(
    drafter: Callable[[Language], Drafter], vocab: int, length: int, supports: str
) -> None:
    """Multi-round rejection over siblings is exact, drawn with or without replacement or picked without chance."""
    target, source = languages(vocab, supports, seed=3)
    assert distance(target, drafter(source), verify_sampled, length) < EXACT


def test_equal_target_and_drafter_accept_everything() -> None:
    """When both distributions are the same, every drafted token is kept and the residual is never needed."""
    target = Language(4, seed=4)

    def accepted(draw: Draw) -> int:
        draft = drawn_chain(target, 3)((), draw)
        rows = torch.stack([target.after(draft.token_ids[:i]) for i in range(4)])
        return len(verify_sampled(rows, draft, draw).path)

    assert outcomes(accepted) == pytest.approx({3: 1.0})


def test_rounds_in_one_run_agree_with_rounds_chained_by_prefix() -> None:
    """Following all rounds of the process in one run gives the distribution that chaining enumerated rounds gives."""
    target, source = languages(3, "zeros", seed=5)
    drafter = drawn_chain(source, 2)

    def run(draw: Draw) -> Prefix:
        out: Prefix = ()
        while len(out) < 3:
            out += one_round(out, target, drafter, verify_sampled, draw)
        return out[:3]

    assert outcomes(run) == pytest.approx(continued(target, drafter, verify_sampled, 3), abs=EXACT)


# --- acceptance: known answers -------------------------------------------------------------------------------------


def mean_accepted(rule: Rule, target_row: Sequence[float], draft_row: Sequence[float], k: int) -> float:
    """The expected number of accepted tokens when every position has the same two distributions."""
    target = torch.tensor([target_row] * (k + 1), dtype=torch.float64)
    source = torch.tensor(draft_row, dtype=torch.float64)

    def accepted(draw: Draw) -> int:
        draft = Draft(tuple(draw.choose(source) for _ in range(k)), torch.stack([source] * k))
        return len(rule(target, draft, draw).path)

    return sum(count * weight for count, weight in outcomes(accepted).items())


def test_acceptance_is_the_overlap_of_both_distributions() -> None:
    """Target (.5 .3 .2) and drafter (.2 .3 .5) overlap in .2 + .3 + .2 = .7, which is how often a token is kept."""
    assert mean_accepted(verify_sampled, (0.5, 0.3, 0.2), (0.2, 0.3, 0.5), 1) == pytest.approx(0.7)


def test_block_verification_keeps_eleven_ninths_where_token_by_token_keeps_ten() -> None:
    """The worked example of the block verification paper: target (1/3, 2/3), drafter (2/3, 1/3), two tokens."""
    target, source = (1 / 3, 2 / 3), (2 / 3, 1 / 3)
    assert mean_accepted(verify_sampled, target, source, 2) == pytest.approx(10 / 9)
    assert mean_accepted(verify_block, target, source, 2) == pytest.approx(11 / 9)


def kept(target: Language, drafter: Drafter, rule: Rule) -> float:
    """The expected number of tokens of the first draft that are accepted."""

    def accepted(draw: Draw) -> int:
        draft = drafter((), draw)
        return len(rule(target_rows(target, (), draft), draft, draw).path)

    return sum(count * weight for count, weight in outcomes(accepted).items())


@pytest.mark.parametrize("supports", SUPPORTS)
def test_block_verification_never_keeps_fewer_tokens(supports: str) -> None:
    """One token: the same number. Two and three: at least as many for each of twelve pairs of tables, more for some."""
    more = 0
    for seed in range(20, 32):
        target, source = languages(4, supports, seed)
        single = drawn_chain(source, 1)
        assert kept(target, single, verify_block) == pytest.approx(kept(target, single, verify_sampled), abs=EXACT)
        for k in (2, 3):
            gain = kept(target, drawn_chain(source, k), verify_block) - kept(
                target, drawn_chain(source, k), verify_sampled
            )
            assert gain > -EXACT
            more += gain > BIASED
    assert more > 0


def test_block_verification_of_a_chain_without_chance_is_the_standard_rule() -> None:
    """The same verdicts with the same weights, though the uniforms are asked in another order."""
    target, source = languages(5, "zeros", seed=2)

    def verdicts(rule: Rule) -> dict[Verdict, float]:
        draft = likeliest_chain(source, 3)((), None)  # type: ignore[arg-type]  # asks for no chance
        return outcomes(lambda draw: rule(target_rows(target, (), draft), draft, draw))

    standard = verdicts(verify_sampled)
    assert len(standard) > 6
    assert verdicts(verify_block) == pytest.approx(standard, abs=EXACT)


# --- the same test must fail for rules that are wrong --------------------------------------------------------------


def resampling_from_the_target(target: Tensor, draft: Draft, draw: Draw) -> Verdict:
    """Wrong: after a rejection the token is drawn from the target instead of from the residual."""
    assert draft.probs is not None
    path: list[int] = []
    for i, token in enumerate(draft.token_ids):
        if not draw.accept(float(target[i, token] / draft.probs[i, token])):
            break
        path.append(i)
    return Verdict(tuple(path), draw.choose(target[len(path)]))


def with_another_temperature(target: Tensor, draft: Draft, draw: Draw) -> Verdict:
    """Wrong: the drafter's distribution is recomputed, at another temperature than it was drawn at."""
    assert draft.probs is not None
    return verify_sampled(target, Draft(draft.token_ids, distribution(draft.probs.log(), 2.0)), draw)


@pytest.mark.parametrize("rule", [resampling_from_the_target, with_another_temperature])
def test_biased_chain_rules_are_caught(rule: Rule) -> None:
    """Resampling from the target, or a recomputed draft distribution, changes the joint by far more than rounding."""
    target, source = languages(4, "zeros", seed=1)
    assert distance(target, drawn_chain(source, 2), rule, 3) > BIASED


def wrong_block(residual_of_the_token: bool, target: Tensor, draft: Draft, draw: Draw) -> Verdict:
    """Wrong: block verification that replaces from max(0, t - d), as the standard rule does, or that accepts a prefix
    with its r instead of its h.
    """
    assert draft.probs is not None
    length, r = len(draft), [1.0]
    for i, token in enumerate(draft.token_ids):
        r.append(min(1.0, acceptance_ratio(r[-1] * float(target[i, token]), float(draft.probs[i, token]), token)))
    for i in range(length, -1, -1):
        if i == length:
            judged, rest = r[i], target[i]
        else:
            rest = (r[i] * target[i] - draft.probs[i]).clamp(min=0)
            mass = float(rest.sum())
            judged = mass / (mass + 1 - r[i]) if mass > 0 else 0.0
            if residual_of_the_token:
                rest = (target[i] - draft.probs[i]).clamp(min=0)
            else:
                judged = r[i]
            rest = rest if float(rest.sum()) > 0 else target[i]
        if i == 0 or draw.accept(judged):
            break
    return Verdict(tuple(range(i)), draw.choose(rest))


@pytest.mark.parametrize("residual_of_the_token", [True, False])
def test_biased_block_rules_are_caught(residual_of_the_token: bool) -> None:
    """Two ways to get block verification wrong, each of which changes the joint by far more than rounding."""
    target, source = languages(4, "zeros", seed=5)
    assert distance(target, drawn_chain(source, 2), partial(wrong_block, residual_of_the_token), 3) > BIASED


def test_siblings_without_an_updated_row_are_caught() -> None:
    """Siblings drawn without replacement but verified with the first one's distribution change the joint."""
    target, source = languages(4, "zeros", seed=3)
    assert distance(target, siblings_with_a_stale_row(source), verify_sampled, 2) > BIASED
    assert distance(target, without_replacement(source), verify_sampled, 2) < EXACT


# --- dynamic k -----------------------------------------------------------------------------------------------------


def above(minimum: float) -> Callable[[Tensor, int], bool]:
    """A cut on the drawn token's own probability."""
    return lambda row, token: float(row[token]) >= minimum


def peaked(minimum: float) -> Callable[[Tensor, int], bool]:
    """A cut on the largest probability of the row, known before the token is drawn."""
    return lambda row, token: float(row.max()) >= minimum


@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_cut_on_the_drawn_tokens_own_probability_is_biased(rule: Rule) -> None:
    """Withholding a drawn token because it was improbable changes the joint: the kept ones are no longer drawn from
    the row that verification divides by.
    """
    target, source = languages(4, "zeros", seed=6)
    assert distance(target, cut_chain(source, 2, above(0.4)), rule, 3) > BIASED


@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_cut_known_before_the_draw_is_exact(rule: Rule) -> None:
    """A minimum on the row's largest probability ends the chain in other places and leaves the joint as it is."""
    target, source = languages(4, "zeros", seed=6)
    rows = [source.after(prefix) for prefix in [(), (0,), (1,), (2,), (3,)]]
    assert {bool(row.max() >= 0.6) for row in rows} == {True, False}  # the cut does happen, and not always
    assert distance(target, cut_chain(source, 2, peaked(0.6)), rule, 3) < EXACT


@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_stopping_after_an_improbable_token_is_exact(rule: Rule) -> None:
    """The improbable token itself is submitted and only the next one withheld: that rests on drafts before it."""
    target, source = languages(4, "zeros", seed=6)

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: Prefix = ()
        rows: list[Tensor] = []
        while len(tokens) < 3 and (not rows or float(rows[-1][tokens[-1]]) >= 0.4):
            rows.append(source.after(prefix + tokens))
            tokens = (*tokens, draw.choose(rows[-1]))
        return Draft(tokens, torch.stack(rows))

    assert distance(target, draft, rule, 3) < EXACT


@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_one_hot_verification_frees_the_cut(rule: Rule) -> None:
    """The cut that is biased for a drawn token is exact once the same token is verified as one-hot."""
    target, source = languages(4, "zeros", seed=6)
    drafter = cut_chain(source, 2, above(0.4), keep_probs=False)
    assert distance(target, drafter, rule, 3) < EXACT
