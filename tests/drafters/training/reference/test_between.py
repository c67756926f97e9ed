"""A target between two of its states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from drafters.training.checkpoints import load_checkpoint, save_checkpoint
from drafters.training.reference.between import main


def _state(folder: Path, value: float, width: int = 2) -> Path:
    folder.mkdir()
    save_checkpoint(
        folder / "checkpoint.pt",
        {"tokenizer_sha256": "t", "step": int(value), "model": {"w": torch.full((width,), float(value))}},
    )
    (folder / "tokenizer.json").write_text("{}", "utf-8")
    return folder


def test_a_quarter_of_the_way(tmp_path: Path) -> None:
    """A quarter of the way from 4 to 8 is 5; what else the second state holds stays."""
    first, second = _state(tmp_path / "a", 4), _state(tmp_path / "b", 8)
    assert main(["--of", str(first), str(second), "--share", "0.25", "--out", str(tmp_path / "c")]) == 0
    made = load_checkpoint(tmp_path / "c" / "checkpoint.pt")
    assert made["model"]["w"].tolist() == [5.0, 5.0]
    assert made["step"] == 8
    assert (tmp_path / "c" / "tokenizer.json").read_text("utf-8") == "{}"


def test_states_of_two_models_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights of other shapes have nothing between them, and nothing is written."""
    first, second = _state(tmp_path / "a", 4), _state(tmp_path / "b", 8, width=3)
    with pytest.raises(SystemExit) as ended:
        main(["--of", str(first), str(second), "--share", "0.5", "--out", str(tmp_path / "c")])
    assert ended.value.code == 2
    assert "give two states of one training" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
