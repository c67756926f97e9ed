"""The small stages beside the pipeline's: documents, recorded answers, edited checkpoints, candidates."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from drafters import cli
from drafters.checkpoint import Checkpoint
from drafters.claims import claim_selector
from drafters.training.corpus_stage import NAME as CORPUS
from drafters.training.examples import Example, read_examples
from drafters.training.frozen import FrozenTarget
from drafters.training.methods import method_class
from drafters.training.reference.model import build_target
from drafters.training.stage import begin, finish, read_manifest
from harness.tasks import read_tasks
from tests.drafters.training.sites import sentence, write_tiny_target
from tests.drafters.training.tiny import TINY, VOCAB, tiny_examples, write_examples


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target with a chat template."""
    return write_tiny_target(tmp_path_factory.mktemp("model") / "target")


def test_documents_of_a_kind_share_no_form_with_its_tasks(tmp_path: Path) -> None:
    """The same for the same seed; the tasks are ones that the instrument reads."""
    for name in ("a", "b"):
        words = ["claims", "documents", "--kind", "finance=12", "--tasks", "finance=6", "--out", str(tmp_path / name)]
        assert cli.run(words) == 0
    assert (tmp_path / "a" / "finance.jsonl").read_bytes() == (tmp_path / "b" / "finance.jsonl").read_bytes()
    assert read_manifest(tmp_path / "a", "documents").counts["finance.jsonl"] == 12
    tasks = read_tasks(tmp_path / "a" / "finance.tasks.jsonl")
    assert len(tasks) == 6
    asked = {step.messages[0].content.split("\n")[0] for task in tasks for step in task.steps[:1]}
    lines = (tmp_path / "a" / "finance.jsonl").read_text("utf-8").splitlines()
    learnt = {json.loads(line)["messages"][1]["content"].split("\n")[0] for line in lines}
    assert not asked & learnt


def test_recorded_answers_have_the_form_of_the_targets(target: Path, tmp_path: Path) -> None:
    """Both answers of a conversation are marked, each with the token that ends its turn; of a text, all but its opening."""
    turns = [("user", sentence(1)), ("assistant", sentence(2)), ("user", sentence(3)), ("assistant", sentence(4))]
    talk = {"id": "c", "source": "s", "language": "ko", "text_type": "office", "split": "train"}
    chat = talk | {"messages": [{"role": role, "content": content} for role, content in turns]}
    corpus = tmp_path / "corpus"
    begin(corpus, CORPUS, {}, {})
    lines = [chat, talk | {"id": "t", "text": sentence(5) * 3}]
    (corpus / "conversations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    finish(corpus, ["conversations.jsonl"], {})
    words = ["claims", "recorded", "--corpus", str(corpus), "--target", str(target), "--limit-tokens", "9999"]

    assert cli.run([*words, "--out", str(tmp_path / "out")]) == 0

    read_manifest(tmp_path / "out", "regenerate")
    found = {each.id: each for each in read_examples(tmp_path / "out" / "examples.jsonl", 1 << 20)}
    from drafters.engine.text import Text

    text = Text.load(target)
    said = [text.decode(found["c"].token_ids[start:end]) for start, end in found["c"].answers]
    assert said == [sentence(2), sentence(4)]
    assert all(found["c"].token_ids[end - 1] in text.eos for _, end in found["c"].answers)
    assert found["t"].answers[0][1] == len(found["t"].token_ids)


def test_a_change_is_scaled_to_the_size_of_another(tmp_path: Path) -> None:
    """From 0 to 3 and 4 (length 5) scaled to the length 10 of another change: 6 and 8."""
    for name, values in (("base", (0.0, 0.0)), ("full", (3.0, 4.0)), ("lora", (10.0, 0.0))):
        Checkpoint({"dtype": "float32"}, {"w": torch.tensor([list(values)])}).save(tmp_path / name)
    words = ["claims", "rescale", "--base", str(tmp_path / "base"), "--model", str(tmp_path / "full")]
    assert cli.run([*words, "--norm-of", str(tmp_path / "lora"), "--out", str(tmp_path / "out")]) == 0
    assert Checkpoint.load(tmp_path / "out" / "checkpoint").tensors["w"].tolist() == [[6.0, 8.0]]
    assert read_manifest(tmp_path / "out", "rescale").counts == {"norm": 5.0, "norm_after": 10.0}


def test_a_tensor_is_emptied_and_layers_are_left_out(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pruned model loads as a target of one layer; what is not there is refused."""
    words = ["claims", "prune", "--model", str(target), "--layers"]
    assert cli.run([*words, "1", "--out", str(tmp_path / "one")]) == 0
    assert FrozenTarget.load(tmp_path / "one" / "checkpoint").num_layers == 1
    assert cli.run([*words, "9", "--out", str(tmp_path / "nine")]) == 2
    assert "allows 1 to 2" in capsys.readouterr().err
    name = "model.norm.weight"
    assert cli.run(["claims", "blank", "--model", str(target), "--tensor", name, "--out", str(tmp_path / "blank")]) == 0
    assert not Checkpoint.load(tmp_path / "blank" / "checkpoint").tensors[name].any()


def test_candidates_are_counted_by_example_and_position(tmp_path: Path) -> None:
    """The list of sixteen holds the token wherever it is first, and a list of the whole vocabulary always holds it."""
    torch.manual_seed(1)
    folder = tmp_path / "target"
    model = build_target(VOCAB, **{**TINY, "num_hidden_layers": 6})
    model.save_pretrained(str(folder))
    kind = method_class("dflash2")
    sets = {"num_tokens": 3, "block_size": 4, "num_layers": 1, "selector_rank": 4, "selector_top_k": VOCAB}
    kind(FrozenTarget.load(folder), kind.settings.model_validate(sets), None).checkpoint().save(tmp_path / "drafter")
    examples: list[Example] = tiny_examples(6, 2)
    write_examples(tmp_path / "examples", folder, examples)
    words = ["claims", "candidates", "--examples", str(tmp_path / "examples"), "--drafter", str(tmp_path / "drafter")]

    assert cli.run([*words, "--target", str(folder), "--threads", "1", "--out", str(tmp_path / "out")]) == 0

    with (tmp_path / "out" / "candidates.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["example"] for row in rows} == {example.id for example in examples}
    assert {row["position"] for row in rows} == {"1", "2", "3"}
    assert all(int(row["first"]) <= int(row["listed"]) == int(row["positions"]) for row in rows)
    unary, selected, oracle = claim_selector._walks(tmp_path / "out" / "candidates.csv")
    assert 1.0 <= min(unary, selected) <= max(unary, selected) <= oracle == 4.0


def test_the_share_that_taught_is_of_the_second_half(tmp_path: Path) -> None:
    """Of four lines the last two: 3 + 5 of 20 positions."""
    lines = [
        {"kind": "step", "parts": {"taught": taught, "positions/1": 6, "positions/2": 4}} for taught in (10, 10, 3, 5)
    ]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"kind": "held_out"}])
    (tmp_path / "log.jsonl").write_text(text, "utf-8")
    assert claim_selector.taught_share(tmp_path) == 0.4
