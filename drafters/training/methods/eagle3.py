"""Training of EAGLE-3 (arXiv 2503.01840): one decoder layer over three levels of the target, by training-time test.

Every chain is unrolled as it is drafted (`chains`); step i weighs 0.8^i. Learnt is the target's distribution restricted
to the draft vocabulary and normed to one again; a place whose likeliest token is not in it is left out, for there is
nothing right to say. It counts as drafted and not accepted all the same.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from drafters.checkpoint import Checkpoint
from drafters.eagle3 import LAYER, LAYER_IDS, Eagle3, untrained
from drafters.specs import MAX_NODES, SpecError
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch, Losses, MethodSettings
from drafters.training.methods.blocks import Norm, PairBlock, draw, layer_config, load_module, shape_settings
from drafters.training.methods.chains import Chains, Tally, chains_of, teacher, unroll
from drafters.training.methods.draft_vocabulary import choose, drafted_ids, head_rows, listed_ids

__all__ = ["Eagle3Method", "Eagle3Settings"]


def choose_vocabulary(counts: Tensor, size: int) -> tuple[int, ...]:
    """The ``size`` ids with the largest ``counts`` [vocab], ascending; of equal ones the lower ids.

    ``counts`` are how often the target wrote each token, answers of the training side alone. Raises SpecError for a size
    that is not within the vocabulary.
    """
    if not 1 <= size <= len(counts):
        raise SpecError(f"eagle3: 'draft_vocab_size' is {size}; allowed: 1 to {len(counts)}, the target's vocabulary")
    order = counts.cpu().sort(descending=True, stable=True).indices
    return tuple(sorted(order[:size].tolist()))


class Eagle3Settings(MethodSettings):
    """Sizes are those of fresh weights; a checkpoint brings its own and its layers, and its vocabulary where that fits
    the answers."""

    num_tokens: int = Field(default=4, ge=1, le=63)
    steps: int | None = Field(default=None, ge=1, le=MAX_NODES)
    """Unrolled steps that are learnt from; ``None`` is ``num_tokens``."""
    decay: float = Field(default=0.8, gt=0.0, le=1.0)
    """Weight of a step in proportion to the one before."""
    labels: Literal["soft", "hard"] = "soft"
    """Learnt is the target's distribution, or the text's token alone."""
    chains_per_row: int | None = Field(default=None, ge=1)
    """Chains learnt from in each row of a batch at most, drawn anew each time; ``None`` is all that fit into memory.
    Without gradients all are taken."""
    draft_vocab_size: int | None = Field(default=None, ge=1)
    """How many of the target's tokens can be drafted; ``None`` is all. With it goes ``draft_vocabulary``."""
    draft_vocabulary: tuple[int, ...] | None = None
    """Their ids, as `draft_vocabulary.choose` chooses them from counts of the answers' tokens; given for a checkpoint,
    rows of its head are kept where it has the token and the target's where it has not."""
    vocabulary_gain: float = Field(default=0.02, ge=0.0, le=1.0)
    """A checkpoint's vocabulary is chosen anew where that takes in more than this share of the answers' tokens; 1 never
    does it."""
    feature_layers: tuple[int, int, int] | None = None
    """Layers that are fused, counted as in `drafters.base.Drafter`; ``None`` is the usual three."""
    norm_before_residual: bool = False
    intermediate_size: int | None = Field(default=None, ge=1)
    num_attention_heads: int | None = Field(default=None, ge=1)
    num_key_value_heads: int | None = Field(default=None, ge=1)
    head_dim: int | None = Field(default=None, ge=2)
    rope_theta: float | None = Field(default=None, gt=0.0)

    @property
    def places_per_row(self) -> int | None:
        """Chains."""
        return self.chains_per_row

    def counted(self, counts: Tensor, start: Checkpoint | None) -> tuple[Eagle3Settings, str]:
        """Return the same with the ``draft_vocabulary`` that `draft_vocabulary.choose` chooses by ``counts`` [vocab] of
        the training side's answers, and what is to be said of it."""
        choice = choose(counts, start, self.draft_vocab_size, self.draft_vocabulary, self.vocabulary_gain)
        made = self if choice.ids is None else self.model_copy(update={"draft_vocabulary": choice.ids})
        return made, choice.said


class Eagle3Module(nn.Module):
    """All weights, under their published names."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        shape = checkpoint.layer_shape(attention_width=2)
        self.fc = nn.Linear(3 * shape.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = PairBlock(shape, ["hidden_norm", "input_layernorm"])
        self.norm = Norm(shape.hidden_size, shape.eps)
        self.lm_head = nn.Linear(shape.hidden_size, checkpoint.number("draft_vocab_size"), bias=False)
        self._normed_residual = bool(checkpoint.config.get("norm_before_residual", False))

    def combine(self, embedded: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """As in `drafters.eagle3.Eagle3`: what the attention reads, and the residual."""
        normed: Tensor = self.midlayer.get_submodule("hidden_norm")(hidden)
        both = torch.cat((self.midlayer.get_submodule("input_layernorm")(embedded), normed), dim=-1)
        return both, normed if self._normed_residual else hidden


class Eagle3Method:
    """Satisfies `drafters.training.method.Method`."""

    settings = Eagle3Settings

    def __init__(self, target: FrozenTarget, settings: Eagle3Settings, start: Checkpoint | None = None) -> None:
        """The head begins as the target's own rows where no checkpoint has others. Raises SpecError for a vocabulary that
        is not given or does not fit, and for a checkpoint that the engine would refuse."""
        self._target, self._settings = target, settings
        self._steps = settings.num_tokens if settings.steps is None else settings.steps
        if start is None:
            ids = torch.tensor(listed_ids(settings.draft_vocabulary, settings.draft_vocab_size, target.vocab_size))
            config = layer_config(
                untrained(target, len(ids)).config,
                intermediate_size=settings.intermediate_size,
                num_attention_heads=settings.num_attention_heads,
                num_key_value_heads=settings.num_key_value_heads,
                head_dim=settings.head_dim,
                rope_theta=settings.rope_theta,
            )
            if settings.feature_layers is not None:
                config[LAYER_IDS] = list(settings.feature_layers)
            config["norm_before_residual"] = settings.norm_before_residual
            module = Eagle3Module(Checkpoint(config, {}))
            draw(module, settings.seed)
            with torch.no_grad():
                module.lm_head.weight.copy_(head_rows(ids, target.head_weight))
        else:
            layers = Eagle3(start, target, settings.num_tokens).feature_layers  # the engine's own checks
            ids, kept = drafted_ids(start), settings.draft_vocabulary is None
            if not kept:
                ids = torch.tensor(listed_ids(settings.draft_vocabulary, settings.draft_vocab_size, target.vocab_size))
            config = {**start.config, "draft_vocab_size": len(ids)}
            module = Eagle3Module(Checkpoint(config, {}))
            found = {
                **shape_settings(module.midlayer),
                "feature_layers": layers,
                "norm_before_residual": bool(config.get("norm_before_residual", False)),
            }
            settings.agree_with("eagle3", {**found, "draft_vocab_size": len(ids)} if kept else found)
            own = {_current(name): tensor for name, tensor in start.tensors.items()}
            load_module(module, own if kept else {**own, "lm_head.weight": head_rows(ids, target.head_weight, start)})
        self._config, self._module = config, module.to(target.device)
        self._ids = ids.to(target.device)
        self._draft_ids = torch.full((target.vocab_size,), -1, device=target.device)
        self._draft_ids[self._ids] = torch.arange(len(ids), device=target.device)
        self.feature_layers = Eagle3(self.checkpoint(), target, settings.num_tokens).feature_layers

    @property
    def module(self) -> nn.Module:
        """The trained weights; the head is among them."""
        return self._module

    def outputs(self, batch: Batch, chains: Chains) -> list[Tensor]:
        """States after the final norm of each step, each [rows, chains, hidden]."""
        module = self._module
        levels = batch.features.masked_fill(~batch.present[:, :, None, None], 0.0).to(module.norm.weight.dtype)
        fused = module.fc(levels.flatten(2))
        made = unroll(module.midlayer, module.combine, nn.Identity(), self._target.embed, batch, fused, chains)
        return [module.norm(output) for output in made]

    def logits(self, outputs: Tensor) -> Tensor:
        """[..., hidden] → [..., draft vocab]."""
        made: Tensor = self._module.lm_head(outputs)
        return made

    def losses(self, batch: Batch, generator: torch.Generator) -> Losses:
        """Every step weighs ``decay`` times the one before."""
        steps, most = max(self._steps, self._settings.num_tokens), self._settings.chains_per_row
        chosen = chains_of(batch, steps, most, self._target.vocab_size, generator)
        return reduce(add, (self._losses(batch, chains) for chains in chosen))

    def _losses(self, batch: Batch, chains: Chains) -> Losses:
        settings = self._settings
        tally = Tally(batch, chains, settings.num_tokens)
        soft = teacher(batch, chains, self._target) if settings.labels == "soft" else None
        probs = likeliest = None
        if soft is not None:
            likeliest = self._draft_ids[soft.logits.argmax(-1)]
            probs = soft.logits[:, self._ids].softmax(-1)
        for step, output in enumerate(self.outputs(batch, chains)):
            logits = self.logits(output[chains.told[step]])
            if step < settings.num_tokens:
                tally.score(step, self._ids[logits.argmax(-1)])
            if step >= self._steps:
                continue
            if soft is None or probs is None or likeliest is None:
                wanted = self._draft_ids[tally.text(step)]
                known = wanted >= 0
            else:
                rows = soft.rows(chains, step)
                wanted, known = probs[rows], likeliest[rows] >= 0
            tally.learn(step, settings.decay**step, logits[known], wanted[known], known)
        return tally.losses()

    def checkpoint(self) -> Checkpoint:
        """What `drafters.eagle3.Eagle3` loads."""
        ids = self._ids.cpu()
        known = torch.zeros(self._target.vocab_size, dtype=torch.bool)
        known[ids] = True
        maps = {"d2t": ids - torch.arange(len(ids)), "t2d": known}
        weights = {name: tensor.detach().clone() for name, tensor in self._module.state_dict().items()}
        return Checkpoint(self._config, {**weights, **maps})


def _current(name: str) -> str:
    """The layer has two published names."""
    old = "layers.0."
    return LAYER + name.removeprefix(old) if name.startswith(old) else name
