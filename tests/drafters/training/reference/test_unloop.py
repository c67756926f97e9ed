"""Taking loops away from the reference target."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drafters.training.checkpoints import load_checkpoint
from drafters.training.reference import pretrain, unloop
from drafters.training.reference.model import build_target
from drafters.training.reference.packing import write_part
from drafters.training.reference.pretrain import Settings, Training
from drafters.training.reference.tokenizer import train_tokenizer
from drafters.training.reference.unloop import Heard, answer_losses, listen, place_to_end, said_before
from tests.drafters.training.reference.test_pretrain import TINY
from tests.drafters.training.regenerating import corpus, talk

END = 2
VOCABULARY = 300
SETTINGS = Settings(
    tokens=10**6, row_tokens=64, rows=4, accumulate=1, warm_up=5, precision="fp32", muon_rate=0.01, adam_rate=0.01
)


def test_repeats_are_counted_by_the_token_that_ends_them() -> None:
    """Pieces of two: the third AB is the second repeat of it, and the first BA repeats nothing."""
    assert said_before([5, 6, 5, 6, 5, 6], gram=2).tolist() == [0, 0, 0, 1, 1, 2]
    assert said_before([5, 6, 7], gram=4).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("tokens", "breaks", "expected"),
    [
        ("a.bcd.bcd.bcd.", ".", 6),  # the line bcd. is said once, its repeats go
        ("a.bcdbcdbcdbcd", ".", 2),  # no break within the loop: the one before it
        ("abcdbcdbcdbcd", ".", None),  # nothing whole was said before
        ("a.bcd.ebcd.fgh", ".", None),  # three repeated pieces on end are not enough
    ],
)
def test_answer_ends_at_the_last_break_before_its_loop(tokens: str, breaks: str, expected: int | None) -> None:
    """Pieces of two, a loop from four repeats on end on; the expected places are counted by hand."""
    ids = [ord(letter) for letter in tokens]
    marks = [letter in breaks for letter in tokens]
    assert place_to_end(said_before(ids, gram=2), marks, run=4) == expected


def test_losses_push_repeats_down_and_the_end_up() -> None:
    """Steps against a looping answer make its repeats unlikely and the end of the turn likely where the loop begins."""
    torch.manual_seed(1)
    model = build_target(VOCABULARY, **TINY)
    looping = Heard((7, 8, 9), (10, 11, 12, 13, 14) * 6, True, 5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    values = []
    for _ in range(60):
        against, ending = answer_losses(model, [looping], END)
        (against + ending).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        values.append((against.item(), ending.item()))
    assert values[0][1] > 5 and values[-1][1] < 0.5
    assert values[-1][0] < values[0][0]
    chances = torch.softmax(model(torch.tensor([[7, 8, 9, *looping.answer[:5]]])).logits[0, -1], dim=-1)
    assert int(chances.argmax()) == END


def test_neighbours_in_a_batch_change_nothing() -> None:
    """A short answer beside a long one, padded: the sums are those of both alone, weighted as defined."""
    torch.manual_seed(2)
    model = build_target(VOCABULARY, **TINY)
    short = Heard((7,), (20, 21, 22, 23) * 3, True, 4)
    long = Heard((7, 8, 9, 10), (30, 31, 32, 33, 34) * 5, True, None)
    both, end = answer_losses(model, [short, long], END)
    alone = [answer_losses(model, [each], END) for each in (short, long)]
    sizes = [sum(1 / count for count in said_before(each.answer).tolist() if count) for each in (short, long)]
    expected = sum(loss.item() * size for (loss, _), size in zip(alone, sizes, strict=True)) / sum(sizes)
    assert both.item() == pytest.approx(expected, rel=1e-5)
    assert end.item() == pytest.approx(alone[0][1].item(), rel=1e-5)
    assert alone[1][1].item() == 0


@pytest.fixture
def looping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command's arguments for a tiny model that says one sentence over and over, in ``tmp_path / "run"``."""
    monkeypatch.setattr(pretrain, "WEIGHTS", {"text": 1.0})
    monkeypatch.setattr(pretrain, "WHOLE", ())
    monkeypatch.setattr(pretrain, "build_target", lambda: build_target(VOCABULARY, **TINY))
    sentence = "The report was sent to the office. "
    tokenizer = train_tokenizer([sentence], VOCABULARY)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "manifest.json").write_text(json.dumps({"tokenizer_sha256": "a"}), "utf-8")
    line = tokenizer.encode(sentence).ids
    write_part(tmp_path, "text.train", [np.array(line * 200, dtype=np.uint16)], seed=1)
    training = Training(tmp_path, SETTINGS, compile_step=False)
    for _ in range(60):
        training.one_step()
    (tmp_path / "run").mkdir()
    training.save(tmp_path / "run" / "checkpoint.pt")
    # what it goes on with says the sentence once, so that nothing teaches the loop again
    write_part(tmp_path, "text.train", [np.array([*line, END] * 200, dtype=np.uint16)], seed=1)
    talks = corpus(tmp_path / "corpus", [talk(f"t{number}", f"Question {number}?") for number in range(36)])
    arguments = ["--run", str(tmp_path / "run"), "--data", str(tmp_path), "--corpus", str(talks), "--no-compile"]
    arguments += ["--rounds", "6", "--conversations", "6", "--max-tokens", "60", "--rows", "1", "--rate", "1"]
    return [*arguments, "--steps", "60"]


def test_rounds_take_loops_away(looping: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model hardly loops any more after a few rounds; its checkpoint has gone on by their steps and tokens."""
    assert unloop.main(looping) == 0
    said = capsys.readouterr().out
    counts = [int(count) for count in re.findall(r"(\d+) of 6 answers loop", said)]
    steps = sum(int(count) for count in re.findall(r"(\d+) steps", said))
    assert counts[0] == 6 and counts[-1] <= 2
    state = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert (state["step"], state["tokens_done"]) == (60 + steps, (60 + steps) * SETTINGS.step_tokens)


def test_killed_rounds_go_on_where_they_were(
    looping: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that ends within its third round and is called again gives the model of a run that was left alone."""
    shutil.copytree(tmp_path / "run", tmp_path / "alone")
    alone = ["--run", str(tmp_path / "alone"), *looping[2:]]
    assert unloop.main(alone) == 0
    asked: list[int] = []

    def dying(*words: Any) -> list[Heard]:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return listen(*words)

    monkeypatch.setattr(unloop, "listen", dying)
    with pytest.raises(KeyboardInterrupt):
        unloop.main(looping)
    assert unloop.main(looping) == 0
    assert "2 of 6 rounds were done before" in capsys.readouterr().out
    one, other = (load_checkpoint(tmp_path / name / "checkpoint.pt")["model"] for name in ("run", "alone"))
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_a_folder_in_use_and_one_without_a_checkpoint_are_refused(
    looping: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither is touched, and the message names the folder and what to do."""
    with (tmp_path / "run" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(SystemExit):
            unloop.main(looping)
    assert f"another training writes to {tmp_path / 'run'}" in capsys.readouterr().err
    (tmp_path / "run" / "checkpoint.pt").unlink()
    with pytest.raises(SystemExit):
        unloop.main(looping)
    assert "checkpoint.pt cannot be read" in capsys.readouterr().err
