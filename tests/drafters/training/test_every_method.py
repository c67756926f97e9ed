"""Every trainable drafter goes through the stage and into the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from drafters.base import Commit, Draft, DraftRequest
from drafters.catalog import build
from drafters.engine.target import DecoderModel, Span
from drafters.specs import parse_spec
from drafters.training import train_stage
from drafters.training.methods import METHODS
from drafters.training.stage import read_manifest
from tests.drafters.training.tiny import tiny_examples, train_options, write_examples, write_tiny_target

BLOCK: Sequence[str] = ("num_tokens=3", "block_size=4", "num_layers=1", "target_layer_ids=[0,1]", "anchors=4")
SMALL: Mapping[str, Sequence[str]] = {
    "dflash": BLOCK,
    "dflash2": (*BLOCK, "selector_rank=4", "selector_top_k=4"),
    "draft_model": ("hidden_size=16", "layers=1", "intermediate_size=16", "heads=1", "kv_heads=1"),
    "eagle3": ("num_tokens=3", "feature_layers=[0,1,2]", "draft_vocab_size=48"),
    "medusa": ("num_tokens=3",),
    "mtp": ("num_tokens=3",),
}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_trained_drafter_drafts_in_the_engine(method: str, tmp_path: Path) -> None:
    """Trained for a few steps, in one go and in two, it is the same file, and the engine drafts with it."""
    target = write_tiny_target(tmp_path / "target")
    examples = write_examples(tmp_path / "examples", target)
    settings = [f"--set={setting}" for setting in SMALL[method]]
    options = train_options(target, examples, tmp_path / "out", *settings, "--tokens", "250", method=method)
    assert train_stage.run(options, lambda line: None) == 0

    def stop(line: str) -> None:
        if line.startswith("step 2,"):
            raise TimeoutError

    again = train_options(target, examples, tmp_path / "again", *settings, "--tokens", "250", method=method)
    again.checkpoint_seconds = 0.0
    with pytest.raises(TimeoutError):
        train_stage.run(again, stop)
    assert train_stage.run(again, lambda line: None) == 0
    assert (
        read_manifest(tmp_path / "out", "train").outputs["checkpoint/model.safetensors"]
        == (read_manifest(tmp_path / "again", "train").outputs["checkpoint/model.safetensors"])
    )
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text("utf-8").splitlines()]
    assert all(len(line["accepted_by_position"]) in (3, 4) for line in lines if line["kind"] == "step")
    model = DecoderModel.load(target, torch.float32)
    drafter = build(
        parse_spec({"method": method, "model": tmp_path / "out" / "checkpoint", "num_tokens": 3}), model, 200
    )
    tokens = tiny_examples()[0].token_ids
    features = model.forward([Span(0, 0, tokens[:-1], 1)], model.new_cache(50), drafter.feature_layers).features
    drafter.open(0, 60)
    drafter.commit([Commit(0, 0, tokens, features)])
    (draft,) = drafter.propose([DraftRequest(0, tokens, 3)])
    assert isinstance(draft, Draft)
    assert len(draft) == 3
