"""Multi-token prediction (DeepSeek-V3, arXiv 2412.19437; Qwen): one more decoder layer, applied to its own output.

u_t = W · cat[RMSNorm_e(e(x_{t+1})), RMSNorm_h(h_t)], embedding first, h_t the target's last state after its final norm
→ one decoder layer with K/V of its own → final norm → the target's head, which predicts x_{t+2}. A further token takes
the drafted one as x_{t+1} and the layer's output as h_t: after the final norm in Qwen's models, before it in
DeepSeek's; the key ``mtp_recursion`` of ``config.json`` says ``after_norm`` (also without the key) or ``before_norm``.

Tokens are the most probable ones, without chance, also for requests that sample: such a one-hot draft is exact.

Checkpoint: Qwen's names, ``mtp.fc``, ``mtp.pre_fc_norm_embedding``, ``mtp.pre_fc_norm_hidden``, ``mtp.layers.0.*``,
``mtp.norm``, by themselves or among a target's own tensors. Queries and keys are normed where the file has their norms.
Norms multiply by their weight as it stands. Qwen3.5's norms of 1 + w, its output gate and its partly rotated heads go
with targets that this engine does not run; a file with such heads is refused, norms cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.checkpoint import Checkpoint, drawn, untrained_sizes
from drafters.layers import CachedRows, DecoderLayer, LayerShape, rms_norm
from drafters.pairs import Pairs
from drafters.projections import project
from drafters.specs import MtpSpec, SpecError

__all__ = ["MAX_TOKENS", "Mtp", "tensor_shapes", "untrained"]

MAX_TOKENS = 7
LAYER = "mtp.layers.0."
AFTER, BEFORE = "after_norm", "before_norm"


def tensor_shapes(shape: LayerShape) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint."""
    hidden = shape.hidden_size
    return {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
        f"{LAYER}input_layernorm.weight": (hidden,),
        **shape.tensors(LAYER),
        "mtp.norm.weight": (hidden,),
    }


def untrained(target: Target, seed: int = 0, recursion: str = AFTER) -> Checkpoint:
    """Random weights of a Qwen3-like layer for ``target``."""
    config = {
        "architectures": ["MTPDraftModel"],
        "num_nextn_predict_layers": 1,
        "mtp_recursion": recursion,
        **untrained_sizes(target.hidden_size),
        "vocab_size": target.vocab_size,
    }
    shape = Checkpoint(config, {}).layer_shape(qk_norm=True)
    return Checkpoint(config, drawn(tensor_shapes(shape), seed))


class Mtp:
    """Drafts chains of up to seven tokens: the first from the pass over the committed tokens, each other one from a
    pass over all sequences that still want one."""

    tree = False

    def __init__(self, checkpoint: Checkpoint, target: Target, num_tokens: int = 3) -> None:
        """Raises SpecError for more tokens than seven, for a checkpoint of more layers than one, of another target or
        with another recursion."""
        if not 1 <= num_tokens <= MAX_TOKENS:
            raise SpecError(f"mtp: 'num_tokens' is {num_tokens}; allowed: 1 to {MAX_TOKENS}")
        layers = checkpoint.config.get("num_nextn_predict_layers", 1)
        if layers != 1:
            raise SpecError(f"mtp: the checkpoint has {layers} layers of prediction; this engine runs those with one")
        recursion = checkpoint.config.get("mtp_recursion", AFTER)
        if recursion not in (AFTER, BEFORE):
            raise SpecError(f"config.json has {recursion!r} for 'mtp_recursion'; allowed: {AFTER!r}, {BEFORE!r}")
        shape = checkpoint.layer_shape(qk_norm=f"{LAYER}self_attn.q_norm.weight" in checkpoint.tensors)
        if shape.hidden_size != target.hidden_size:
            raise SpecError(
                f"mtp: the checkpoint's hidden size is {shape.hidden_size}, the target's {target.hidden_size}; "
                "give the one of this target"
            )
        weights = checkpoint.fitted(tensor_shapes(shape), target.dtype, target.device)
        self.max_nodes = num_tokens
        self.feature_layers = (target.num_layers,)
        self._target = target
        self._after_norm = recursion == AFTER
        self._eps = shape.eps
        self._fuse = project(weights["mtp.fc.weight"])
        self._embedding_norm = weights["mtp.pre_fc_norm_embedding.weight"]
        self._hidden_norm = weights["mtp.pre_fc_norm_hidden.weight"]
        self._input_norm = weights[f"{LAYER}input_layernorm.weight"]
        self._final_norm = weights["mtp.norm.weight"]
        self._pairs = Pairs(DecoderLayer(shape, weights, LAYER), target, self._combine, ahead=num_tokens)

    @classmethod
    def from_spec(cls, spec: MtpSpec, target: Target, cache_tokens: int) -> Mtp:
        """Load the checkpoint, of a target's folder its ``mtp.`` tensors alone, or draw weights.

        Its K/V grow and go with the sequences, which together stay within ``cache_tokens``.
        """
        checkpoint = untrained(target, spec.seed) if spec.model is None else Checkpoint.load(spec.model, "mtp.")
        return cls(checkpoint, target, spec.num_tokens)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Take the memory for a sequence's K/V."""
        self._pairs.open(sequence_id, max_length)

    @torch.inference_mode()
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """The first token of each sequence needs the head alone; each further depth is one pass over those that want
        it."""
        lengths = [min(request.num_tokens, self.max_nodes) for request in requests]
        drafts: list[list[int]] = [[] for _ in requests]
        hidden: dict[int, Tensor] = {}  # by request: what stands in for the target's state at the next pair
        for depth in range(max(lengths, default=0)):
            going = [index for index, length in enumerate(lengths) if length > depth]
            ids = [requests[index].sequence_id for index in going]
            if depth:
                states = [self._pairs.state(sequence_id) for sequence_id in ids]
                rows = [CachedRows.chain(state.cache, state.length + depth - 1, 1) for state in states]
                tokens = [drafts[index][-1] for index in going]
                output = self._pairs.run(tokens, torch.stack([hidden[index] for index in going]), rows)
            else:
                output = self._pairs.outputs(ids)
            normed = self._norm(output, self._final_norm)
            best = self._target.head(normed).argmax(dim=-1).tolist()
            back = normed if self._after_norm else output
            for place, index in enumerate(going):
                drafts[index].append(best[place])
                hidden[index] = back[place]
        return [Draft(tuple(tokens)) for tokens in drafts]

    @torch.inference_mode()
    def logits(self, sequence_id: int) -> Tensor:
        """[vocab]: what the next draft's first token is taken from."""
        return self._target.head(self._norm(self._pairs.outputs([sequence_id]), self._final_norm))[0]

    @torch.inference_mode()
    def commit(self, commits: Sequence[Commit]) -> None:
        """Feed what was committed; drafted K/V is overwritten by it, or lies beyond it unseen."""
        self._pairs.commit(commits, _last_state)

    def release(self, sequence_id: int) -> None:
        """Free the sequence's K/V."""
        self._pairs.release(sequence_id)

    def _combine(self, embedded: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        both = (self._norm(embedded, self._embedding_norm), self._norm(hidden, self._hidden_norm))
        fused = self._fuse(torch.cat(both, dim=-1))
        return self._norm(fused, self._input_norm), fused

    def _norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(rows, weight, self._eps)


def _last_state(features: Tensor) -> Tensor:
    """[n, 1, hidden] → [n, hidden]."""
    return features[:, 0]
