"""Records what the published DFlash classes compute, for `test_dflash_parity`.

Run with ``python -m tests.drafters.record_dflash`` where the package ``dflash`` 0.1.0 is installed without what it asks
for beside torch and transformers (``pip install --no-deps dflash==0.1.0``). Checkpoints go through this project's own
files: what is saved here is what their ``from_pretrained`` loads.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from drafters.checkpoint import Checkpoint
from drafters.dflash2 import DFlash2Config
from drafters.dflash_config import DFlashConfig
from tests.drafters.blocks import wide

__all__ = ["ANCHOR", "CASES", "FILE"]

FILE = Path(__file__).parent.parent / "fixtures" / "dflash_reference.safetensors"
VOCAB, HIDDEN, BLOCK, ANCHOR = 24, 8, 4, 5
BASE: dict[str, Any] = {
    "hidden_size": HIDDEN, "intermediate_size": 12, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 4,
    "vocab_size": VOCAB, "block_size": BLOCK, "target_layer_ids": (0, 2), "mask_token_id": 3, "num_target_layers": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
SLIDING: dict[str, Any] = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 5}
CASES: dict[str, tuple[DFlashConfig | DFlash2Config, int]] = {
    # Configuration, and tokens before the anchor: more than the window where there is one.
    "full": (DFlashConfig(**BASE), 7),
    "causal-window": (DFlashConfig(**BASE, **SLIDING, is_causal=None), 12),
    "open-window": (DFlashConfig(**BASE, **SLIDING, is_causal=False), 12),
    "second": (DFlash2Config(DFlashConfig(**BASE, **SLIDING), 2, 4, 3, 4), 11),
}


def record(name: str) -> dict[str, Tensor]:
    """Weights, inputs and outputs of one case."""
    from dflash import DFlash2DraftModel, DFlashDraftModel

    config, length = CASES[name]
    second = isinstance(config, DFlash2Config)
    weights = {key: tensor.float() for key, tensor in wide(config.shapes(), seed=len(name)).items()}
    for key in weights:
        if key.endswith("_codebook"):
            weights[key] *= 12  # so that the selector overrules the logits
    generator = torch.Generator().manual_seed(length)
    embedding, head = (torch.randn((VOCAB, HIDDEN), generator=generator) for _ in range(2))
    features = torch.randn((length, 2, HIDDEN), generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        Checkpoint(config.to_json() | {"dtype": "float32"}, weights).save(Path(folder))
        model: Any = (DFlash2DraftModel if second else DFlashDraftModel).from_pretrained(folder).eval()
    block = torch.tensor([ANCHOR] + [3] * (BLOCK - 1))
    with torch.inference_mode():
        hidden = model(
            target_hidden=features.flatten(1).unsqueeze(0),
            noise_embedding=embedding[block].unsqueeze(0),
            position_ids=torch.arange(length + BLOCK).unsqueeze(0),
        )
        output_head: Any = nn.Linear(HIDDEN, VOCAB, bias=False)
        output_head.weight = nn.Parameter(head)
        made = {"embedding": embedding, "head": head, "features": features, "hidden": hidden[0]}
        made["logits"] = model.compute_logits(hidden[:, 1:], output_head)[0]
        if second:
            for temperature in (0, 1):
                torch.manual_seed(0)
                path, ids, shares = model.propose(
                    hidden[:, 1:], torch.tensor([ANCHOR]), output_head, float(temperature)
                )
                made[f"path{temperature}"] = path[0]
            made["probs"] = torch.zeros((BLOCK - 1, VOCAB)).scatter_(1, ids[0], shares[0].float())
    made |= {f"weights/{key}": tensor for key, tensor in weights.items()}
    return {f"{name}/{key}": tensor.detach().clone().contiguous() for key, tensor in made.items()}


def main() -> int:
    """Write the file."""
    tensors: dict[str, Tensor] = {}
    for name in CASES:
        tensors |= record(name)
    configs = {name: json.dumps(config.to_json()) for name, (config, _) in CASES.items()}
    save_file(tensors, FILE, metadata=configs | {"made with": "dflash 0.1.0"})
    sys.stderr.write(f"{FILE}: {FILE.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
