"""Medusa (arXiv 2401.10774): heads on the target's last hidden state, each for one position further ahead.

Head i reads h_t, the state after the final norm from which the target's own head predicted x_{t+1}, and predicts
x_{t+2+i}. A head is ``x + SiLU(W x + b)``, as often as ``medusa_num_layers`` says, then a projection to the vocabulary.
Tokens are taken by rank, without chance, also for requests that sample: a one-hot draft is exact in verification
whatever the shape of the tree, while the paper's typical acceptance would not be lossless.

Checkpoint: ``medusa_num_heads``, ``medusa_num_layers`` and ``base_model_name_or_path`` in ``config.json``; tensors
``{i}.{l}.linear.{weight,bias}`` and ``{i}.{L}.weight``, in ``medusa_lm_head.safetensors`` as a rule. With
``original_lm_head`` (vLLM's key) the target's own head projects, and no ``{i}.{L}.weight`` is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.checkpoint import Checkpoint, drawn
from drafters.projections import Projection, project
from drafters.specs import MedusaSpec, SpecError

__all__ = ["FILE_NAME", "Medusa", "TreeBuffers", "tensor_shapes", "tree_buffers", "untrained", "with_own_head"]

FILE_NAME = "medusa_lm_head.safetensors"


@dataclass(frozen=True, slots=True)
class TreeBuffers:
    """A tree laid out once, level by level: node i is the ``ranks[i]``-th best token (from 0) of head ``heads[i]``, a
    child of node ``parents[i]``. Mask and positions of the verify pass follow from the parents."""

    parents: tuple[int, ...]
    heads: tuple[int, ...]
    ranks: tuple[int, ...]


def tree_buffers(paths: Sequence[Sequence[int]]) -> TreeBuffers:
    """Lay out a tree given as paths of ranks. Raises SpecError for one that is no tree: a path empty, repeated or
    without its prefixes, or a rank below 0."""
    ordered = sorted((tuple(path) for path in paths), key=lambda path: (len(path), path))
    nodes: dict[tuple[int, ...], int] = {(): -1}
    for node, path in enumerate(ordered):
        if path in nodes or min(path) < 0:
            raise SpecError(f"medusa: 'tree' has path {list(path)}; allowed: ranks from 0, each path once, none empty")
        if path[:-1] not in nodes:
            raise SpecError(f"medusa: 'tree' has path {list(path)} without {list(path[:-1])}; give every prefix")
        nodes[path] = node
    if not ordered:
        raise SpecError("medusa: 'tree' has no path; give at least [[0]], or leave it out for a chain")
    return TreeBuffers(
        parents=tuple(nodes[path[:-1]] for path in ordered),
        heads=tuple(len(path) - 1 for path in ordered),
        ranks=tuple(path[-1] for path in ordered),
    )


def with_own_head(checkpoint: Checkpoint) -> bool:
    """Whether each head brings its projection to the vocabulary. Raises SpecError for an answer that is none."""
    borrowed = checkpoint.config.get("original_lm_head", False)
    if not isinstance(borrowed, bool):
        raise SpecError(f"config.json has {borrowed!r} for 'original_lm_head'; allowed: true or false")
    return not borrowed


def tensor_shapes(
    heads: int, layers: int, hidden_size: int, vocab_size: int, own_head: bool = True
) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        for layer in range(layers):
            shapes[f"{head}.{layer}.linear.weight"] = (hidden_size, hidden_size)
            shapes[f"{head}.{layer}.linear.bias"] = (hidden_size,)
        if own_head:
            shapes[f"{head}.{layers}.weight"] = (vocab_size, hidden_size)
    return shapes


def untrained(target: Target, heads: int, seed: int = 0) -> Checkpoint:
    """Random heads of one layer for ``target``."""
    shapes = tensor_shapes(heads, 1, target.hidden_size, target.vocab_size)
    config = {"medusa_num_heads": heads, "medusa_num_layers": 1, "base_model_name_or_path": None}
    return Checkpoint(config, drawn(shapes, seed))


class Medusa:
    """Drafts a chain of every head's best token, or the tree of ``paths``.

    A chain has at most ``num_tokens`` tokens, and never more than there are heads. A tree has the nodes of its paths,
    level by level; a request for fewer gets the first ones.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        target: Target,
        num_tokens: int = 5,
        paths: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Raises SpecError for a checkpoint of another target and for a tree deeper than the heads reach."""
        count, layers = checkpoint.number("medusa_num_heads"), checkpoint.number("medusa_num_layers")
        own = with_own_head(checkpoint)
        shapes = tensor_shapes(count, layers, target.hidden_size, target.vocab_size, own)
        weights = checkpoint.fitted(shapes, target.dtype, target.device)
        self._heads: list[tuple[list[Projection], Callable[[Tensor], Tensor]]] = [
            (
                [
                    project(weights[f"{head}.{layer}.linear.weight"], weights[f"{head}.{layer}.linear.bias"])
                    for layer in range(layers)
                ],
                project(weights[f"{head}.{layers}.weight"]) if own else target.head,
            )
            for head in range(count)
        ]
        self._tree = None if paths is None else tree_buffers(paths)
        if self._tree is not None:
            depth, width = max(self._tree.heads) + 1, max(self._tree.ranks) + 1
            if depth > count or width > target.vocab_size:
                raise SpecError(
                    f"medusa: 'tree' is {depth} deep with ranks to {width - 1}; "
                    f"allowed: depth {count}, one a head, and ranks to {target.vocab_size - 1}"
                )
        self.tree = self._tree is not None
        self.max_nodes = min(num_tokens, count) if self._tree is None else len(self._tree.parents)
        self.feature_layers = (target.num_layers,)
        self._last: dict[int, Tensor] = {}

    @classmethod
    def from_spec(cls, spec: MedusaSpec, target: Target, cache_tokens: int) -> Medusa:
        """Load the checkpoint, or draw as many heads as chain or tree need. It keeps one hidden state a sequence."""
        if spec.model is not None:
            checkpoint = Checkpoint.load(spec.model)
        else:
            heads = spec.num_tokens if not spec.tree else max(1, *map(len, spec.tree))
            checkpoint = untrained(target, heads, spec.seed)
        return cls(checkpoint, target, spec.num_tokens, spec.tree)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Nothing to prepare: the first commit brings the hidden state."""

    @torch.inference_mode()
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One pass of the heads over all sequences."""
        longest = max((min(request.num_tokens, self.max_nodes) for request in requests), default=0)
        if not longest:
            return [Draft(()) for _ in requests]
        hidden = torch.stack([self._last[request.sequence_id] for request in requests])
        tree = self._tree
        if tree is None:
            best = torch.stack([logits.argmax(dim=-1) for logits in self._run(hidden, longest)], dim=1).tolist()
            return [Draft(tuple(row[: request.num_tokens])) for request, row in zip(requests, best, strict=True)]
        heads, width = max(tree.heads[:longest]) + 1, max(tree.ranks[:longest]) + 1
        ranked = torch.stack([logits.topk(width).indices for logits in self._run(hidden, heads)], dim=1).tolist()
        drafts: list[Draft] = []
        for request, rows in zip(requests, ranked, strict=True):  # rows [heads][width]
            size = min(request.num_tokens, self.max_nodes)
            places = zip(tree.heads[:size], tree.ranks[:size], strict=True)
            drafts.append(Draft(tuple(rows[head][rank] for head, rank in places), parents=tree.parents[:size]))
        return drafts

    @torch.inference_mode()
    def logits(self, sequence_id: int) -> Tensor:
        """[heads, vocab]: what each head says of a sequence now."""
        return torch.cat(list(self._run(self._last[sequence_id].unsqueeze(0), len(self._heads))))

    def commit(self, commits: Sequence[Commit]) -> None:
        """Keep the hidden state from which each sequence's last token was predicted; nothing ever runs ahead of it."""
        for commit in commits:
            if commit.features is None or not len(commit.features):
                raise ValueError(f"the commit of sequence {commit.sequence_id} has no features; give its layers'")
            self._last[commit.sequence_id] = commit.features[-1, 0].clone()

    def release(self, sequence_id: int) -> None:
        """Forget the sequence."""
        self._last.pop(sequence_id, None)

    def _run(self, hidden: Tensor, heads: int) -> Iterator[Tensor]:
        """``hidden`` [n, hidden] → the logits [n, vocab] of each of the first ``heads`` heads."""
        for blocks, out in self._heads[:heads]:
            state = hidden
            for block in blocks:
                state = state + silu(block(state))
            yield out(state)
