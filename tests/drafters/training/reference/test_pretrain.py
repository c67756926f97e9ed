"""The training of the reference target."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, Qwen3ForCausalLM

from drafters.training.checkpoints import CheckpointError, load_checkpoint
from drafters.training.reference import pretrain
from drafters.training.reference.model import build_target, write_target
from drafters.training.reference.packing import CONTEXT, DataError, write_part
from drafters.training.reference.pretrain import Settings, Timers, Training, rate_factor, run, split_flags
from drafters.training.reference.samples import CallCounts, judge_call
from drafters.training.reference.tokenizer import TOOL_INTRODUCTION, train_tokenizer

TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
SETTINGS = Settings(tokens=10_000, row_tokens=32, rows=4, accumulate=1, warm_up=5, precision="fp32", muon_rate=0.01)
NEVER = Timers(log=1e9, held_out=1e9, checkpoint=1e9)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of sixteen tokens said twice, so that the second half is a copy, and a tiny model."""
    monkeypatch.setattr(pretrain, "WEIGHTS", {"copy": 1.0})
    monkeypatch.setattr(pretrain, "WHOLE", ("copy",))
    monkeypatch.setattr(pretrain, "build_target", lambda: build_target(64, **TINY))
    rng = np.random.default_rng(0)
    halves = [rng.integers(1, 64, 16).astype(np.uint16) for _ in range(16)]
    write_part(tmp_path, "copy.train", [np.concatenate([half, half, half[:1]]) for half in halves], seed=1)
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    (tmp_path / "manifest.json").write_text(json.dumps({"tokenizer_sha256": "a"}), "utf-8")
    return tmp_path


def test_rate_rises_stays_and_falls() -> None:
    """Up over the warm-up, full in between, half of it halfway through the decay, zero at the end."""
    settings = Settings(tokens=1000, warm_up=4, decay_share=0.2)
    assert [rate_factor(*place, settings) for place in ((0, 0), (3, 300), (9, 800), (9, 900), (9, 1000))] == [
        0.25,
        1.0,
        1.0,
        0.5,
        0.0,
    ]


def test_context_tokens_count_less() -> None:
    """A marked token keeps its id and gets the context's weight; the first token of a row is not predicted."""
    ids, weights = split_flags(np.array([[7, 8 | CONTEXT, 9]], dtype=np.uint16), 0.25)
    assert ids.tolist() == [[7, 8, 9]]
    assert weights.tolist() == [0.25, 1.0]


def test_loss_falls_on_a_small_set(data: Path) -> None:
    """A tiny model learns sixteen short rows by heart at least halfway."""
    training = Training(data, replace(SETTINGS, tokens=10**6), compile_step=False)
    losses = [training.one_step() for _ in range(100)]
    assert losses[0] > 3.9
    assert losses[-1] < 0.5 * losses[0]


def test_resumed_training_takes_the_same_steps(data: Path, tmp_path: Path) -> None:
    """Steps after a checkpoint give the very losses that they give without the interruption."""
    whole = Training(data, SETTINGS, compile_step=False)
    for _ in range(3):
        whole.one_step()
    whole.save(tmp_path / "c.pt")
    resumed = Training(data, SETTINGS, compile_step=False)
    resumed.resume(tmp_path / "c.pt")
    assert [resumed.one_step() for _ in range(3)] == [whole.one_step() for _ in range(3)]


def test_termination_leaves_a_checkpoint(data: Path, tmp_path: Path) -> None:
    """A training that is asked to stop writes where it is and says that it is not done."""
    training = Training(data, SETTINGS, compile_step=False)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def say(_line: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        assert run(training, tmp_path, NEVER, say) is False
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert load_checkpoint(tmp_path / "checkpoint.pt")["step"] == training.step == 1


def test_second_training_in_a_folder_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes never write the same checkpoint: the second one ends before it trains."""
    arguments = ["--data", str(data), "--out", str(tmp_path), "--tokens", "9", "--no-compile"]
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SystemExit):
            pretrain.main(arguments)
    assert "another training writes to" in capsys.readouterr().err


def test_checkpoint_of_another_tokenizer_is_refused(data: Path, tmp_path: Path) -> None:
    """Weights trained with one tokenizer are not trained on with another."""
    Training(data, SETTINGS, compile_step=False).save(tmp_path / "c.pt")
    (data / "manifest.json").write_text(json.dumps({"tokenizer_sha256": "b"}), "utf-8")
    with pytest.raises(DataError, match="another tokenizer"):
        Training(data, SETTINGS, compile_step=False).resume(tmp_path / "c.pt")


def test_checkpoint_cut_short_is_refused(tmp_path: Path) -> None:
    """A torn file is not taken for a checkpoint."""
    (tmp_path / "c.pt").write_bytes(b"PK\x03\x04 half")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path / "c.pt")


def test_written_folder_gives_the_same_logits(tmp_path: Path) -> None:
    """The Hugging Face folder holds the weights and the tokenizer, and nothing is left beside it."""
    model = build_target(300, **TINY)
    tokenizer: Tokenizer = train_tokenizer(["ab cd"], 300)
    write_target(model, tokenizer, tmp_path / "target", torch.float32)
    again = Qwen3ForCausalLM.from_pretrained(tmp_path / "target")
    ids = torch.tensor([AutoTokenizer.from_pretrained(tmp_path / "target").encode("ab cd")])
    assert torch.equal(model(ids).logits, again(ids).logits)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_reference_shape_fits_what_the_drafters_need() -> None:
    """About ten million parameters, hidden size of whole groups of 16, heads of 32, at least eight layers."""
    model = build_target()
    assert 9e6 <= sum(parameter.numel() for parameter in model.parameters()) <= 12e6
    assert model.config.hidden_size % 16 == 0 and model.config.hidden_size >= 272
    assert model.config.num_hidden_layers >= 8


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("no call", CallCounts(1)),
        ("<tool_call>{broken</tool_call>", CallCounts(1, 1)),
        ('<tool_call>{"name": "other", "arguments": {}}</tool_call>', CallCounts(1, 1, 1)),
        ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', CallCounts(1, 1, 1, 1)),
        ('<tool_call>{"name": "f", "arguments": {"q": 1}}</tool_call>', CallCounts(1, 1, 1, 1, 1)),
    ],
)
def test_calls_are_judged_step_by_step(answer: str, expected: CallCounts) -> None:
    """No call, a call that does not parse, one of an unknown tool, one without a required argument, a whole one."""
    schema = '{"name":"f","parameters":{"required":["q"]}}'
    counts = CallCounts()
    judge_call(answer, "wanted", f"s\n\n{TOOL_INTRODUCTION}\n{schema}", counts)
    assert counts == expected


def test_dialogues_can_be_drawn_more_often(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times the share of one of two equal parts: three of four rows are its."""
    monkeypatch.setattr(pretrain, "WEIGHTS", {"copy": 0.5, "recall": 0.5})
    write_part(data, "recall.train", [np.full(40, 63, dtype=np.uint16)], seed=1)
    training = Training(data, replace(SETTINGS, dialogues=3.0), compile_step=False)
    drawn = [bool((training.mixture.next_batch(1, 33) == 63).all()) for _ in range(400)]
    assert 0.7 < sum(drawn) / 400 < 0.8
