"""The rules of `drafters.verify` for a whole batch of sequences with drafts of different lengths.

``target`` rows of the sequences stand one after the other: Σ(len + 1) rows, as a ragged verify forward returns them.
Each sequence reads only its own rows and its own uniforms, so an outcome never depends on the neighbours, and it is the
outcome of the rule for one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor

from drafters.base import Draft, Verdict
from drafters.sampling import UniformDraw, pick
from drafters.verify import Rule, acceptance_ratio, check_rows, greedy_path, judged_whole, residual_mass, verify_sampled

__all__ = ["verify_greedy_batch", "verify_sampled_batch"]


def verify_greedy_batch(target_logits: Tensor, drafts: Sequence[Draft]) -> list[Verdict]:
    """`verify_greedy` of every draft, trees and empty ones included, with one argmax over all rows.

    ``target_logits`` [Σ(len + 1), vocab]. The walk compares a few integers and stays in Python: that costs less than
    the kernel launches of a vectorised one.
    """
    check_rows(target_logits, drafts)
    best: list[int] = target_logits.argmax(dim=-1).tolist()
    return [
        greedy_path(best[start : start + len(draft.token_ids) + 1], draft)
        for start, draft in zip(_starts(drafts), drafts, strict=True)
    ]


def verify_sampled_batch(
    target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[float]], rule: Rule = "standard"
) -> list[Verdict]:
    """`verify_sampled` of every draft; chains together in one gather, one residual and one draw, trees one by one.

    ``target`` [Σ(len + 1), vocab]; ``uniforms[i]`` holds at least len + 1 values
    (`drafters.sampling.round_uniforms` of the sequence's own generator). The outcome is that of `verify_sampled` with the
    same ``rule`` and a `UniformDraw` over the same values. With "block" the chains of drawn tokens share one residual
    for each position from the end that some of them must look at.
    """
    check_rows(target, drafts)
    if len(uniforms) != len(drafts) or any(len(u) <= len(d.token_ids) for u, d in zip(uniforms, drafts, strict=True)):
        raise ValueError("too few uniforms given; allowed: for each draft its length and one. Use round_uniforms")
    if rule not in get_args(Rule):
        raise ValueError(f"verification rule {rule!r} given; allowed: {', '.join(get_args(Rule))}")
    verdicts: dict[int, Verdict] = {}
    chains: list[int] = []
    blocks: list[int] = []
    starts = _starts(drafts)
    for i, draft in enumerate(drafts):
        if draft.parents is None and draft.forced is None:
            (blocks if rule == "block" and judged_whole(draft) else chains).append(i)
            continue
        rows = target[starts[i] : starts[i] + len(draft.token_ids) + 1]
        verdicts[i] = verify_sampled(rows, draft, UniformDraw(iter(uniforms[i])), rule)
    for together, verify in ((chains, _verify_chains), (blocks, _verify_blocks)):
        if together:
            own = [(drafts[i], uniforms[i], starts[i]) for i in together]
            verdicts.update(zip(together, verify(target, *zip(*own, strict=True)), strict=True))
    return [verdicts[i] for i in range(len(drafts))]


def _verify_chains(
    target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[float]], starts: Sequence[int]
) -> list[Verdict]:
    accepted: list[int] = []
    used: list[float] = []  # the uniform of each added token: the one after those that were compared
    for draft, chances, values in zip(drafts, _chances(target, drafts, starts), uniforms, strict=True):
        ratios = [acceptance_ratio(*chance, token) for chance, token in zip(chances, draft.token_ids, strict=True)]
        count = 0
        while count < len(ratios) and values[count] < ratios[count]:
            count += 1
        accepted.append(count)
        used.append(float(values[min(count + 1, len(ratios))]))
    rows = [start + n for start, n in zip(starts, accepted, strict=True)]
    after = target[torch.tensor(rows, device=target.device)].double()  # [chains, vocab], a copy
    rejected = [n for n, draft in enumerate(drafts) if accepted[n] < len(draft.token_ids)]
    one_hot = [n for n in rejected if drafts[n].probs is None]
    if one_hot:
        after[one_hot, [drafts[n].token_ids[accepted[n]] for n in one_hot]] = 0.0
    drawn = [(n, probs[accepted[n]].double()) for n in rejected if (probs := drafts[n].probs) is not None]
    if drawn:
        index = [n for n, _ in drawn]
        after[index] = (after[index] - torch.stack([row for _, row in drawn])).clamp_(min=0.0)
    return _completed(target, accepted, rows, after, used)


def _verify_blocks(
    target: Tensor, drafts: Sequence[Draft], uniforms: Sequence[Sequence[float]], starts: Sequence[int]
) -> list[Verdict]:
    """`verify_block` of chains that all have tokens and probabilities."""
    kept_with: list[list[float]] = []
    for draft, chances in zip(drafts, _chances(target, drafts, starts), strict=True):
        kept_with.append([1.0])
        for (t, d), token in zip(chances, draft.token_ids, strict=True):
            kept_with[-1].append(min(1.0, acceptance_ratio(kept_with[-1][-1] * t, d, token)))
    accepted = [len(draft.token_ids) for draft in drafts]
    asked = [1] * len(drafts)
    open_ones = [n for n, values in enumerate(uniforms) if not values[0] < kept_with[n][-1]]
    ends = [start + n for start, n in zip(starts, accepted, strict=True)]
    after = target[torch.tensor(ends, device=target.device)].double()  # [chains, vocab], a copy
    while open_ones:  # one position back in each turn, for all that have not found their prefix yet
        for n in open_ones:
            accepted[n] -= 1
        judged = [kept_with[n][accepted[n]] for n in open_ones]
        rows = target[torch.tensor([starts[n] + accepted[n] for n in open_ones], device=target.device)].double()
        drawn_from = torch.stack(
            [probs[accepted[n]].double() for n in open_ones if (probs := drafts[n].probs) is not None]
        )
        kept = torch.tensor(judged, dtype=torch.float64, device=target.device).unsqueeze(1)
        rest = (rows * kept - drawn_from).clamp_(min=0.0)
        masses = residual_mass(rest)
        after[open_ones] = torch.where((masses > 0).unsqueeze(1), rest, rows)
        further: list[int] = []
        for n, mass, r in zip(open_ones, masses.tolist(), judged, strict=True):
            if accepted[n] == 0:
                continue
            if not uniforms[n][asked[n]] < (mass / (mass + 1.0 - r) if mass > 0 else 0.0):
                further.append(n)
            asked[n] += 1
        open_ones = further
    rows_of = [start + n for start, n in zip(starts, accepted, strict=True)]
    used = [float(values[n]) for values, n in zip(uniforms, asked, strict=True)]
    return _completed(target, accepted, rows_of, after, used)


def _chances(target: Tensor, drafts: Sequence[Draft], starts: Sequence[int]) -> list[list[tuple[float, float]]]:
    """t(x) and d(x) of every drafted token, per chain."""
    tokens = [token for draft in drafts for token in draft.token_ids]
    if not tokens:
        return [[] for _ in drafts]
    rows = [start + j for start, draft in zip(starts, drafts, strict=True) for j in range(len(draft.token_ids))]
    ids = torch.tensor(tokens, device=target.device)
    drawn_with = torch.ones_like(ids, dtype=torch.float64)
    parts: list[slice] = []
    for draft in drafts:
        begin = parts[-1].stop if parts else 0
        part = slice(begin, begin + len(draft.token_ids))
        parts.append(part)
        if draft.probs is not None:
            drawn_with[part] = draft.probs.gather(1, ids[part].unsqueeze(1)).squeeze(1).double()
    kept_with = target[torch.tensor(rows, device=target.device), ids].double()
    kept, drawn = torch.stack((kept_with, drawn_with)).tolist()
    pairs = list(zip(kept, drawn, strict=True))
    return [pairs[part] for part in parts]


def _completed(
    target: Tensor, accepted: Sequence[int], rows: Sequence[int], after: Tensor, used: Sequence[float]
) -> list[Verdict]:
    """The verdicts with their added tokens, drawn from ``after`` [chains, vocab] in one go."""
    values = torch.tensor(used, dtype=torch.float64, device=target.device)
    ids = pick(after, values)
    if bool((ids < 0).any()):  # nothing left of the target: the guard of verify_sampled
        ids = torch.where(ids < 0, pick(target[torch.tensor(rows, device=target.device)], values), ids)
    added: list[int] = ids.tolist()
    if min(added) < 0:
        raise ValueError(f"target row {rows[added.index(-1)]} has no mass; a row must give some token a probability")
    return [Verdict(tuple(range(n)), token) for n, token in zip(accepted, added, strict=True)]


def _starts(drafts: Sequence[Draft]) -> list[int]:
    """The first target row of each draft."""
    starts: list[int] = []
    row = 0
    for draft in drafts:
        starts.append(row)
        row += len(draft.token_ids) + 1
    return starts
