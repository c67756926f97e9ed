"""Training of multi-token prediction: one more decoder layer, run on its own output as `drafters.mtp` runs it.

Losses are those of FastMTP (arXiv 2509.18362): cross-entropy with weights β^k over the steps of the recursion, β 0.6. Its
shortcut is left out: there, step k keeps the position and the keys of step 0's index, while the engine goes on to the
next positions with the chain's own keys. Here training does what is served (`chains`).
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from drafters.checkpoint import Checkpoint
from drafters.mtp import AFTER, LAYER, MAX_TOKENS, Mtp, untrained
from drafters.specs import SpecError
from drafters.training.frozen import FrozenTarget
from drafters.training.lora import adapt, merged
from drafters.training.method import Batch, Losses, MethodSettings
from drafters.training.methods.blocks import Norm, PairBlock, draw, layer_config, load_module, shape_settings
from drafters.training.methods.chains import Chains, Tally, chains_of, teacher, unroll

__all__ = ["MtpMethod", "MtpSettings"]

PREFIX = "mtp."


class MtpSettings(MethodSettings):
    """Sizes are those of fresh weights; a checkpoint brings its own, and its own recursion."""

    num_tokens: int = Field(default=3, ge=1, le=MAX_TOKENS)
    steps: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """Steps of the recursion that are learnt from; ``None`` is ``num_tokens``."""
    decay: float = Field(default=0.6, gt=0.0, le=1.0)
    """Weight of a step in proportion to the one before."""
    labels: Literal["soft", "hard"] = "soft"
    """Learnt is the target's distribution, or the text's token alone."""
    chains_per_row: int | None = Field(default=None, ge=1)
    """Chains learnt from in each row of a batch at most, drawn anew each time; ``None`` is all that fit into memory.
    Without gradients all are taken."""
    recursion: Literal["after_norm", "before_norm"] = "after_norm"
    intermediate_size: int | None = Field(default=None, ge=1)
    num_attention_heads: int | None = Field(default=None, ge=1)
    num_key_value_heads: int | None = Field(default=None, ge=1)
    head_dim: int | None = Field(default=None, ge=2)
    rope_theta: float | None = Field(default=None, gt=0.0)
    lora_rank: int | None = Field(default=None, ge=1)
    """Train low-rank changes of a checkpoint's weights alone; ``None`` trains all weights."""
    lora_alpha: float | None = Field(default=None, gt=0.0)
    """The change is scaled by alpha / rank; ``None`` is twice the rank."""

    @property
    def places_per_row(self) -> int | None:
        """Chains."""
        return self.chains_per_row

    @model_validator(mode="after")
    def _with_rank(self) -> MtpSettings:
        if self.lora_alpha is not None and self.lora_rank is None:
            raise ValueError("lora_alpha is given without lora_rank; give both, or neither to train all weights")
        return self


class MtpModule(nn.Module):
    """All weights, under their published names without ``mtp.``."""

    def __init__(self, checkpoint: Checkpoint, qk_norm: bool) -> None:
        super().__init__()
        shape = checkpoint.layer_shape(qk_norm=qk_norm)
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.pre_fc_norm_embedding = Norm(shape.hidden_size, shape.eps)
        self.pre_fc_norm_hidden = Norm(shape.hidden_size, shape.eps)
        self.layers = nn.ModuleList([PairBlock(shape, ["input_layernorm"])])
        self.norm = Norm(shape.hidden_size, shape.eps)

    def combine(self, embedded: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """As in `drafters.mtp.Mtp`: what the attention reads, and the residual."""
        both = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden))
        fused: Tensor = self.fc(torch.cat(both, dim=-1))
        normed: Tensor = self.layers[0].get_submodule("input_layernorm")(fused)
        return normed, fused


class MtpMethod:
    """Satisfies `drafters.training.method.Method`. The state that it reads is `Batch.hidden`: it asks for no layers."""

    settings = MtpSettings
    feature_layers: tuple[int, ...] = ()

    def __init__(self, target: FrozenTarget, settings: MtpSettings, start: Checkpoint | None = None) -> None:
        """Raises SpecError for LoRA without a checkpoint, and for one that the engine would refuse."""
        if start is None and settings.lora_rank is not None:
            raise SpecError(
                "mtp: 'lora_rank' is given without a checkpoint to change; give one to start from, or leave it out"
            )
        self._target, self._settings = target, settings
        self._steps = settings.num_tokens if settings.steps is None else settings.steps
        if start is None:
            fresh = untrained(target, recursion=settings.recursion)
            config = layer_config(
                fresh.config,
                intermediate_size=settings.intermediate_size,
                num_attention_heads=settings.num_attention_heads,
                num_key_value_heads=settings.num_key_value_heads,
                head_dim=settings.head_dim,
                rope_theta=settings.rope_theta,
            )
            self._module = MtpModule(Checkpoint(config, {}), qk_norm=True)
            draw(self._module, settings.seed)
        else:
            config = dict(start.config)
            tensors = {name: tensor for name, tensor in start.tensors.items() if name.startswith(PREFIX)}
            Mtp(Checkpoint(config, tensors), target, settings.num_tokens)  # the engine's own checks
            self._module = MtpModule(start, qk_norm=f"{LAYER}self_attn.q_norm.weight" in tensors)
            found = shape_settings(self._module.layers[0])
            settings.agree_with("mtp", {**found, "recursion": config.get("mtp_recursion", AFTER)})
            load_module(self._module, {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()})
            if settings.lora_rank is not None:
                alpha = 2.0 * settings.lora_rank if settings.lora_alpha is None else settings.lora_alpha
                adapt(self._module, settings.lora_rank, alpha, settings.seed)
        self._config = config
        self._after_norm = config.get("mtp_recursion", AFTER) == AFTER
        self._module.to(target.device)

    @property
    def module(self) -> nn.Module:
        """The trained weights."""
        return self._module

    def outputs(self, batch: Batch, chains: Chains) -> list[Tensor]:
        """States after the final norm of each step, each [rows, chains, hidden]; the target's head makes logits of
        them."""
        module = self._module
        hidden = batch.hidden.masked_fill(~batch.present.unsqueeze(-1), 0.0).to(module.norm.weight.dtype)
        block = module.layers[0]
        assert isinstance(block, PairBlock)
        feed = module.norm if self._after_norm else nn.Identity()
        made = unroll(block, module.combine, feed, self._target.embed, batch, hidden, chains)
        return [module.norm(output) for output in made]

    def logits(self, outputs: Tensor) -> Tensor:
        """[..., hidden] → [..., vocab]."""
        return self._target.head(outputs.to(self._target.dtype))

    def losses(self, batch: Batch, generator: torch.Generator) -> Losses:
        """Every step weighs ``decay`` times the one before."""
        steps, most = max(self._steps, self._settings.num_tokens), self._settings.chains_per_row
        chosen = chains_of(batch, steps, most, self._target.vocab_size, generator)
        return reduce(add, (self._losses(batch, chains) for chains in chosen))

    def _losses(self, batch: Batch, chains: Chains) -> Losses:
        settings = self._settings
        tally = Tally(batch, chains, settings.num_tokens)
        soft = teacher(batch, chains, self._target) if settings.labels == "soft" else None
        probs = None if soft is None else soft.logits.softmax(-1)
        for step, output in enumerate(self.outputs(batch, chains)):
            logits = self.logits(output[chains.told[step]])
            if step < settings.num_tokens:
                tally.score(step, logits.argmax(-1))
            if step < self._steps:
                wanted = tally.text(step) if soft is None or probs is None else probs[soft.rows(chains, step)]
                tally.learn(step, settings.decay**step, logits, wanted)
        return tally.losses()

    def checkpoint(self) -> Checkpoint:
        """What `drafters.mtp.Mtp` loads; low-rank changes are part of the weights."""
        return Checkpoint(self._config, {f"{PREFIX}{name}": tensor for name, tensor in merged(self._module).items()})
