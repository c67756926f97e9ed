"""Verification: which drafted tokens the target keeps, and the one token it adds.

Every rule here is lossless: the tokens of the continued process are distributed as if the target alone had drawn them.
``target`` rows are indexed as in the verify forward: row 0 is the distribution after the last committed token, row
i + 1 the one after draft token i (on the path that leads to it), so a draft of n tokens needs n + 1 rows.

| rule | function | source |
|---|---|---|
| greedy, chain and tree | `verify_greedy` | longest path of argmax tokens |
| sampled chain | `verify_sampled` | arXiv 2211.17192, 2302.01318 |
| sampled tree, multi-round rejection | `verify_sampled` | arXiv 2305.09781; one-hot children as in EAGLE |
| sampled chain as one block | `verify_block` | arXiv 2403.10444, algorithm 2 |

The last one is an option, ``rule="block"``. It is defined for chains whose tokens were drawn: trees, and chains picked
without chance, for which it would give the very same distribution of outcomes, go by the standard rule under either name.
Per round it keeps at least as many tokens on average, strictly more wherever a rejected token's prefix can be redeemed
by the tokens after it.

`drafters.verify_batch` gives the same outcomes for a whole batch at once. These functions take one sequence and ask all
chance of a `Draw`, so that a test can follow every branch and sum the exact distribution.

What a draft must obey for this to hold:

1. ``Draft.probs`` row i is the very distribution token i was drawn from, given what was drawn before it: the drafter's
   temperature and filters included, at the precision it was drawn at, and for siblings drawn without replacement with
   the earlier siblings taken out (`drafters.sampling.draw_siblings` gives it). Never recompute it.
2. The length and the shape of the draft are *non-anticipating*: whether position j is submitted may depend on the
   committed tokens and on the drafts before j, never on the drawn token j itself or on anything after it. To stop
   after token j because token j was improbable is allowed; to withhold token j because its own probability is below
   a minimum is biased for a drawn token. A minimum on the largest probability of row j is allowed: it is known before
   the draw. So is a k chosen before the round, by a table or from acceptance so far.
3. ``probs`` None frees a draft from rule 2: the test then conditions on the token itself, so any choice of tokens and
   of tree made without knowledge of the verification's uniforms is exact, a drawn token with its own minimum included.
   It costs acceptance: the mean of target(x) over the drawn x instead of the overlap of both distributions.

A draft with ``forced`` set is no draft but a cost experiment: so many tokens are accepted unseen, and the result is
not the target's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from drafters.base import Draft, Verdict
from drafters.sampling import Draw

__all__ = [
    "Rule",
    "acceptance_ratio",
    "check_rows",
    "greedy_path",
    "judged_whole",
    "residual_mass",
    "verify_block",
    "verify_greedy",
    "verify_sampled",
]

Rule = Literal["standard", "block"]
"""How drafts of requests that sample are verified; greedy verification has one rule only."""


def verify_greedy(target_logits: Tensor, draft: Draft) -> Verdict:
    """Keep the longest path whose every token is the argmax after its parent (ties: lowest id), then add the argmax.

    ``target_logits`` [len + 1, vocab], logits or any increasing function of them.
    """
    check_rows(target_logits, [draft])
    return greedy_path(target_logits.argmax(dim=-1).tolist(), draft)


def greedy_path(best: Sequence[int], draft: Draft) -> Verdict:
    """Walk from the root to the child that equals ``best`` of its parent's row, as long as there is one.

    ``best`` [len + 1]: the argmax of each target row. Of equal siblings the first is followed.
    """
    if draft.forced is not None:
        return Verdict(tuple(range(draft.forced)), best[draft.forced])
    children = _children(draft)
    path: list[int] = []
    node = -1
    while True:
        wanted = best[node + 1]
        node = next((child for child in children[node + 1] if draft.token_ids[child] == wanted), -1)
        if node < 0:
            return Verdict(tuple(path), wanted)
        path.append(node)


def verify_sampled(target: Tensor, draft: Draft, draw: Draw, rule: Rule = "standard") -> Verdict:
    """Speculative sampling of a chain or a tree; a chain is a tree in which nobody has siblings.

    With ``rule`` "block" those drafts for which `judged_whole` holds go by `verify_block`.

    ``target`` [len + 1, vocab] is what `drafters.sampling.distribution` makes of the logits. At each accepted node its
    children are tried in order: child x drawn from draft row d is accepted with probability min(1, t(x) / d(x)), a
    one-hot child with t(x); after a rejection t becomes max(0, t - d) renormalised (for a one-hot child t without x).
    When no child is left the added token is drawn from t.
    """
    if rule == "block" and judged_whole(draft):
        return verify_block(target, draft, draw)
    check_rows(target, [draft])
    if draft.forced is not None:
        return Verdict(tuple(range(draft.forced)), draw.choose(target[draft.forced]))
    children = _children(draft)
    path: list[int] = []
    node = -1
    while True:
        weights = target[node + 1].double()  # [vocab]
        for turn, child in enumerate(children[node + 1]):
            if turn:
                weights = weights / weights.sum()  # what the rejected siblings left
            token = draft.token_ids[child]
            drawn_from = None if draft.probs is None else draft.probs[child].double()
            drawn_with = 1.0 if drawn_from is None else float(drawn_from[token])
            if draw.accept(acceptance_ratio(float(weights[token]), drawn_with, token)):
                break
            rest = _residual(weights, drawn_from, token)
            # Nothing left means that both distributions are equal up to rounding: the target's own is then right.
            weights = rest if bool((rest > 0).any()) else weights
        else:
            return Verdict(tuple(path), draw.choose(weights))
        path.append(child)
        node = child


def verify_block(target: Tensor, draft: Draft, draw: Draw) -> Verdict:
    """Block verification of a chain: the prefix is judged as a whole, which keeps at least as many tokens on average.

    With r_0 = 1 and r_i = min(1, r_{i-1} · t(x_i) / d(x_i)), prefix i is accepted with h_i = m / (m + 1 - r_i), where
    m = Σ max(0, r_i · t - d) over the next position, and with r_n for the whole block; the longest accepted prefix
    wins and the added token comes from max(0, r_i · t - d), or from t after the whole block. So r_i is the probability
    that at least i tokens are kept, which is why a draft may end wherever the tokens before say so. ``target`` as for
    `verify_sampled`. Raises ValueError for a tree: the rule is defined for chains.
    """
    check_rows(target, [draft])
    length = len(draft.token_ids)
    if not _is_chain(draft):
        raise ValueError("block verification of a tree asked for; allowed: chains. Use verify_sampled for trees")
    if draft.forced is not None:
        return Verdict(tuple(range(draft.forced)), draw.choose(target[draft.forced]))
    kept_with = [1.0]
    for i, token in enumerate(draft.token_ids):
        drawn_with = 1.0 if draft.probs is None else float(draft.probs[i, token])
        kept_with.append(min(1.0, acceptance_ratio(kept_with[-1] * float(target[i, token]), drawn_with, token)))
    # The longest accepted prefix is looked for from its end: the tests are independent, so the order is free.
    for i in range(length, -1, -1):
        weights = target[i].double()  # [vocab]
        judged = kept_with[i]
        if i < length:
            drawn_from = None if draft.probs is None else draft.probs[i].double()
            rest = _residual(weights * kept_with[i], drawn_from, draft.token_ids[i])
            mass = float(residual_mass(rest))
            weights = rest if mass > 0 else weights
            judged = mass / (mass + 1.0 - kept_with[i]) if mass > 0 else 0.0
        if i == 0 or draw.accept(judged):
            break
    return Verdict(tuple(range(i)), draw.choose(weights))


def judged_whole(draft: Draft) -> bool:
    """Whether block verification is another rule for this draft than the standard one: a chain of drawn tokens."""
    return draft.probs is not None and len(draft.token_ids) > 0 and draft.forced is None and _is_chain(draft)


def residual_mass(rest: Tensor) -> Tensor:
    """[..., vocab] → [...]: the sum, added up in the order of the tokens.

    ``sum`` splits a row by how many rows there are and by threads; its last bit would depend on the neighbours.
    """
    return rest.cumsum(-1)[..., -1]


def acceptance_ratio(kept_with: float, drawn_with: float, token: int) -> float:
    """t(x) / d(x) of a drafted token; ValueError where its own draft row gives it no probability."""
    if not drawn_with > 0:
        raise ValueError(
            f"draft token {token} has probability {drawn_with} in its own draft row; allowed: above 0. "
            "Hand over the distribution the token was drawn from"
        )
    return kept_with / drawn_with


def check_rows(target: Tensor, drafts: Sequence[Draft]) -> None:
    """Raise ValueError unless ``target`` has a row per drafted token and one more per draft, as wide as their probs."""
    rows = sum(len(draft.token_ids) + 1 for draft in drafts)
    if target.dim() != 2 or target.shape[0] != rows:
        raise ValueError(f"target has shape {tuple(target.shape)}; allowed: [{rows}, vocab], a row per token and one")
    for draft in drafts:
        shape = (len(draft.token_ids), target.shape[1])
        if draft.probs is not None and tuple(draft.probs.shape) != shape:
            raise ValueError(f"draft probs have shape {tuple(draft.probs.shape)}; allowed: {shape}, or None")


def _residual(weights: Tensor, drawn_from: Tensor | None, token: int) -> Tensor:
    """max(0, weights - drawn_from) [vocab], not renormalised; ``drawn_from`` None is one-hot at ``token``."""
    if drawn_from is not None:
        return (weights - drawn_from).clamp_(min=0.0)
    rest = weights.clone()
    rest[token] = 0.0
    return rest


def _is_chain(draft: Draft) -> bool:
    return draft.parents is None or draft.parents == tuple(range(-1, len(draft.token_ids) - 1))


def _children(draft: Draft) -> list[list[int]]:
    """Children of each node in the order of the draft; entry 0 is the root's, entry i + 1 that of token i."""
    length = len(draft.token_ids)
    if draft.parents is None:
        return [*([i] for i in range(length)), []]
    children: list[list[int]] = [[] for _ in range(length + 1)]
    for i, parent in enumerate(draft.parents):
        children[parent + 1].append(i)
    return children
