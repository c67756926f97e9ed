"""Exact distributions of the verified process: every branch of chance is followed and weighted, nothing is sampled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from drafters.base import Draft, Verdict
from drafters.sampling import Draw, distribution, draw_siblings
from drafters.verify import verify_block, verify_sampled
from tests.drafters.enumeration import EXACT, Language, Prefix, outcomes

Drafter = Callable[[Prefix, Draw], Draft]
Rule = Callable[[Tensor, Draft, Draw], Verdict]

BIASED = 1e-3  # what a wrong rule errs by at least, nine orders of magnitude above rounding


def one_round(prefix: Prefix, target: Language, drafter: Drafter, rule: Rule, draw: Draw) -> Prefix:
    """Draft, verify, and return the tokens the round committed."""
    draft = drafter(prefix, draw)
    tokens, parents = draft.token_ids, draft.parents or tuple(range(-1, len(draft.token_ids) - 1))
    paths: list[Prefix] = [prefix]
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*paths[parent + 1], token))
    verdict = rule(torch.stack([target.after(path) for path in paths]), draft, draw)
    return (*(tokens[i] for i in verdict.path), verdict.next_token_id)


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
    wanted, got = target.joint(length), continued(target, drafter, rule, length)
    assert set(got) <= set(wanted)
    return max(abs(weight - got.get(sequence, 0.0)) for sequence, weight in wanted.items())


# --- drafters: each takes the drafter's own table and a size -------------------------------------------------------


def drawn_chain(source: Language, k: int) -> Drafter:
    """K tokens, each drawn from the drafter's distribution."""

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: Prefix = ()
        for _ in range(k):
            tokens = (*tokens, draw.choose(source.after(prefix + tokens)))
        return Draft(tokens, torch.stack([source.after(prefix + tokens[:i]) for i in range(k)]))

    return draft


def likeliest_chain(source: Language, k: int) -> Drafter:
    """K tokens without chance, verified as one-hot."""

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: Prefix = ()
        for _ in range(k):
            tokens = (*tokens, int(source.after(prefix + tokens).argmax()))
        return Draft(tokens)

    return draft


def tree(children: Callable[[Tensor, int, Draw], tuple[Sequence[int], Tensor | None]], source: Language) -> Drafter:
    """A root with two children, of which the first has two and the second one child."""

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        rows: list[Tensor] = []
        paths: list[Prefix] = [prefix]
        for node, width in ((-1, 2), (0, 2), (1, 1)):
            if node >= len(tokens):
                continue
            ids, probs = children(source.after(paths[node + 1]), width, draw)
            for i, token in enumerate(ids):
                tokens.append(token)
                parents.append(node)
                paths.append((*paths[node + 1], token))
                if probs is not None:
                    rows.append(probs[i])
        return Draft(tuple(tokens), torch.stack(rows) if rows else None, tuple(parents))

    return draft


def without_replacement(source: Language) -> Drafter:
    """Distinct drawn siblings, each with the distribution it was drawn from."""
    return tree(draw_siblings, source)


def with_replacement(source: Language) -> Drafter:
    """Siblings drawn independently, possibly equal."""

    def children(row: Tensor, width: int, draw: Draw) -> tuple[Sequence[int], Tensor]:
        return [draw.choose(row) for _ in range(width)], torch.stack([row] * width)

    return tree(children, source)


def likeliest_tree(source: Language) -> Drafter:
    """The most probable tokens as siblings, without chance."""
    return tree(lambda row, width, draw: (row.topk(width).indices.tolist(), None), source)


def siblings_with_a_stale_row(source: Language) -> Drafter:
    """Distinct drawn siblings, but each with the distribution of the first."""

    def children(row: Tensor, width: int, draw: Draw) -> tuple[Sequence[int], Tensor]:
        ids, _ = draw_siblings(row, width, draw)
        return ids, torch.stack([row] * len(ids))

    return tree(children, source)


def cut_chain(source: Language, k: int, keep: Callable[[Tensor, int], bool], keep_probs: bool = True) -> Drafter:
    """A drawn chain that ends before the first token for which ``keep(row, token)`` is false."""

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: Prefix = ()
        rows: list[Tensor] = []
        while len(tokens) < k:
            row = source.after(prefix + tokens)
            token = draw.choose(row)
            if not keep(row, token):
                break
            tokens = (*tokens, token)
            rows.append(row)
        return Draft(tokens, torch.stack(rows) if rows and keep_probs else None)

    return draft


def languages(vocab: int, supports: str, seed: int) -> tuple[Language, Language]:
    """The target's table and the drafter's, whose zero-probability tokens differ in every case."""
    if supports == "zeros":
        return Language(vocab, seed), Language(vocab, seed + 1)
    if supports == "filtered":
        return (
            Language(vocab, seed, temperature=0.8, top_p=0.85),
            Language(vocab, seed + 1, temperature=1.6, top_k=max(2, vocab // 2)),
        )
    return (  # the target keeps less than the drafter
        Language(vocab, seed, temperature=1.2, top_k=2),
        Language(vocab, seed + 1, temperature=2.0, top_p=0.95),
    )


SUPPORTS = ("zeros", "filtered", "narrow-target")


@pytest.mark.parametrize("supports", SUPPORTS)
@pytest.mark.parametrize(("vocab", "k", "length"), [(3, 3, 5), (4, 2, 4), (8, 1, 3), (8, 2, 2)])
@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_drawn_chains_give_the_target_joint(rule: Rule, vocab: int, k: int, length: int, supports: str) -> None:
    """A chain drawn from any distribution leaves the joint distribution of the output as the target's, exactly."""
    target, source = languages(vocab, supports, seed=1)
    assert distance(target, drawn_chain(source, k), rule, length) < EXACT


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


def test_stopping_after_an_improbable_token_is_exact() -> None:
    """The improbable token itself is submitted and only the next one withheld: that rests on drafts before it."""
    target, source = languages(4, "zeros", seed=6)

    def draft(prefix: Prefix, draw: Draw) -> Draft:
        tokens: Prefix = ()
        rows: list[Tensor] = []
        while len(tokens) < 3 and (not rows or float(rows[-1][tokens[-1]]) >= 0.4):
            rows.append(source.after(prefix + tokens))
            tokens = (*tokens, draw.choose(rows[-1]))
        return Draft(tokens, torch.stack(rows))

    assert distance(target, draft, verify_sampled, 3) < EXACT


@pytest.mark.parametrize("rule", [verify_sampled, verify_block])
def test_one_hot_verification_frees_the_cut(rule: Rule) -> None:
    """The cut that is biased for a drawn token is exact once the same token is verified as one-hot."""
    target, source = languages(4, "zeros", seed=6)
    drafter = cut_chain(source, 2, above(0.4), keep_probs=False)
    assert distance(target, drafter, rule, 3) < EXACT
