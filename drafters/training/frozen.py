"""The target as training sees it: frozen, run over padded rows at once, its hidden states handed out.

transformers runs it, so gradients pass through its embedding and head; `drafters.engine.target` is the same model as the
engine runs it. 4-bit weights are those the engine would hold: quantized and brought back in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from drafters.quantization import Weights, quantize_dequantize
from drafters.training.stage import StageError

__all__ = ["FrozenTarget"]

EXPERTS = ("gate_up_proj", "down_proj")
"""Stacked weights of a mixture's experts, [experts, out, in]."""


class FrozenTarget:
    """Satisfies `drafters.base.Target`; every weight is frozen, gradients flow through to what goes in."""

    def __init__(self, model: Any, folder: Path | None = None, weights: Weights = "plain") -> None:
        """Take a transformers causal model. Raises StageError for an unknown way to hold its weights."""
        if weights not in get_args(Weights):
            raise StageError(f"weights {weights!r} given; allowed: {', '.join(get_args(Weights))}")
        model.train(False)
        model.requires_grad_(False)
        if weights != "plain":
            for module in model.model.layers.modules():
                for weight in _projections(module):
                    weight.copy_(quantize_dequantize(weight, weights))
        self.config, self.folder, self.weights = model.config, folder, weights
        self._model = model

    @classmethod
    def load(
        cls, folder: Path, weights: Weights = "plain", dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> FrozenTarget:
        """Read a local Hugging Face folder. Raises StageError for one that holds no model."""
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM

        if not (folder / "config.json").is_file():
            raise StageError(f"{folder} holds no config.json; give the target's local Hugging Face folder")
        loader: Any = AutoModelForCausalLM
        try:
            model = loader.from_pretrained(folder, dtype=dtype, local_files_only=True)
        except (OSError, RuntimeError, ValueError, SafetensorError) as error:
            line = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise StageError(f"{folder} cannot be loaded ({line}); get the target again") from error
        return cls(model.to(device), folder, weights)

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding and width of the logits."""
        return int(self._model.get_input_embeddings().weight.shape[0])

    @property
    def hidden_size(self) -> int:
        """Width of a hidden state."""
        return int(self.config.hidden_size)

    @property
    def num_layers(self) -> int:
        """Decoder layers; ``hidden_states`` has one entry more."""
        return int(self.config.num_hidden_layers)

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and hidden states."""
        dtype: torch.dtype = self._model.get_input_embeddings().weight.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._model.get_input_embeddings().weight.device
        return device

    @property
    def head_weight(self) -> Tensor:
        """[vocab, hidden], frozen."""
        weight: Tensor = self._model.get_output_embeddings().weight
        return weight

    def embed(self, token_ids: Tensor) -> Tensor:
        """[...] → [..., hidden]: the target's embeddings."""
        rows: Tensor = self._model.get_input_embeddings()(token_ids)
        return rows

    def head(self, hidden: Tensor) -> Tensor:
        """[..., hidden], after the final norm → [..., vocab]: the target's logits."""
        return linear(hidden, self.head_weight)

    @torch.no_grad()
    def hidden_states(self, token_ids: Tensor, lengths: Sequence[int], layers: Sequence[int]) -> Tensor:
        """Run rows [rows, longest], each padded on the right beyond its length → [rows, longest, layers, hidden].

        ``layers`` count as in `drafters.base.Drafter.feature_layers`: 0 the embeddings, i the output of layer i, the
        last one after the final norm. What stands beyond a row's length means nothing.
        """
        wrong = [layer for layer in layers if not 0 <= layer <= self.num_layers]
        if wrong:
            raise StageError(f"layer {wrong[0]} asked for; allowed: 0 to {self.num_layers}")
        mask = None
        if min(lengths) < token_ids.shape[1]:
            ends = torch.tensor(list(lengths), device=token_ids.device).unsqueeze(1)
            mask = (torch.arange(token_ids.shape[1], device=token_ids.device) < ends).long()
        # The causal mask alone keeps right padding from what is before it; the mask spares its own rows from NaN.
        states = self._model.model(
            input_ids=token_ids, attention_mask=mask, use_cache=False, output_hidden_states=True
        ).hidden_states
        return torch.stack([states[layer] for layer in layers], dim=2)

    def fingerprint(self) -> str:
        """SHA-256 over names, types and values of all weights: two targets are the same or their hidden states are
        not."""
        whole = hashlib.sha256()
        for name, weight in sorted(self._model.state_dict().items()):
            whole.update(f"{name}\0{weight.dtype}\0{tuple(weight.shape)}\0".encode())
            whole.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return whole.hexdigest()


def _projections(module: nn.Module) -> Iterator[Tensor]:
    """The matrices of a module itself that the engine holds in four bits, [out, in]: those of linear layers, and of each
    expert of a mixture, which are stacked; not the router, which is no linear layer either."""
    if isinstance(module, nn.Linear):
        yield module.weight.detach()
        return
    for name in EXPERTS:
        stacked = getattr(module, name, None)
        if isinstance(stacked, nn.Parameter):
            yield from stacked.detach()
