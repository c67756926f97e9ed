"""Two processes under torchrun train as one does."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from drafters.checkpoint import Checkpoint
from drafters.training import train_stage
from drafters.training.distributed import World
from drafters.training.stage import read_manifest
from tests.drafters.training.launch_training import CHANCE
from tests.drafters.training.tiny import write_examples, write_tiny_target

# float32 sums of gradients in another order differ in the seventh digit; ten steps of AdamW, whose first step is the
# gradient's sign, enlarge that a hundredfold at most.
TOLERANCE = 1e-4


def log_of(out: Path) -> list[dict[str, Any]]:
    """The log of a training."""
    return [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]


def differences(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> float:
    """Largest relative difference of losses, weights and held-out losses, line by line."""
    assert [(line["kind"], line["step"], line["tokens"]) for line in first] == [
        (line["kind"], line["step"], line["tokens"]) for line in second
    ]
    found = [0.0]
    for one, other in zip(first, second, strict=True):
        keys = ("loss", "weight") if one["kind"] == "step" else ("loss",)
        pairs = [
            (
                (one if one["kind"] == "step" else one["all"])[key],
                (other if one["kind"] == "step" else other["all"])[key],
            )
            for key in keys
        ]
        found += [abs(a - b) / abs(a) for a, b in pairs]
    return max(found)


def test_two_processes_draw_the_loss_curve_of_one(tmp_path: Path) -> None:
    """Every step and evaluation within the tolerance, and so the weights; with the data unshared or the gradients
    unsummed the same comparison fails. So it is for a drafter that draws places by chance, and that fails where a part's
    chance is not that of its place. What fails in the first process alone ends both."""
    target = write_tiny_target(tmp_path / "target")
    examples = write_examples(tmp_path / "examples", target)
    shared = ["--method", "medusa", "--target", str(target), "--examples", str(examples), "--tokens", "600"]
    shared += ["--row-tokens", "30", "--rows", "2", "--threads", "1", "--device", "cpu", "--evaluations", "2"]
    shared += ["--log-seconds", "0", "--set", "num_tokens=2", "--export-dtype", "float32"]
    parser = argparse.ArgumentParser()
    train_stage.add_arguments(parser)
    for name, more in (("alone", ()), ("by chance", CHANCE)):
        options = parser.parse_args([*shared, *more, "--out", str(tmp_path / name)])
        assert train_stage.run(options, lambda line: None) == 0
    starter = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    made = subprocess.run(
        [*starter, "-m", "tests.drafters.training.launch_training", str(tmp_path), *shared],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert made.returncode == 0, made.stderr
    alone = log_of(tmp_path / "alone")
    assert sum(line["kind"] == "step" for line in alone) >= 8
    assert differences(alone, log_of(tmp_path / "none")) < TOLERANCE
    one, two = (Checkpoint.load(tmp_path / name / "checkpoint").tensors for name in ("alone", "none"))
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < TOLERANCE
    assert read_manifest(tmp_path / "none", "train").counts["processes"] == 2
    for breakage in ("unshared", "unsummed"):
        assert differences(alone, log_of(tmp_path / breakage)) > 10 * TOLERANCE
    by_chance = log_of(tmp_path / "by chance")
    assert differences(by_chance, log_of(tmp_path / "dflash")) < TOLERANCE
    assert differences(by_chance, log_of(tmp_path / "unplaced")) > 10 * TOLERANCE
    said = [(tmp_path / f"failed.{rank}").read_text("utf-8") for rank in range(2)]
    assert said == ["OSError: no room", "StageError: the first process failed: OSError: no room"]


def test_parts_are_shared_without_overlap() -> None:
    """Five parts for two processes: three and two, each with its place among all."""
    assert World(0, 2).share("abcde") == [(0, "a"), (2, "c"), (4, "e")]
    assert World(1, 2).share("abcde") == [(1, "b"), (3, "d")]
