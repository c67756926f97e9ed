"""A tiny target and a site's file around it, for the tests of the chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml

from drafters.medusa import untrained
from drafters.training.frozen import FrozenTarget
from drafters.training.reference.model import build_target, write_target
from drafters.training.reference.tokenizer import train_tokenizer

WORDS = [
    "보고서",
    "회의록",
    "장애",
    "조치",
    "완료",
    "예정",
    "담당",
    "일정",
    "납기",
    "검토",
    "승인",
    "요청",
    "결과",
    "원인",
    "대책",
]
TINY: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def sentence(number: int) -> str:
    """A line of Korean office text, another for each number."""
    picked = [WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 5, 7)]
    return f"{number}. {' '.join(picked)} {number % 12 + 1}월 {number % 28 + 1}일까지 처리함."


def write_tiny_target(folder: Path) -> Path:
    """Write a random target of two layers with a tokenizer of 400 entries."""
    torch.manual_seed(5)
    tokenizer = train_tokenizer([sentence(number) for number in range(200)], 400)
    model = build_target(tokenizer.get_vocab_size(), **TINY)
    with torch.no_grad():
        for layer in model.model.layers:
            for weight in layer.parameters():
                weight.mul_(6 if weight.dim() == 2 else 1)  # what was read decides what is written, so answers differ
        for token, number in tokenizer.get_vocab().items():
            if not token.isascii() or token.startswith("<"):
                model.model.embed_tokens.weight[number] = 0  # only whole characters are written
    write_target(model, tokenizer, folder, torch.float32)
    return folder


def write_site(folder: Path, **changes: Any) -> Path:
    """Write ``site.yaml`` with everything it names but the target; ``changes`` replace whole sections."""
    documents = folder / "documents"
    documents.mkdir(parents=True, exist_ok=True)
    for number in range(8):
        lines = [sentence(number * 13 + line) for line in range(12)]
        (documents / f"{number}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    requests = [
        {
            "messages": [
                {"role": "user", "content": f"{sentence(900 + number)} 정리해 줘."},
                {"role": "assistant", "content": ""},
            ]
        }
        for number in range(8)
    ]
    text = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
    (folder / "requests.jsonl").write_text(text, "utf-8")
    (folder / "secret.key").write_text("0123456789abcdef0123456789abcdef", "utf-8")
    _write_workload(folder)
    site: dict[str, Any] = {
        "name": "tiny",
        "target": {"model": "target"},
        "drafter": {"method": "medusa", "num_tokens": 2},
        "corpus": {
            "documents": [{"path": "documents", "language": "ko", "text_type": "office"}],
            "conversations": [{"path": "requests.jsonl", "language": "ko", "text_type": "office"}],
            "key_file": "secret.key",
            "held_out": 0.25,
        },
        "regenerate": {
            "max_tokens": 16,
            "concurrency": 4,
            "threads": 1,
            "context_tokens": 512,
            "options": {"max-failures": 0.9, "keep-repetition": True},
        },
        "train": {"tokens": 60000, "row_tokens": 256, "rows": 4, "threads": 1, "options": {"checkpoint-seconds": 0.2}},
        "evaluate": {"workloads": ["workload.yaml"], "max_tokens": 8, "repeats": 1},
    }
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump(site | changes, allow_unicode=True, sort_keys=False), "utf-8")
    return path


def _write_workload(folder: Path) -> None:
    lines: list[dict[str, Any]] = [{"prefix": "p", "system": "짧게 답합니다.", "tools": []}]
    for number in range(6):
        message = {"role": "user", "content": sentence(300 + number)}
        step = {
            "kind": "reply",
            "language": "ko",
            "messages": [message],
            "recorded": {"role": "assistant", "content": sentence(400 + number)},
            "tool_wait_s": 0.0,
            "max_tokens": 8,
        }
        lines.append(
            {"task": f"t{number}", "title": "t", "genre": "g", "language": "ko", "prefix": "p", "steps": [step]}
        )
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (folder / "tasks.jsonl").write_text(text, "utf-8")
    workload = {
        "name": "tiny",
        "tasks": "tasks.jsonl",
        "engine": {"kind": "builtin", "context_tokens": 512},
        "arms": [{"name": "baseline", "method": "none"}],
        "concurrency": [1],
        "warm_up": {"steps": 0},
    }
    (folder / "workload.yaml").write_text(yaml.safe_dump(workload), "utf-8")


def write_start(folder: Path, target: Path) -> Path:
    """Write an untrained Medusa drafter of two heads for the tiny target."""
    untrained(FrozenTarget.load(target), 2, seed=7).save(folder)
    return folder
