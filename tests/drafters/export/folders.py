"""A tiny bilingual target and its untrained drafters as the folders that training leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from drafters import dflash, eagle3, medusa, mtp
from drafters.dflash2 import DFlash2Config
from drafters.dflash2 import untrained as dflash2_untrained
from drafters.dflash_config import DFlashConfig
from drafters.engine.target import DecoderModel
from drafters.training.reference.model import build_target, write_target
from drafters.training.reference.tokenizer import train_tokenizer

__all__ = ["CODE", "ENGLISH", "KOREAN", "loaded", "save_drafter", "tiny_target"]

ENGLISH = "The quarterly meeting of the Busan branch moved from Monday 12 to Thursday 15.\n\n  Please don't reply."
KOREAN = "3월 12일 회의 자료를 보내 주세요. □ 추진 배경\n ○ 예산 1,250천원(전년 대비 12.5% 증가) ※ 붙임 참조"
CODE = "def mean(values: list[float]) -> float:\n\treturn sum(values) / len(values)   # 100%\r\n"
TEXTS = [ENGLISH, KOREAN, CODE] * 8


def tiny_target(folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    """Write a random target of four layers; wide weights, since with narrow ones it repeats one token."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS, 384)
    sizes = {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    model = build_target(
        tokenizer.get_vocab_size() + 3, **{**sizes, "num_key_value_heads": 2, "head_dim": 16, **changes}
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(1 + 0.3 * torch.randn_like(weight) if weight.dim() == 1 else 0.25 * torch.randn_like(weight))
            if name.endswith("embed_tokens.weight"):
                # Unlikely to end a text, so that answers are as long as they may be.
                weight[[0, 2]] = 0.0
    write_target(model, tokenizer, folder, dtype)
    return folder


def loaded(folder: Path) -> DecoderModel:
    """The target as the engine holds it."""
    return DecoderModel.load(folder, torch.float32, "cpu")


def save_drafter(method: str, target: Path, folder: Path) -> Path:
    """Write an untrained drafter of the target."""
    model = loaded(target)
    if method == "dflash2":
        base = DFlashConfig.for_target(model, 4, 2)
        made = dflash2_untrained(DFlash2Config(base, selector_rank=8, selector_top_k=4))
    elif method == "dflash":
        made = dflash.untrained(model, 4, 2)
    elif method == "eagle3":
        made = eagle3.untrained(model, 200)
    elif method == "mtp":
        made = mtp.untrained(model)
    else:
        made = medusa.untrained(model, 2)
    made.save(folder)
    return folder
