"""EAGLE-3 (arXiv 2503.01840): one decoder layer over three fused levels of the target, with a vocabulary of its own.

g_t = fc · cat(low, mid, high), hidden states of the target as they enter layers 2, n / 2 and n - 3 (transformers'
``hidden_states`` of those indices; see `feature_layers`). Attention reads cat[input_layernorm(e(x_{t+1})),
hidden_norm(g_t)], twice the hidden size, embedding first; the residual is g_t itself, or the normed one with the key
``norm_before_residual``. Own norm and head give draft ids; target id = i + d2t[i]. A drafted token goes on with the
layer's output before the norm in g's place.

Drafts are chains (the best token each time) or trees as in EAGLE-2 (arXiv 2406.16858): at each level the ``top_k``
likeliest nodes get ``top_k`` children each, and of all of them the nodes with the largest product of draft
probabilities along their path stay. Tokens are chosen without chance, also for requests that sample: one-hot drafts
are exact in verification whatever the tree.

Checkpoint: ``architectures`` LlamaForCausalLMEagle3 (or Eagle3LlamaForCausalLM), ``draft_vocab_size``; tensors
``fc.weight``, ``midlayer.*`` (read also as ``layers.0.*``), ``norm.weight``, ``lm_head.weight``, ``d2t`` and ``t2d``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.checkpoint import Checkpoint, drawn, untrained_sizes
from drafters.layers import CachedRows, DecoderLayer, LayerShape, rms_norm
from drafters.pairs import Pairs, PairState
from drafters.projections import project
from drafters.specs import Eagle3Spec, SpecError

__all__ = [
    "LAYER",
    "Eagle3",
    "feature_layers",
    "layer_ids",
    "midlayer",
    "target_ids",
    "tensor_shapes",
    "untrained",
]

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
LAYER = "midlayer."
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


def feature_layers(num_layers: int) -> tuple[int, int, int]:
    """Indices into ``hidden_states`` of a target with ``num_layers`` layers: 2, n // 2, n - 3.

    From six layers on these are in order. Below, each is clamped to 1 … n - 1, which leaves out the embeddings and the
    normed last state, and they are sorted: five layers give (2, 2, 2), four (1, 2, 2), two (1, 1, 1).
    """
    wanted = (2, num_layers // 2, num_layers - 3)
    low, mid, high = sorted(max(1, min(layer, num_layers - 1)) for layer in wanted)
    return low, mid, high


def tensor_shapes(shape: LayerShape, draft_vocab_size: int, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint."""
    hidden = shape.hidden_size
    return {
        "fc.weight": (hidden, 3 * hidden),
        f"{LAYER}hidden_norm.weight": (hidden,),
        f"{LAYER}input_layernorm.weight": (hidden,),
        **shape.tensors(LAYER),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft_vocab_size, hidden),
        "d2t": (draft_vocab_size,),
        "t2d": (vocab_size,),
    }


def untrained(target: Target, draft_vocab_size: int | None = None, seed: int = 0) -> Checkpoint:
    """Random weights for ``target``; a smaller draft vocabulary is a random part of the target's."""
    size = target.vocab_size if draft_vocab_size is None else draft_vocab_size
    if not 1 <= size <= target.vocab_size:
        raise SpecError(f"eagle3: 'draft_vocab_size' is {size}; allowed: 1 to {target.vocab_size}, the target's")
    config = {
        "architectures": [ARCHITECTURES[0]],
        "model_type": "llama",
        **untrained_sizes(target.hidden_size),
        "vocab_size": target.vocab_size,
        "draft_vocab_size": size,
        LAYER_IDS: list(feature_layers(target.num_layers)),
        "tie_word_embeddings": False,
    }
    shapes = tensor_shapes(Checkpoint(config, {}).layer_shape(attention_width=2), size, target.vocab_size)
    del shapes["d2t"], shapes["t2d"]
    order = torch.randperm(target.vocab_size, generator=torch.Generator().manual_seed(seed))
    ids = order[:size].sort().values
    t2d = torch.zeros(target.vocab_size, dtype=torch.bool)
    t2d[ids] = True
    return Checkpoint(config, {**drawn(shapes, seed), "d2t": ids - torch.arange(size), "t2d": t2d})


class _Growth:
    """A sequence's draft while it grows: every candidate so far, the children of a node always after it."""

    __slots__ = ("_depths", "_lines", "_parents", "_scores", "num_nodes", "outputs", "state", "token_ids")

    def __init__(self, state: PairState, num_nodes: int) -> None:
        self.state = state
        self.num_nodes = num_nodes
        self.token_ids: list[int] = []
        self.outputs: dict[int, Tensor] = {}  # of the nodes that were fed; -1 is the last committed pair
        self._parents: list[int] = []
        self._scores: list[float] = []  # log of the product of draft probabilities along the path
        self._depths: list[int] = []
        self._lines: dict[int, tuple[int, ...]] = {-1: ()}  # of each fed node: which fed ones it sees, itself last

    def add(self, parent: int, token_ids: Sequence[int], logs: Sequence[float]) -> None:
        """Add the children of a node, the likeliest first."""
        score, depth = (0.0, 1) if parent < 0 else (self._scores[parent], self._depths[parent] + 1)
        for token_id, log in zip(token_ids, logs, strict=True):
            self.token_ids.append(token_id)
            self._parents.append(parent)
            self._scores.append(score + log)
            self._depths.append(depth)

    def frontier(self, depth: int, top_k: int) -> list[int]:
        """The nodes of a level that get children: the ``top_k`` likeliest of those whose children can still stay.

        A child never ranks before its parent, so a parent that is the last to stay need not be fed.
        """
        level = [node for node in self._ranked()[: self.num_nodes - 1] if self._depths[node] == depth]
        return level[:top_k]

    def rows(self, nodes: Sequence[int], depth: int) -> CachedRows:
        """Where the K/V of nodes of one level go, behind the committed pairs and the nodes fed before, and what they
        see: all pairs, their ancestors and themselves."""
        fed, cache = len(self._lines) - 1, self.state.cache
        for place, node in enumerate(nodes, start=fed):
            self._lines[node] = (*self._lines[self._parents[node]], place)
        visible = torch.zeros((len(nodes), fed + len(nodes)), dtype=torch.bool)
        for row, node in enumerate(nodes):
            visible[row, list(self._lines[node])] = True
        past = self.state.length + fed
        mask: Tensor | None = None
        if not bool(visible.all()):
            mask = torch.zeros((len(nodes), past + len(nodes)), dtype=cache.keys.dtype)
            mask[:, self.state.length :].masked_fill_(~visible, float("-inf"))
            mask = mask.to(cache.keys.device)
        return CachedRows(cache, past, [self.state.length + depth - 1] * len(nodes), mask)

    def parent_output(self, node: int) -> Tensor:
        """The layer's output [hidden] at a node's parent."""
        return self.outputs[self._parents[node]]

    def draft(self, tree: bool) -> Draft:
        """The likeliest nodes; with each stands its parent, whose probability is at least as large."""
        stay = sorted(self._ranked()[: self.num_nodes])
        places = {node: place for place, node in enumerate(stay)} | {-1: -1}
        parents = tuple(places[self._parents[node]] for node in stay)
        return Draft(tuple(self.token_ids[node] for node in stay), parents=parents if tree else None)

    def _ranked(self) -> list[int]:
        # Of equal ones the earlier goes first, and so a parent goes before its child.
        return sorted(range(len(self._scores)), key=lambda node: (-self._scores[node], node))


class Eagle3:
    """Drafts a chain of ``num_tokens``, or a tree of that depth with ``tree_nodes`` nodes."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        target: Target,
        num_tokens: int = 4,
        tree_nodes: int | None = None,
        top_k: int = 8,
    ) -> None:
        """Raises SpecError for a checkpoint of another method or target, or with vocabularies that do not map."""
        config = checkpoint.config
        if not set(config.get("architectures") or ()) & set(ARCHITECTURES):
            raise SpecError(
                f"config.json has architectures {config.get('architectures')}; allowed: {', '.join(ARCHITECTURES)}"
            )
        shape = checkpoint.layer_shape(attention_width=2)
        if shape.hidden_size != target.hidden_size:
            raise SpecError(
                f"eagle3: the checkpoint's hidden size is {shape.hidden_size}, the target's {target.hidden_size}; "
                "give the one of this target"
            )
        size = checkpoint.number("draft_vocab_size")
        shapes = tensor_shapes(shape, size, checkpoint.number("vocab_size"))
        weights = midlayer(checkpoint).fitted(shapes, target.dtype, target.device)
        self.feature_layers = layer_ids(config, target.num_layers)
        self.tree = tree_nodes is not None
        self.max_nodes = num_tokens if tree_nodes is None else tree_nodes
        self._depth = num_tokens
        self._top_k = min(top_k, size) if self.tree else 1
        self._to_target = target_ids(weights["d2t"], weights["t2d"], target.vocab_size)
        self._normed_residual = bool(config.get("norm_before_residual", False))
        self._eps = shape.eps
        self._fc = project(weights["fc.weight"])
        self._head = project(weights["lm_head.weight"])
        self._embedding_norm = weights[f"{LAYER}input_layernorm.weight"]
        self._hidden_norm = weights[f"{LAYER}hidden_norm.weight"]
        self._final_norm = weights["norm.weight"]
        layer = DecoderLayer(shape, weights, LAYER)
        self._pairs = Pairs(layer, target, self._combine, ahead=min(self._top_k, self.max_nodes) * num_tokens)

    @classmethod
    def from_spec(cls, spec: Eagle3Spec, target: Target, cache_tokens: int) -> Eagle3:
        """Load the checkpoint or draw weights.

        Its K/V grow and go with the sequences, which together stay within ``cache_tokens``, the fed nodes of each
        aside.
        """
        checkpoint = (
            untrained(target, spec.draft_vocab_size, spec.seed) if spec.model is None else Checkpoint.load(spec.model)
        )
        return cls(checkpoint, target, spec.num_tokens, spec.tree_nodes, spec.tree_top_k)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Take the memory for a sequence's K/V."""
        self._pairs.open(sequence_id, max_length)

    @torch.inference_mode()
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """The first level needs the head alone; each further one is a pass over the nodes of all sequences that get
        children. A chain is a tree of one child each."""
        if not requests:
            return []
        output = self._pairs.outputs([request.sequence_id for request in requests])
        growths: list[_Growth] = []
        for request, last in zip(requests, output.unbind(), strict=True):
            state = self._pairs.state(request.sequence_id)
            growths.append(_Growth(state, min(request.num_tokens, self.max_nodes)))
            growths[-1].outputs[-1] = last
        grown = [(growth, -1) for growth in growths]  # the nodes whose outputs are at hand, row by row
        for depth in range(1, self._depth + 1):
            logs, tokens = self._candidates(output)
            for (growth, node), log, token in zip(grown, logs, tokens, strict=True):
                growth.add(node, token, log)
            if depth == self._depth:
                break
            levels = [(growth, growth.frontier(depth, self._top_k)) for growth in growths]
            grown = [(growth, node) for growth, nodes in levels for node in nodes]
            if not grown:
                break
            rows = [growth.rows(nodes, depth) for growth, nodes in levels if nodes]
            hidden = torch.stack([growth.parent_output(node) for growth, node in grown])
            output = self._pairs.run([growth.token_ids[node] for growth, node in grown], hidden, rows)
            for (growth, node), made in zip(grown, output.unbind(), strict=True):
                growth.outputs[node] = made
        return [growth.draft(self.tree) for growth in growths]

    @torch.inference_mode()
    def logits(self, sequence_id: int) -> Tensor:
        """[draft vocab]: what the next draft's first tokens are taken from."""
        return self._scores(self._pairs.outputs([sequence_id]))[0]

    @torch.inference_mode()
    def commit(self, commits: Sequence[Commit]) -> None:
        """Feed what was committed; drafted K/V is overwritten by it, or lies beyond it unseen."""
        self._pairs.commit(commits, self._fused)

    def release(self, sequence_id: int) -> None:
        """Free the sequence's K/V."""
        self._pairs.release(sequence_id)

    def _fused(self, features: Tensor) -> Tensor:
        """[n, 3, hidden] → [n, hidden]."""
        return self._fc(features.flatten(1))

    def _combine(self, embedded: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        normed = self._norm(hidden, self._hidden_norm)
        both = torch.cat((self._norm(embedded, self._embedding_norm), normed), dim=-1)
        return both, normed if self._normed_residual else hidden

    def _scores(self, output: Tensor) -> Tensor:
        return self._head(self._norm(output, self._final_norm))

    def _candidates(self, output: Tensor) -> tuple[list[list[float]], list[list[int]]]:
        """Log probabilities and target ids [n, top_k] of the likeliest tokens after each row, the likeliest first."""
        logits = self._scores(output)
        logs = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
        best = logs.topk(self._top_k, dim=-1)
        return best.values.tolist(), self._to_target[best.indices].tolist()

    def _norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(rows, weight, self._eps)


def midlayer(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its layer under one of its two published names."""
    old = "layers.0."
    named = {
        LAYER + name.removeprefix(old) if name.startswith(old) else name: tensor
        for name, tensor in checkpoint.tensors.items()
    }
    return Checkpoint(checkpoint.config, named)


def layer_ids(config: Mapping[str, object], num_layers: int) -> tuple[int, ...]:
    """The target's levels that a checkpoint reads: those it names, else `feature_layers`. Raises SpecError for others."""
    given = config.get(LAYER_IDS)
    if given is None:
        return feature_layers(num_layers)
    if not isinstance(given, list) or len(given) != 3 or not all(i in range(num_layers + 1) for i in given):
        raise SpecError(f"config.json has {given} for {LAYER_IDS!r}; allowed: three of 0 to {num_layers}")
    return tuple(given)


def target_ids(d2t: Tensor, t2d: Tensor, vocab_size: int) -> Tensor:
    """Target id of each draft id [draft vocab]. Raises SpecError unless offsets and flags name the same distinct
    ids."""
    ids = torch.arange(len(d2t), device=d2t.device) + d2t.long()
    flagged = t2d.nonzero().flatten()
    if not torch.equal(ids.sort().values, flagged) or int(flagged[-1]) >= vocab_size:
        raise SpecError(
            f"d2t and t2d of the checkpoint do not name the same {len(d2t)} ids below {vocab_size}; "
            "d2t holds offsets, target id = draft id + d2t[draft id]"
        )
    return ids
