"""From logits to a distribution, and from a distribution to a token.

Target and drafter both pass through `distribution`, so "after temperature, top-k and top-p" means the same on both
sides of an acceptance test. Chance enters only through a `Draw`: the engine gives one that reads uniforms of a
sequence's own generator, a test gives one that follows every branch with its weight, and the code between is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Draw", "UniformDraw", "distribution", "draw_siblings", "pick", "round_uniforms"]


def distribution(
    logits: Tensor,
    temperature: float | Sequence[float] = 1.0,
    top_k: int | Sequence[int] = 0,
    top_p: float | Sequence[float] = 1.0,
) -> Tensor:
    """The distribution that a request with these parameters samples from, row by row.

    ``logits`` [n, vocab] of any float type; -inf marks a token that must not appear. Each parameter is one number or
    one per row. Returns ``probs`` [n, vocab] in float64 for float64 logits and in float32 otherwise.

    The order of the filters is that of vLLM and transformers: temperature, then top-k, then top-p on the
    renormalised rest. At least one token stays.

    - temperature 0 puts all mass on the largest logit, on the lowest id of equal ones; top-k and top-p change nothing.
    - top_k 0 keeps all; tokens equal to the k-th largest logit are kept as well, as in both references.
    - top_p keeps the fewest most probable tokens whose mass reaches top_p; of equal ones the lowest ids are kept, so
      the result does not depend on a sort's order, on the device or on the other rows.

    Raises ValueError for parameters out of range and for a row that is all -inf or holds NaN or +inf.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}; allowed: [n, vocab]")
    rows, vocab = logits.shape
    temperatures = _per_row("temperature", temperature, rows)
    kept_counts = _per_row("top_k", top_k, rows)
    masses = _per_row("top_p", top_p, rows)
    for heat, count, mass in zip(temperatures, kept_counts, masses, strict=True):
        if not 0 <= heat < float("inf"):
            raise ValueError(f"temperature {heat} given; allowed: 0 (greedy) or a positive number")
        if count < 0:
            raise ValueError(f"top_k {count} given; allowed: 0 (keep all) or a positive count")
        if isnan(mass) or not 0 < mass <= 1:
            raise ValueError(f"top_p {mass} given; allowed: above 0 and at most 1 (keep all)")
    if rows == 0:
        return logits.new_zeros((0, vocab), dtype=torch.float64 if logits.dtype == torch.float64 else torch.float32)
    scores = logits if logits.dtype == torch.float64 else logits.float()
    top = scores.amax(dim=-1, keepdim=True)  # [n, 1]; an order of magnitude cheaper than max with its index
    if not bool(torch.isfinite(top).all()):
        bad = int((~torch.isfinite(top)).nonzero()[0, 0])
        raise ValueError(f"row {bad} of the logits holds NaN or +inf or allows no token; mask fewer tokens")
    coldest = torch.finfo(scores.dtype).tiny  # below it the temperature is 0 in the logits' own type: greedy
    sampled = [row for row, heat in enumerate(temperatures) if heat >= coldest]
    if len(sampled) == rows:
        return _sampled_rows(scores, top, temperatures, kept_counts, masses)
    probs = torch.zeros_like(scores).scatter_(1, scores.argmax(dim=-1, keepdim=True), 1.0)
    if sampled:
        index = torch.tensor(sampled, device=logits.device)
        part = [[values[row] for row in sampled] for values in (temperatures, kept_counts, masses)]
        probs[index] = _sampled_rows(scores[index], top[index], *part)
    return probs


def _sampled_rows(
    scores: Tensor, top: Tensor, heats: Sequence[float], counts: Sequence[float], masses: Sequence[float]
) -> Tensor:
    # The maximum is taken off first: a tiny temperature then gives 0 and -inf instead of inf - inf.
    scaled = (scores - top).div_(torch.tensor(heats, dtype=scores.dtype, device=scores.device).unsqueeze(1))
    rows, vocab = scaled.shape
    cut = [row for row, count in enumerate(counts) if 0 < count < vocab]
    if cut:
        # All rows is the usual case, and a slice spares it two copies of the whole batch.
        index = slice(None) if len(cut) == rows else torch.tensor(cut, device=scaled.device)
        kth = torch.tensor([int(counts[row]) for row in cut], device=scaled.device).unsqueeze(1) - 1  # [m, 1]
        part = scaled[index]
        smallest = part.topk(int(kth.max()) + 1, dim=-1).values.gather(1, kth)
        scaled[index] = part.masked_fill_(part < smallest, float("-inf"))
    probs = torch.softmax(scaled, dim=-1)
    nucleus = [row for row, mass in enumerate(masses) if mass < 1]
    if not nucleus:
        return probs
    wanted = torch.tensor([masses[row] for row in nucleus], dtype=torch.float64, device=probs.device).unsqueeze(1)
    if len(nucleus) == rows:
        return _nucleus(probs, wanted)
    index = torch.tensor(nucleus, device=probs.device)
    probs[index] = _nucleus(probs[index], wanted)
    return probs


def _nucleus(probs: Tensor, wanted: Tensor) -> Tensor:
    """``probs`` [n, vocab] cut to the fewest most probable tokens that reach ``wanted`` [n, 1], renormalised."""
    # Tokens below half of (1 - wanted) / vocab hold less than half of what the nucleus leaves out, so none of them is
    # in it, and only the others, mostly a small part, need sorting. The half is the margin for a float32
    # row that does not sum to 1, as long as 1 - wanted is well above the error of that sum.
    least = torch.where(wanted < 1 - 1e-5, (1 - wanted) / (2 * probs.shape[1]), 0.0).to(probs.dtype)
    rows, ids = (probs > least).nonzero(as_tuple=True)  # never empty: the largest of a row is at least 1 / vocab
    counts = rows.bincount(minlength=len(probs))  # [n]
    slots = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    shape = (len(probs), int(counts.max()))
    values = probs.new_zeros(shape).index_put_((rows, slots), probs[rows, ids])  # ids ascend along a row
    columns = ids.new_zeros(shape).index_put_((rows, slots), ids)
    values, order = values.sort(dim=-1, descending=True, stable=True)  # stable: of equal tokens the lowest id first
    mass = values.double().cumsum(-1)
    # A token stays while the mass ranked above it has not reached the wanted one; the first has none above it.
    values[:, 1:] = values[:, 1:].masked_fill(mass[:, :-1] >= wanted, 0.0)
    # A running sum, unlike sum(), does not change its order of addition with the width that other rows ask for.
    values = (values / values.double().cumsum(-1)[:, -1:]).to(probs.dtype)
    # Padding has value 0 and column 0, hence the sum: it must not overwrite token 0.
    return torch.zeros_like(probs).scatter_add_(1, columns.gather(1, order), values)


def _per_row(name: str, value: float | Sequence[float], rows: int) -> list[float]:
    if isinstance(value, (int, float)):
        return [value] * rows
    if len(value) != rows:
        raise ValueError(f"{len(value)} values of {name} given for {rows} rows; give one number or one per row")
    return list(value)


def pick(weights: Tensor, uniforms: Tensor) -> Tensor:
    """One token id per row, drawn in proportion to ``weights`` [n, vocab] by inverting the cumulative sum.

    ``uniforms`` [n] in [0, 1). A token of weight 0 is never returned. Returns ids [n]; -1 where a row has no mass.
    """
    cumulative = weights.double().cumsum(-1)  # float64: float32 sums over 150,000 tokens lose the tail
    total = cumulative[:, -1:].contiguous()
    # A float64 below 1 times the total never rounds up to the total, so the search ends on a token with mass.
    ids = torch.searchsorted(cumulative, uniforms.double().unsqueeze(1) * total, right=True)
    return torch.where(total > 0, ids, -1).squeeze(1)


class Draw(Protocol):
    """Where chance comes from: two questions, each answered independently of all answers before."""

    def accept(self, probability: float) -> bool:
        """True with this probability; 1 or more is always True, 0 or less never."""
        ...

    def choose(self, probs: Tensor) -> int:
        """A token id in proportion to ``probs`` [vocab], which need not sum to exactly 1."""
        ...


class UniformDraw:
    """Answers from a stream of uniforms in [0, 1), one for each question, in the order asked."""

    def __init__(self, uniforms: Iterator[float]) -> None:
        self._uniforms = uniforms

    def accept(self, probability: float) -> bool:
        """True when the next uniform lies below ``probability``."""
        return next(self._uniforms) < probability

    def choose(self, probs: Tensor) -> int:
        """The token at which the cumulative sum of ``probs`` [vocab] passes the next uniform."""
        uniform = torch.tensor([float(next(self._uniforms))], dtype=torch.float64, device=probs.device)
        token = int(pick(probs.unsqueeze(0), uniform))
        if token < 0:
            raise ValueError("a distribution without mass given; at least one token needs a positive probability")
        return token


def round_uniforms(generator: torch.Generator, draft_len: int) -> list[float]:
    """The uniforms of one verification: ``draft_len`` + 1, whatever comes of it.

    No rule asks more (one question a drafted token at most, then one choice), and a count that does not depend on the
    outcome keeps a sequence's stream the same in every batch in which its drafts have the same lengths. Other lengths
    give another text of the same distribution.
    """
    values: list[float] = torch.rand(
        draft_len + 1, generator=generator, dtype=torch.float64, device=generator.device
    ).tolist()
    return values


def draw_siblings(probs: Tensor, count: int, draw: Draw) -> tuple[tuple[int, ...], Tensor]:
    """Up to ``count`` distinct children of one tree node, drawn without replacement from ``probs`` [vocab].

    Returns the token ids and, for `Draft.probs`, the distribution each was really drawn from [len, vocab]: the
    earlier siblings taken out and the rest renormalised. Fewer than ``count`` when fewer tokens have mass.
    """
    left = probs.double()
    tokens: list[int] = []
    rows: list[Tensor] = []
    while len(tokens) < count and bool(left.sum() > 0):
        left = left / left.sum()
        rows.append(left)
        tokens.append(draw.choose(left))
        left = left.clone()
        left[tokens[-1]] = 0.0
    return tuple(tokens), torch.stack(rows) if rows else left.new_zeros((0, left.shape[0]))
