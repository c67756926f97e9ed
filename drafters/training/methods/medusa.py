"""Training of Medusa's heads (arXiv 2401.10774, Medusa-1: the target stays as it is).

Head i reads h_t and predicts x_{t+2+i}; its loss, weighted by 0.8^i as in the paper, is the cross-entropy to the
target's own distribution of that token, which is its head applied to h_{t+1+i}. A place t counts where x_{t+1}, the last
committed token when the engine drafts there, and all tokens to be drafted are the target's.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, silu

from drafters.checkpoint import Checkpoint
from drafters.medusa import tensor_shapes, with_own_head
from drafters.specs import SpecError
from drafters.training.chain_counts import ahead, chain_counts
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses, MethodSettings
from drafters.training.methods.teaching import piecewise, taught

__all__ = ["MedusaMethod", "MedusaSettings"]


class MedusaSettings(MethodSettings):
    """``num_tokens`` is the number of heads."""

    layers: int = Field(default=1, ge=1, le=8)
    """Blocks of each head, each with weights of its own."""
    original_lm_head: bool = True
    """Project with the target's own head instead of with a trained copy of it for each head."""
    loss: Literal["soft", "hard"] = "soft"
    """Against the target's distribution, or against the token of the text."""
    decay: float = Field(default=0.8, gt=0.0, le=1.0)
    """Weight of a head's loss by that of the head before it."""


class MedusaMethod:
    """Satisfies `drafters.training.method.Method`."""

    settings: ClassVar[type[MethodSettings]] = MedusaSettings
    feature_layers: tuple[int, ...] = ()

    def __init__(self, target: FrozenTarget, settings: MedusaSettings, start: Checkpoint | None = None) -> None:
        """Heads that begin as the target's own prediction, or those of ``start``.

        Raises SpecError for a checkpoint of another target, or with fewer heads than tokens are to be drafted.
        """
        self._target, self._settings = target, settings
        if start is None:
            heads, layers, own = settings.num_tokens, settings.layers, not settings.original_lm_head
        else:
            heads, layers = start.number("medusa_num_heads"), start.number("medusa_num_layers")
            own = with_own_head(start)
            settings.agree_with("medusa", {"layers": layers, "original_lm_head": not own})
            if heads < settings.num_tokens:
                raise SpecError(f"medusa: num_tokens is {settings.num_tokens}, but the checkpoint has {heads} heads")
        shapes = tensor_shapes(heads, layers, target.hidden_size, target.vocab_size, own)
        if start is None:
            weights = {name: torch.zeros(shape) for name, shape in shapes.items()}
            if own:
                head_weight = target.head_weight.detach().float().cpu()
                weights |= {f"{head}.{layers}.weight": head_weight.clone() for head in range(heads)}
        else:
            weights = start.fitted(shapes, torch.float32, torch.device("cpu"))
        self._heads, self._layers, self._own = heads, layers, own
        # Names of parameters hold no dots in torch.
        held = {name.replace(".", "_"): nn.Parameter(weight.to(target.device)) for name, weight in weights.items()}
        self.module = nn.ParameterDict(held)
        self._names = {name: name.replace(".", "_") for name in shapes}

    def logits(self, head: int, hidden: Tensor) -> Tensor:
        """``hidden`` [n, hidden] → [n, vocab], float32: what a head says of the token ``head`` + 2 further."""
        state = hidden
        for layer in range(self._layers):
            place = f"{head}.{layer}.linear"
            state = state + silu(linear(state, self._weight(f"{place}.weight"), self._weight(f"{place}.bias")))
        if self._own:
            return linear(state, self._weight(f"{head}.{self._layers}.weight")).float()
        return self._target.head(state).float()

    def losses(self, batch: Batch, generator: torch.Generator) -> Losses:
        """Σ decay^i · cross-entropy over all places and heads; chance plays no part."""
        tried = [ahead(batch.answers, 1) & ahead(batch.answers, 2)]
        for head in range(1, self._heads):
            tried.append(tried[-1] & ahead(batch.answers, 2 + head))
        rows, places = tried[0].nonzero(as_tuple=True)  # [n] each
        marks = torch.stack([mark[rows, places] for mark in tried], dim=1)  # [n, heads]

        def at(part: slice) -> tuple[Tensor, Tensor]:
            return self._losses_at(batch, rows[part], places[part], marks[part])

        done = list(piecewise(at, len(rows), self._heads * self._target.vocab_size))
        by_head = torch.stack([losses for losses, _ in done]).sum(dim=0)
        drafted, accepted = chain_counts(torch.cat([right for _, right in done]), marks, self._settings.num_tokens)
        decay = torch.tensor([self._settings.decay**head for head in range(self._heads)], device=rows.device)
        by_place = (marks * decay).sum(dim=1)  # no matrix product, which autocast would round
        weights = decay.new_zeros(len(batch.token_ids)).index_add_(0, rows, by_place)
        parts = {f"head_{head}": loss for head, loss in enumerate(by_head.detach().unbind())}
        return Losses((decay * by_head).sum(), weights, drafted, accepted, parts)

    def _losses_at(self, batch: Batch, rows: Tensor, places: Tensor, marks: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy of each head [heads], and whether its best token is the text's [n, heads]."""
        hidden = batch.hidden[rows, places]  # [n, hidden]
        right = torch.zeros_like(marks)
        soft = self._settings.loss == "soft"
        aims, aim_at = self._aims(batch, rows, places, marks) if soft else (None, None)
        made = []
        for head, here in enumerate(marks.unbind(dim=1)):
            at = places[here] + 2 + head
            wanted = batch.token_ids[rows[here], at]
            logits = self.logits(head, hidden[here])
            right[here, head] = logits.detach().argmax(dim=-1) == wanted
            aim = wanted if aims is None or aim_at is None else aims[aim_at[rows[here], at]]
            made.append(cross_entropy(logits, aim, reduction="sum"))
        return torch.stack(made), right

    def checkpoint(self) -> Checkpoint:
        """The names of the released trainer, with vLLM's keys of the configuration beside them."""
        config: dict[str, Any] = {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "medusa_num_heads": self._heads,
            "medusa_num_layers": self._layers,
            "num_heads": self._heads,
            "num_hidden_layers": self._layers,
            "hidden_size": self._target.hidden_size,
            "vocab_size": self._target.vocab_size,
            "original_lm_head": not self._own,
            "medusa_fc_bias": True,
            "base_model_name_or_path": None if self._target.folder is None else self._target.folder.name,
        }
        return Checkpoint(config, {name: self._weight(name).detach().cpu().clone() for name in self._names})

    @torch.no_grad()
    def _aims(self, batch: Batch, rows: Tensor, places: Tensor, marks: Tensor) -> tuple[Tensor, Tensor]:
        """The target's distributions [m, vocab] of all tokens that are predicted, once for all heads, and which one is
        whose [rows, length]."""
        predicted = torch.zeros_like(batch.answers)
        for head, here in enumerate(marks.unbind(dim=1)):
            predicted[rows[here], places[here] + 2 + head] = True
        own, at = predicted.nonzero(as_tuple=True)
        numbers = torch.zeros_like(batch.token_ids)
        numbers[own, at] = torch.arange(len(own), device=own.device)
        return taught(self._target, batch.hidden[own, at - 1]).softmax(dim=-1), numbers

    def _weight(self, name: str) -> Tensor:
        weight: Tensor = self.module[self._names[name]]
        return weight
