"""Batches for the tests of block drafters: one tiny target in float64, texts with marked answers, both sides' drafters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from drafters.base import DraftRequest
from drafters.checkpoint import Checkpoint
from drafters.dflash import DFlash
from drafters.dflash2 import DFlash2, DFlash2Config
from drafters.dflash_config import DFlashConfig
from drafters.training.frozen import FrozenTarget
from drafters.training.method import Batch
from drafters.training.methods.dflash import DFlashMethod, DFlashSettings
from drafters.training.methods.dflash2 import DFlash2Method, DFlash2Settings
from tests.drafters.blocks import tell, wide
from tests.drafters.models import lean, prompt, reference

__all__ = ["batch_of", "config", "config2", "engine_block", "engine_drafter", "frozen", "text_batch", "trained"]

AnyConfig = DFlashConfig | DFlash2Config


def frozen(dtype: torch.dtype = torch.float64) -> FrozenTarget:
    """The tiny Qwen 3 of the drafters' tests."""
    return FrozenTarget(reference("qwen3", dtype=dtype))


def config(**changes: Any) -> DFlashConfig:
    """Two layers, block of 8, both layers of the target."""
    return replace(DFlashConfig.for_target(lean("qwen3"), 8, 2), **changes)


def config2(**changes: Any) -> DFlash2Config:
    """The same with groups of 8 channels, 5 candidates, rank 4."""
    return replace(DFlash2Config(config(), conv_group_size=8, selector_rank=4, selector_top_k=5), **changes)


def checkpoint_of(given: AnyConfig) -> Checkpoint:
    """Weights in which nothing is small, rounded to float32 as checkpoints are."""
    weights = {name: tensor.float() for name, tensor in wide(given.shapes()).items()}
    return Checkpoint(given.to_json() | {"dtype": "float32"}, weights)


def trained(given: AnyConfig, **settings: Any) -> DFlashMethod | DFlash2Method:
    """The method with those weights, in float64."""
    start = checkpoint_of(given)
    method: DFlashMethod | DFlash2Method
    if isinstance(given, DFlash2Config):
        method = DFlash2Method(frozen(), DFlash2Settings(**settings), start)
    else:
        method = DFlashMethod(frozen(), DFlashSettings(**settings), start)
    method.module.double()
    return method


def engine_drafter(given: AnyConfig) -> DFlash | DFlash2:
    """The engine's drafter with the same weights."""
    kind = DFlash2 if isinstance(given, DFlash2Config) else DFlash
    return kind(checkpoint_of(given), lean("qwen3"), 400)


def batch_of(
    texts: Sequence[Sequence[int]], answers: Sequence[tuple[int, int]], layers: Sequence[int], longest: int = 0
) -> Batch:
    """Texts with one answer each, padded to the longest or further; features by the target."""
    target = frozen()
    length = max(longest, *(len(text) for text in texts))
    ids = torch.zeros((len(texts), length), dtype=torch.long)
    marks = torch.zeros((len(texts), length), dtype=torch.bool)
    for row, (text, (start, end)) in enumerate(zip(texts, answers, strict=True)):
        ids[row, : len(text)] = torch.tensor(text)
        marks[row, start:end] = True
    lengths = [len(text) for text in texts]
    states = target.hidden_states(ids, lengths, [*layers, target.num_layers])
    return Batch(ids, torch.tensor(lengths), marks, states[:, :, :-1], states[:, :, -1])


def text_batch(layers: Sequence[int], longest: int = 0) -> Batch:
    """Texts of 26, 15 and 20 tokens, answers from 6 to 26, 4 to 12 and 9 to 20."""
    texts = [prompt(1, 26), prompt(2, 15), prompt(3, 20)]
    return batch_of(texts, [(6, 26), (4, 12), (9, 20)], layers, longest)


def engine_block(drafter: DFlash | DFlash2, batch: Batch, row: int, anchor: int) -> tuple[Tensor, tuple[int, ...]]:
    """What the engine computes and drafts when the text up to the anchor is committed: hidden states [block_size,
    hidden] and tokens."""
    tokens = batch.token_ids[row, : anchor + 1].tolist()
    drafter.open(0, 60)
    tell(drafter, 0, tokens, batch.features[row])
    request = DraftRequest(0, tokens, drafter.max_nodes)
    hidden = drafter.backbone.blocks([request])[1][0]
    draft = drafter.propose([request])[0]
    drafter.release(0)
    return hidden, draft.token_ids
