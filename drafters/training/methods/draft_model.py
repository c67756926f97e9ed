"""Training of a small draft model with the target's tokenizer: distillation on what the target wrote (arXiv 2310.08461).

It reads the whole sequence, as it will when it drafts; the loss stands on the target's tokens alone: the divergence
KL(target ‖ draft) of the next token, and on request the cross-entropy to the token of the text.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from drafters.checkpoint import Checkpoint
from drafters.specs import SpecError
from drafters.training.chain_counts import ahead, chain_counts
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses, MethodSettings
from drafters.training.methods.teaching import piecewise, taught

__all__ = ["DraftModelMethod", "DraftModelSettings"]


class DraftModelSettings(MethodSettings):
    """Sizes of a Qwen 3 model with one matrix for embedding and head; the defaults make 1.8 M parameters at a vocabulary
    of 8,192."""

    hidden_size: int = Field(default=144, ge=8)
    layers: int = Field(default=3, ge=1)
    intermediate_size: int = Field(default=336, ge=8)
    heads: int = Field(default=4, ge=1)
    kv_heads: int = Field(default=2, ge=1)
    head_dim: int = Field(default=32, ge=2, multiple_of=2)
    embedding: Literal["projected", "random"] = "projected"
    """Begin with the main directions of the target's head, or with chance."""
    cross_entropy: float = Field(default=0.0, ge=0.0)
    """Weight of the cross-entropy to the token of the text beside the divergence."""

    @model_validator(mode="after")
    def _divisible(self) -> DraftModelSettings:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}; allowed: a multiple")
        return self


class DraftModelMethod:
    """Satisfies `drafters.training.method.Method`."""

    settings: ClassVar[type[MethodSettings]] = DraftModelSettings
    feature_layers: tuple[int, ...] = ()

    def __init__(self, target: FrozenTarget, settings: DraftModelSettings, start: Checkpoint | None = None) -> None:
        """A fresh model, or that of ``start``, whatever its family. Raises SpecError for one of another vocabulary."""
        self._target, self._settings = target, settings
        model: Any = _fresh(target, settings) if start is None else _loaded(start)
        if model.config.vocab_size != target.vocab_size:
            raise SpecError(
                f"draft_model: its vocabulary has {model.config.vocab_size} entries, the target's {target.vocab_size}; "
                "give a model with the target's tokenizer"
            )
        if start is not None:
            settings.agree_with("draft_model", _sizes(model.config))
        model.train(False)  # no dropout; gradients pass all the same
        self.module: nn.Module = model.to(device=target.device, dtype=torch.float32)
        self._model = model

    def logits(self, batch: Batch, rows: Tensor, places: Tensor) -> Tensor:
        """[n, vocab], float32: what follows the tokens at ``places`` of ``rows``, [n] each."""
        return self._head(self._states(batch)[rows, places])

    def _states(self, batch: Batch) -> Tensor:
        # Padding on the right is out of sight of all that is before it.
        states: Tensor = self._model.model(input_ids=batch.token_ids, use_cache=False).last_hidden_state
        return states

    def _head(self, states: Tensor) -> Tensor:
        return linear(states, self._model.get_output_embeddings().weight).float()

    def losses(self, batch: Batch, generator: torch.Generator) -> Losses:
        """Σ KL over the answers' tokens; chance plays no part."""
        num_tokens, weight = self._settings.num_tokens, self._settings.cross_entropy
        follows = ahead(batch.answers, 1)
        rows, places = follows.nonzero(as_tuple=True)  # the places whose next token is the target's
        wanted, own = batch.token_ids[rows, places + 1], self._states(batch)[rows, places]
        theirs = batch.hidden[rows, places]

        def at(part: slice) -> tuple[Tensor, Tensor, Tensor]:
            logits, aim = self._head(own[part]), taught(self._target, theirs[part]).softmax(dim=-1)
            divergence = cross_entropy(logits, aim, reduction="sum") - torch.special.entr(aim).sum()
            plain = (
                cross_entropy(logits, wanted[part], reduction="sum") if weight else divergence.detach().new_zeros(())
            )
            return divergence, plain, logits.detach().argmax(dim=-1)

        done = list(piecewise(at, len(rows), self._target.vocab_size))
        divergence, plain = (torch.stack(losses).sum() for losses in list(zip(*done, strict=True))[:2])
        best = torch.cat([tokens for _, _, tokens in done])
        # Drafting begins after a committed token of the target, and goes on while the tokens are the target's.
        right = torch.zeros_like(batch.answers)
        right[rows, places] = best == wanted
        starts = (batch.answers & follows).nonzero(as_tuple=True)
        steps = range(num_tokens)
        drafted, accepted = chain_counts(
            torch.stack([ahead(right, step)[starts] for step in steps], dim=1),
            torch.stack([ahead(follows, step)[starts] for step in steps], dim=1),
        )
        parts = {"divergence": divergence.detach()} | ({"cross_entropy": plain.detach()} if weight else {})
        return Losses(divergence + weight * plain, follows.sum(dim=1).float(), drafted, accepted, parts)

    def checkpoint(self) -> Checkpoint:
        """As transformers writes it: a tied head is not written twice."""
        config = self._model.config.to_dict()
        config["architectures"] = [type(self._model).__name__]
        tied = self._model.config.tie_word_embeddings
        tensors = {
            name: tensor.detach().cpu().clone()
            for name, tensor in self._model.state_dict().items()
            if not (tied and name == "lm_head.weight")
        }
        return Checkpoint(config, tensors)


def _fresh(target: FrozenTarget, settings: DraftModelSettings) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    given = target.config
    config = Qwen3Config(
        vocab_size=target.vocab_size,
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        head_dim=settings.head_dim,
        max_position_embeddings=given.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        attention_bias=False,
        initializer_range=0.02,
        bos_token_id=given.bos_token_id,
        eos_token_id=given.eos_token_id,
        pad_token_id=given.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):  # transformers draws from the global source of chance
        torch.manual_seed(settings.seed)
        model: Any = Qwen3ForCausalLM(config)
    scale = (2 * settings.layers) ** -0.5
    with torch.no_grad():
        for layer in model.model.layers:  # branches start small, so that depth does not blow up the sum
            layer.self_attn.o_proj.weight.mul_(scale)
            layer.mlp.down_proj.weight.mul_(scale)
        if settings.embedding == "projected" and settings.hidden_size <= target.hidden_size:
            weight = model.get_input_embeddings().weight
            weight.copy_(_directions(target.head_weight, settings.hidden_size) * (0.02 * weight.numel() ** 0.5))
    return model


def _sizes(config: Any) -> dict[str, Any]:
    """A model's sizes by the names of the settings."""
    heads = config.num_attention_heads
    return {
        "hidden_size": config.hidden_size,
        "layers": config.num_hidden_layers,
        "intermediate_size": config.intermediate_size,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", heads),
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
    }


def _directions(matrix: Tensor, size: int) -> Tensor:
    """[n, wide] → [n, size]: coordinates along its main directions, whole matrix of norm 1."""
    given = matrix.detach().float().cpu()
    vectors = torch.linalg.eigh(given.T @ given).eigenvectors  # ascending
    made: Tensor = given @ vectors[:, -size:]
    return made.div_(made.norm())


def _loaded(start: Checkpoint) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    values = {key: value for key, value in start.config.items() if key not in ("dtype", "torch_dtype")}
    maker: Any = AutoModelForCausalLM
    try:
        model = maker.from_config(AutoConfig.for_model(**values), dtype=torch.float32)
        missing, unexpected = model.load_state_dict(dict(start.tensors), strict=False)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SpecError(
            f"draft_model: the checkpoint is no causal model ({line}); give a Hugging Face folder"
        ) from error
    lacking = [name for name in missing if not (name == "lm_head.weight" and model.config.tie_word_embeddings)]
    if lacking or unexpected:
        raise SpecError(
            f"draft_model: the checkpoint lacks {lacking[:3]} and has no use for {list(unexpected)[:3]}; "
            "give one whose tensors are those its configuration describes"
        )
    return model
