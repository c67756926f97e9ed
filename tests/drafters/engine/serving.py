"""Servers for tests: tiny model folders that are made on the spot, and the real program as a subprocess on a real socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n# Tools\n{%- for tool in tools %}\n{{ tool.function.name + ': ' + (tool | tojson) }}"
    "{%- endfor %}<|im_end|>\n{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'function' %}{{ raise_exception('no functions') }}{%- endif %}"
    "<|im_start|>{{ message.role + '\n' + message.content }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.arguments.city }}</tool_call>{%- endfor %}"
    "<|im_end|>\n{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SAMPLE = [
    "회의록을 요약해 주세요. 다음 주 월요일까지 보고서를 보내 드리겠습니다.",
    "The quick brown fox jumps over the lazy dog. Please summarise the meeting notes.",
    "def merge_totals(rows, key):\n    return {row[key]: row for row in rows}\n",
]
SONG = "가다씨한"
"""Its twelve bytes are all different, so that a model can know it by heart: each byte has one successor."""


def tokenizer(merges: int = 120) -> Tokenizer:
    """A byte-level BPE tokenizer trained on `SAMPLE`; without merges each byte is a token."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + len(SPECIALS) + merges,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(SAMPLE, trainer)
    return made


def fast(tokens: Tokenizer, **settings: Any) -> PreTrainedTokenizerFast:
    """The same as transformers holds it, with the chat template unless ``settings`` say otherwise."""
    kind: Any = PreTrainedTokenizerFast  # its constructor has no types
    made: PreTrainedTokenizerFast = kind(
        tokenizer_object=tokens, **{"eos_token": "<|im_end|>", "chat_template": TEMPLATE, **settings}
    )
    return made


def _config(vocab: int, **sizes: Any) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=vocab,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        initializer_range=0.3,
        bos_token_id=None,
        pad_token_id=None,
        eos_token_id=2,
        **sizes,
    )


def random_folder(folder: Path) -> Path:
    """A model that babbles: random weights."""
    tokens = tokenizer()
    torch.manual_seed(7)
    model = Qwen3ForCausalLM(_config(tokens.get_vocab_size(), hidden_size=32))
    model.save_pretrained(folder)
    fast(tokens).save_pretrained(folder)
    return folder


def song_folder(folder: Path) -> Path:
    """A model that sings `SONG` for ever, a byte a token, whatever it was told."""
    tokens = tokenizer(merges=0)
    vocab = tokens.get_vocab_size()
    model = Qwen3ForCausalLM(_config(vocab, hidden_size=vocab + 1))
    notes = tokens.encode(SONG).ids
    successor = {note: notes[(place + 1) % len(notes)] for place, note in enumerate(notes)}
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(vocab, vocab + 1))
        model.lm_head.weight.zero_()
        for token in range(vocab):
            model.lm_head.weight[successor.get(token, notes[0]), token] = 1.0
    model.save_pretrained(folder)
    fast(tokens).save_pretrained(folder)
    return folder


class Served:
    """The server's program while the block runs; ``url`` once it is ready."""

    def __init__(self, config: Mapping[str, Any], *arguments: str) -> None:
        self._command = [sys.executable, "-m", "drafters.engine.server", "--config", json.dumps(config), *arguments]
        self.url = ""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("LISTENING "), f"the server did not start: {line!r}"
        self.url = line.removeprefix("LISTENING ").strip()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGTERM)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def end(self, number: signal.Signals) -> tuple[int, float]:
        """Send a signal; return the exit code and the seconds until the end."""
        start = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(10), time.monotonic() - start

    def get(self, path: str) -> Any:
        """What a GET answers, decoded."""
        return httpx.get(self.url + path, trust_env=False, timeout=30).raise_for_status().json()

    def post(self, path: str, body: Any = None) -> Any:
        """What a POST answers, decoded; it must be a success."""
        answer = httpx.post(self.url + path, json=body, trust_env=False, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()

    def counters(self) -> dict[str, float]:
        """The page of metrics: name, with the position where there is one → value."""
        page = httpx.get(self.url + "/metrics", trust_env=False, timeout=30).text
        found: dict[str, float] = {}
        for line in page.splitlines():
            if not line.startswith("#"):
                name, _, rest = line.partition("{")
                labels, _, value = rest.partition("} ")
                position = [part for part in labels.split(",") if part.startswith("position")]
                found["".join([name.removeprefix("vllm:"), *position])] = float(value)
        return found

    def settled(self, timeout_s: float = 20) -> dict[str, Any]:
        """Wait until no request is left and return the health page."""
        deadline = time.monotonic() + timeout_s
        while True:
            health: dict[str, Any] = self.get("/health")
            if not health["running"] and not health["waiting"]:
                return health
            assert time.monotonic() < deadline, f"requests are left: {health}"
            time.sleep(0.02)
