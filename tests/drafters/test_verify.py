"""Single verdicts with known answers, the batch against one at a time, and what holds of every verdict."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from drafters.base import Draft, Verdict
from drafters.sampling import UniformDraw, distribution, round_uniforms
from drafters.verify import Rule, verify_block, verify_greedy, verify_sampled
from drafters.verify_batch import verify_greedy_batch, verify_sampled_batch


def rows(*values: Sequence[float]) -> Tensor:
    """Written-out rows [n, vocab]."""
    return torch.tensor(values, dtype=torch.float64)


def one_hot(vocab: int, *tokens: int) -> Tensor:
    """A row per token with all mass on it."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), vocab).double()


def uniforms(*values: float) -> UniformDraw:
    """A draw that reads these uniforms and no more."""
    return UniformDraw(iter(values))


def parts(stacked: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """The rows of each sequence out of the rows of all."""
    ends = list(itertools.accumulate(lengths))
    return [stacked[end - length : end] for end, length in zip(ends, lengths, strict=True)]


# --- greedy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "verdict"),
    [
        ((), Verdict((), 3)),
        ((3, 1, 4), Verdict((0, 1, 2), 2)),
        ((3, 1, 0), Verdict((0, 1), 4)),
        ((3, 0, 4), Verdict((0,), 1)),
        ((0, 1, 4), Verdict((), 3)),
    ],
)
def test_greedy_chain_keeps_the_prefix_the_target_would_have_written(tokens: tuple[int, ...], verdict: Verdict) -> None:
    """The target writes 3 1 4 2: drafted tokens are kept up to the first other one, whose place its own token takes."""
    best = (3, 1, 4, 2)[: len(tokens) + 1]
    assert verify_greedy(one_hot(5, *best), Draft(tokens)) == verdict


def test_greedy_tie_goes_to_the_lowest_id() -> None:
    """Of equal logits the lowest id counts as the argmax, so a draft of the other one is refused."""
    assert verify_greedy(rows((1, 7, 7), (0, 0, 5)), Draft((2,))) == Verdict((), 1)


def test_greedy_tree_follows_the_branch_the_target_would_have_written() -> None:
    """Root children 5 and 1; below 1 the children 2 and 4; the target writes 1 4 3 and the path names nodes 1 and 3."""
    draft = Draft((5, 1, 2, 4), parents=(-1, -1, 1, 1))
    target = one_hot(6, 1, 0, 4, 0, 3)
    assert verify_greedy(target, draft) == Verdict((1, 3), 3)


def test_forced_draft_is_accepted_unseen() -> None:
    """A cost experiment with two forced tokens keeps two, though the target disagrees with both."""
    draft = Draft((4, 4, 4), forced=2)
    target = one_hot(5, 0, 1, 2, 3)
    wanted = Verdict((0, 1), 2)
    assert verify_greedy(target, draft) == wanted
    assert verify_sampled(target, draft, uniforms(0.9)) == wanted
    assert verify_block(target, draft, uniforms(0.9)) == wanted
    assert verify_sampled_batch(target, [draft], [[0.9] * 4]) == [wanted]


# --- sampled -------------------------------------------------------------------------------------------------------


def test_token_is_kept_below_the_ratio_of_both_probabilities() -> None:
    """Target .3 over draft .6 keeps the token at a uniform of .49 and refuses it at .51."""
    draft = Draft((0,), rows((0.6, 0.4)))
    target = rows((0.3, 0.7), (0.5, 0.5))
    assert verify_sampled(target, draft, uniforms(0.49, 0.6)) == Verdict((0,), 1)
    assert verify_sampled(target, draft, uniforms(0.51, 0.6)) == Verdict((), 1)


def test_refused_token_is_replaced_from_what_the_draft_lacks() -> None:
    """Target (.2 .4 .4) minus draft (.6 .4 0) leaves only token 2, at any uniform."""
    draft = Draft((0,), rows((0.6, 0.4, 0.0)))
    target = rows((0.2, 0.4, 0.4), (1, 0, 0))
    for uniform in (0.0, 0.5, 0.999):
        assert verify_sampled(target, draft, uniforms(0.9, uniform)) == Verdict((), 2)


def test_residual_without_mass_falls_back_to_the_target() -> None:
    """A target row that sums to a little less than the draft's leaves no residual: the target's own row is drawn
    from."""
    draft = Draft((1,), rows((0.5, 0.5)))
    target = rows((0.5, 0.4999), (1, 0))
    assert verify_sampled(target, draft, uniforms(0.9999, 0.25)) == Verdict((), 0)
    assert verify_sampled_batch(target, [draft], [[0.9999, 0.25]]) == [Verdict((), 0)]
    assert verify_block(target, draft, uniforms(0.9999, 0.25)) == Verdict((), 0)


def test_second_sibling_is_judged_by_what_the_first_left() -> None:
    """One-hot children 0 and 1 of (.5 .25 .25): after 0 is refused, 1 has half of the rest, and after both 2 has
    all."""
    draft = Draft((0, 1), parents=(-1, -1))
    target = rows((0.5, 0.25, 0.25), (1, 0, 0), (0, 0, 1))
    assert verify_sampled(target, draft, uniforms(0.5, 0.49, 0.0)) == Verdict((1,), 2)
    assert verify_sampled(target, draft, uniforms(0.5, 0.51, 0.0)) == Verdict((), 2)


def test_sampling_at_temperature_zero_is_greedy() -> None:
    """With all of the target's mass on one token a row, the sampled rules give the greedy verdict at any uniform."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        logits = torch.randn(4, 3, generator=generator)
        source = distribution(torch.randn(3, 3, generator=generator))
        draft = Draft(tuple(torch.multinomial(source, 1, generator=generator).squeeze(1).tolist()), source)
        target = distribution(logits, temperature=0)
        wanted = verify_greedy(logits, draft)
        assert verify_sampled(target, draft, UniformDraw(iter(round_uniforms(generator, 3)))) == wanted
        assert verify_block(target, draft, UniformDraw(iter(round_uniforms(generator, 3)))) == wanted


def test_block_of_a_tree_is_refused() -> None:
    """Block verification is defined for chains; a tree gives an error that names the other rule, a written-out chain
    not."""
    with pytest.raises(ValueError, match="verify_sampled"):
        verify_block(rows((1, 0), (1, 0), (1, 0)), Draft((0, 1), parents=(-1, -1)), uniforms(0.5))
    chain = Draft((0, 1), parents=(-1, 0))
    assert verify_block(one_hot(2, 0, 1, 0), chain, uniforms(0.5, 0.5)) == Verdict((0, 1), 0)


def test_token_its_own_row_excludes_is_refused() -> None:
    """A drafted token with probability 0 in its own row shows that the row is not what it was drawn from."""
    draft = Draft((1,), rows((1.0, 0.0)))
    target = rows((0.5, 0.5), (0.5, 0.5))
    with pytest.raises(ValueError, match="draft token 1"):
        verify_sampled(target, draft, uniforms(0.5, 0.5))
    with pytest.raises(ValueError, match="draft token 1"):
        verify_sampled_batch(target, [draft], [[0.5, 0.5]])


def test_wrong_number_of_rows_is_refused() -> None:
    """Two drafted tokens need three target rows, and draft rows as wide as the target's."""
    with pytest.raises(ValueError, match=r"\[3, vocab\]"):
        verify_greedy(rows((1, 0), (1, 0)), Draft((0, 1)))
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        verify_sampled(rows((1, 0), (1, 0)), Draft((0,), rows((1, 0, 0))), uniforms(0.5))
    with pytest.raises(ValueError, match="round_uniforms"):
        verify_sampled_batch(rows((1, 0), (1, 0)), [Draft((0,))], [[0.5]])


# --- the batch -----------------------------------------------------------------------------------------------------


def random_draft(generator: torch.Generator, vocab: int, shape: str, dtype: torch.dtype = torch.float32) -> Draft:
    """A draft of 0 to 5 nodes: one-hot or drawn, a chain or a random tree."""
    length = int(torch.randint(0, 6, (), generator=generator))
    source = distribution(torch.randn(length, vocab, generator=generator, dtype=dtype), 1.0, top_k=max(2, vocab // 2))
    tokens: list[int] = torch.multinomial(source, 1, generator=generator).squeeze(1).tolist() if length else []
    parents = tuple(int(torch.randint(-1, i, (), generator=generator)) if i else -1 for i in range(length))
    return Draft(
        tuple(tokens), source if "drawn" in shape and length else None, parents if "tree" in shape and length else None
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", ["standard", "block"])
@pytest.mark.parametrize("shapes", [("chain",), ("drawn",), ("chain", "drawn", "tree", "drawn tree")])
def test_batch_gives_the_verdicts_of_one_at_a_time(shapes: tuple[str, ...], rule: Rule, dtype: torch.dtype) -> None:
    """Ragged batches of 1 to 9, with empty drafts among them, agree token for token with the rule for one sequence."""
    generator = torch.Generator().manual_seed(7)
    partial = 0
    for turn in range(150):
        drafts = [random_draft(generator, 6, shapes[i % len(shapes)], dtype) for i in range(turn % 9 + 1)]
        lengths = [len(draft.token_ids) + 1 for draft in drafts]
        logits = torch.randn(sum(lengths), 6, generator=generator, dtype=dtype)
        target = distribution(logits, temperature=0.7, top_p=0.9)
        values = [round_uniforms(generator, length - 1) for length in lengths]
        singly = [
            verify_sampled(part, draft, UniformDraw(iter(value)), rule)
            for part, draft, value in zip(parts(target, lengths), drafts, values, strict=True)
        ]
        assert verify_sampled_batch(target, drafts, values, rule) == singly
        assert verify_greedy_batch(logits, drafts) == [
            verify_greedy(part, draft) for part, draft in zip(parts(logits, lengths), drafts, strict=True)
        ]
        partial += sum(0 < len(v.path) < len(d.token_ids) for v, d in zip(singly, drafts, strict=True))
    assert partial > 50  # the comparison met rounds that were neither all kept nor all refused


@pytest.mark.parametrize("rule", ["standard", "block"])
def test_batch_agrees_where_numbers_meet(rule: Rule) -> None:
    """All probabilities and uniforms are multiples of 1/8, so many comparisons are between equal numbers: a uniform that
    equals the chance refuses, in the batch as for one."""
    generator = torch.Generator().manual_seed(8)
    eighths = [row for row in itertools.product((0.0, 0.125, 0.25, 0.5, 0.75, 1.0), repeat=3) if sum(row) == 1]
    table = rows(*eighths)

    def some(count: int) -> Tensor:
        return table[torch.randint(len(table), (count,), generator=generator)]

    for _ in range(300):
        sources = [some(3) for _ in range(5)]
        drafts = [Draft(tuple(torch.multinomial(s, 1, generator=generator).squeeze(1).tolist()), s) for s in sources]
        target = some(20)
        values: list[list[float]] = (torch.randint(8, (5, 4), generator=generator) / 8).tolist()
        assert verify_sampled_batch(target, drafts, values, rule) == [
            verify_sampled(part, draft, UniformDraw(iter(value)), rule)
            for part, draft, value in zip(parts(target, [4] * 5), drafts, values, strict=True)
        ]


def test_block_verification_can_redeem_a_token_by_the_next() -> None:
    """Target (1/3 2/3), drafter (2/3 1/3), draft 0 1: r is 1/2, then 1. The uniform .7 refuses token 0 by itself, and
    keeps the whole block."""
    draft = Draft((0, 1), rows((2 / 3, 1 / 3)).repeat(2, 1))
    target = rows((1 / 3, 2 / 3)).repeat(3, 1)
    assert verify_sampled(target, draft, uniforms(0.7, 0.0)) == Verdict((), 1)
    assert verify_sampled(target, draft, uniforms(0.7, 0.0), "block") == Verdict((0, 1), 0)
    assert verify_sampled_batch(target, [draft], [[0.7, 0.0, 0.0]], "block") == [Verdict((0, 1), 0)]


def test_block_is_the_standard_rule_for_trees_and_tokens_picked_without_chance() -> None:
    """Uniform for uniform: nothing changes for them with the name of the rule; a drawn chain written out is a chain."""
    generator = torch.Generator().manual_seed(9)
    for _ in range(100):
        drafts = [random_draft(generator, 5, shape) for shape in ("chain", "tree", "drawn tree")]
        drafts[2] = Draft(drafts[2].token_ids, drafts[2].probs, (-1,) * len(drafts[2]))
        target = distribution(torch.randn(sum(map(len, drafts)) + 3, 5, generator=generator))
        values = [round_uniforms(generator, len(draft)) for draft in drafts]
        # A single drawn node is a chain, for which both rules are the same too.
        assert verify_sampled_batch(target, drafts, values, "block") == verify_sampled_batch(target, drafts, values)
        chain = random_draft(generator, 5, "drawn")
        written = Draft(chain.token_ids, chain.probs, tuple(range(-1, len(chain) - 1)))
        target = distribution(torch.randn(2 * len(chain) + 2, 5, generator=generator))
        target[len(chain) + 1 :] = target[: len(chain) + 1]
        first, second = verify_sampled_batch(target, [chain, written], [round_uniforms(generator, 5)] * 2, "block")
        assert first == second


def test_unknown_rule_is_refused() -> None:
    """The error names the rules there are."""
    with pytest.raises(ValueError, match="'typical' given; allowed: standard, block"):
        verify_sampled_batch(rows((1, 0)), [Draft(())], [[0.5]], "typical")  # type: ignore[arg-type]


def test_batch_of_one_hot_drafts_gives_the_target_shares() -> None:
    """Twelve by twelve uniforms, one pair a sequence: tokens come out 36 : 72 : 36, the target's .25 .5 .25."""
    grid = [(i + 0.5) / 12 for i in range(12)]
    pairs = [(first, second) for first in grid for second in grid]
    target = rows((0.25, 0.5, 0.25), (1, 0, 0)).repeat(144, 1)
    verdicts = verify_sampled_batch(target, [Draft((0,))] * 144, pairs)
    assert Counter(0 if verdict.path else verdict.next_token_id for verdict in verdicts) == {0: 36, 1: 72, 2: 36}


def test_batch_of_drawn_drafts_gives_the_target_shares() -> None:
    """Drafts 0 0 1 2 as the row (.5 .25 .25) draws them, each under 144 uniforms: 144 : 288 : 144 come out."""
    grid = [(i + 0.5) / 12 for i in range(12)]
    pairs = [(first, second) for first in grid for second in grid]
    source = rows((0.5, 0.25, 0.25))
    drafts = [Draft((token,), source) for token in (0, 0, 1, 2) for _ in pairs]
    target = rows((0.25, 0.5, 0.25), (1, 0, 0)).repeat(len(drafts), 1)
    verdicts = verify_sampled_batch(target, drafts, pairs * 4)
    shares = Counter(
        draft.token_ids[0] if verdict.path else verdict.next_token_id
        for draft, verdict in zip(drafts, verdicts, strict=True)
    )
    assert shares == {0: 144, 1: 288, 2: 144}


def test_outcome_does_not_depend_on_the_neighbours() -> None:
    """A sequence with its own seeded generator gets the same verdict alone and in the middle of a batch of three."""
    generator = torch.Generator().manual_seed(3)
    drafts = [random_draft(generator, 8, "drawn") for _ in range(3)]
    lengths = [len(draft.token_ids) + 1 for draft in drafts]
    target = distribution(torch.randn(sum(lengths), 8, generator=generator))
    mine = round_uniforms(torch.Generator().manual_seed(42), lengths[1] - 1)
    others = [round_uniforms(generator, length - 1) for length in lengths]
    together = verify_sampled_batch(target, drafts, [others[0], mine, others[2]])
    again = round_uniforms(torch.Generator().manual_seed(42), lengths[1] - 1)
    assert verify_sampled_batch(parts(target, lengths)[1], [drafts[1]], [again]) == [together[1]]


# --- what holds of every verdict -----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from(["chain", "drawn", "tree", "drawn tree"]),
    temperature=st.sampled_from([0.0, 0.6, 1.5]),
)
def test_path_runs_from_the_root_along_parents(seed: int, shape: str, temperature: float) -> None:
    """Accepted nodes are parent and child from the root on, and no token comes out that the target excludes."""
    generator = torch.Generator().manual_seed(seed)
    draft = random_draft(generator, 6, shape)
    target = distribution(torch.randn(len(draft) + 1, 6, generator=generator), temperature, top_p=0.8)
    verdict = verify_sampled(target, draft, UniformDraw(iter(round_uniforms(generator, len(draft)))))
    parents = draft.parents or tuple(range(-1, len(draft) - 1))
    node = -1
    for child in verdict.path:
        assert parents[child] == node
        assert target[node + 1, draft.token_ids[child]] > 0
        node = child
    assert target[node + 1, verdict.next_token_id] > 0


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    wrong=st.floats(0, 1),
    max_tokens=st.integers(1, 40),
    longest=st.integers(0, 7),
)
def test_a_known_text_comes_out_whatever_is_drafted(seed: int, wrong: float, max_tokens: int, longest: int) -> None:
    """Random errors and lengths, round after round: each draft is accepted up to its first error, and the text comes
    out."""
    generator = torch.Generator().manual_seed(seed)
    text: list[int] = torch.randint(0, 5, (max_tokens + 10,), generator=generator).tolist()
    out: list[int] = []
    while len(out) < max_tokens:
        length = int(torch.randint(0, longest + 1, (), generator=generator))
        ahead = text[len(out) : len(out) + length]
        flips = (torch.rand(length, generator=generator) < wrong).tolist()
        draft = Draft(tuple((token + 1) % 5 if flip else token for token, flip in zip(ahead, flips, strict=True)))
        target = one_hot(5, *text[len(out) : len(out) + length + 1])
        verdict = verify_greedy(target, draft)
        out += [draft.token_ids[i] for i in verdict.path] + [verdict.next_token_id]
        assert len(verdict.path) == (flips.index(True) if True in flips else length)
    assert out == text[: len(out)]
