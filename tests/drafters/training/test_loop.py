"""The loop: rates, what Muon takes, and a log that tells everything once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.training import train_stage
from drafters.training.batches import Sampler
from drafters.training.evaluation import Cell, Evaluation, HeldOut
from drafters.training.loop import Training
from drafters.training.loop_settings import LoopSettings
from drafters.training.methods import method_class
from tests.drafters.training.tiny import (
    VOCAB,
    tiny_examples,
    tiny_target,
    train_options,
    write_examples,
    write_tiny_target,
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target on disk."""
    return write_tiny_target(tmp_path_factory.mktemp("target") / "target")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory, target: Path) -> Path:
    """Finished examples of that target, every other one written at temperature 0.7, the rest at 0."""
    made = [replace(one, temperature=0.7 * (number % 2)) for number, one in enumerate(tiny_examples())]
    return write_examples(tmp_path_factory.mktemp("examples") / "examples", target, made)


def training(method: str = "medusa", settings: dict[str, Any] | None = None, **loop: Any) -> Training:
    """A training in memory."""
    kind, examples = method_class(method), tiny_examples()
    made = kind(tiny_target(), kind.settings.model_validate(settings or {}))
    held_out = HeldOut(examples[-6:], 60, 1)
    return Training(made, tiny_target(), Sampler(examples, None, 1), held_out, LoopSettings(row_tokens=40, **loop))


def lines_of(out: Path, kind: str) -> list[dict[str, Any]]:
    """Lines of the log of one kind."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_first_and_the_last_step_learn_something(schedule: str) -> None:
    """Over ten steps or so with a rise over half of them no rate is 0, and the first weights are moved."""
    made = training(tokens=400, warm_up=0.5, schedule=schedule)
    before = [parameter.detach().clone() for parameter in made.parameters]
    factors = [made.one_step()["factor"][0]]
    assert any(not torch.equal(old, new) for old, new in zip(before, made.parameters, strict=True))
    while not made.finished:
        factors += made.one_step()["factor"]
    assert min(factors) > 0.0
    assert max(factors) == max(factors[2:-2]) > 0.8


def test_one_step_of_everything_has_a_rate() -> None:
    """Fewer tokens than a step takes."""
    assert training(tokens=1).one_step()["factor"][0] > 0.5


@pytest.mark.parametrize(
    ("method", "settings", "rows"),
    [
        ("medusa", {"original_lm_head": False, "num_tokens": 2}, 2),
        ("draft_model", {"hidden_size": 16, "layers": 1, "intermediate_size": 16, "kv_heads": 1}, 1),
        ("eagle3", {"draft_vocabulary": tuple(range(24)), "intermediate_size": 40}, 1),
    ],
)
def test_muon_takes_no_rows_of_tokens(method: str, settings: dict[str, Any], rows: int) -> None:
    """Heads, embeddings and draft heads, whatever they are called, are AdamW's; the maps between states are Muon's."""
    made = training(method, settings, tokens=100, optimizer="muon")
    taken = {
        type(optimizer).__name__: [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for optimizer in made.optimizers
    }
    assert taken["Muon"]
    assert all(parameter.shape[0] not in (VOCAB, 24) for parameter in taken["Muon"])
    assert sum(parameter.ndim == 2 for parameter in taken["AdamW"]) == rows


@pytest.mark.parametrize(("stop_on", "best"), [("acceptance", 1), ("loss", 0)])
def test_the_best_evaluation_is_that_of_the_chosen_number_at_the_lowest_temperature(
    stop_on: str, best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has a worse loss and accepts more at temperature 0; of 0.7 it is the other way round, which decides
    nothing."""
    made = training(tokens=100, stop_on=stop_on)
    found = [
        {
            Cell("ko", "chat", 0.0): Evaluation(10.0 + number, 1.0, (10,), (5 + number,)),
            Cell("ko", "chat", 0.7): Evaluation(90.0 - 50 * number, 1.0, (90,), (80 - 50 * number,)),
        }
        for number in range(2)
    ]
    for number, one in enumerate(found):
        monkeypatch.setattr(made.held_out, "evaluate", lambda *given, told=one: told)
        made.step = number
        made.evaluate()
    assert made.best is not None
    assert made.best["step"] == best


class Killed(Exception):
    """Stands for a process that ends without a word."""


def test_an_evaluation_that_is_made_again_is_told_once(target: Path, examples: Path, tmp_path: Path) -> None:
    """Killed right after the third evaluation, whose checkpoint was written before it: its line is there once, and says
    the same as that of a training that nothing ended."""
    assert train_stage.run(train_options(target, examples, tmp_path / "whole"), lambda line: None) == 0
    heard: list[str] = []

    def die(line: str) -> None:
        heard.append(line)
        if sum(one.startswith("held out after step") for one in heard) == 3:
            raise Killed

    options = train_options(target, examples, tmp_path / "out")
    with pytest.raises(Killed):
        train_stage.run(options, die)
    assert train_stage.run(options, lambda line: None) == 0
    found = lines_of(tmp_path / "out", "held_out")
    assert [line["step"] for line in found] == sorted({line["step"] for line in found})
    assert found == lines_of(tmp_path / "whole", "held_out")


def test_a_training_in_bfloat16_learns_and_is_judged_exactly(target: Path, examples: Path, tmp_path: Path) -> None:
    """Before the first step the evaluation is that of float32 to the last digit, the loss falls, and it is judged by the
    answers of temperature 0."""
    for precision in ("fp32", "bf16"):
        options = train_options(
            target, examples, tmp_path / precision, "--precision", precision, "--set", "num_tokens=2"
        )
        assert train_stage.run(options, lambda line: None) == 0
    exact, rough = (lines_of(tmp_path / precision, "held_out") for precision in ("fp32", "bf16"))
    assert rough[0] == exact[0]
    assert rough[-1]["judged"]["loss"] < rough[0]["judged"]["loss"]
    assert rough[-1] != exact[-1]
    assert rough[0]["judged"] == {"temperature": 0.0, **rough[0]["by_temperature"]["0"]}
    assert rough[0]["judged"]["loss"] != rough[0]["by_temperature"]["0.7"]["loss"]


def test_the_log_tells_what_each_language_was_learnt_from(target: Path, tmp_path: Path) -> None:
    """Korean answers of twenty tokens, English ones of six, four anchors of each learnt from: with equal shares the
    languages weigh about the same; together they are the weight."""
    made = [replace(one, language=("ko", "en")[number % 2]) for number, one in enumerate(tiny_examples())]
    made = [
        replace(one, token_ids=(one.token_ids * 2)[:24], answers=((4 if one.language == "ko" else 18, 24),))
        for one in made
    ]
    examples = write_examples(tmp_path / "examples", target, made)
    block = ("block_size=3", "num_layers=1", "target_layer_ids=[0,1]", "anchors=4", "decay=100")
    more = [word for setting in block for word in ("--set", setting)]
    options = train_options(target, examples, tmp_path / "out", *more, "--mix", "ko=0.5,en=0.5", method="dflash")
    assert train_stage.run(options, lambda line: None) == 0
    lines = lines_of(tmp_path / "out", "step")
    summed = {name: sum(line["weight_by_language"].get(name, 0.0) for line in lines) for name in ("ko", "en")}
    assert sum(summed.values()) == pytest.approx(sum(line["weight"] for line in lines))
    assert 0.4 < summed["ko"] / sum(summed.values()) < 0.6
