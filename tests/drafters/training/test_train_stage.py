"""The training stage: what it writes, what it refuses, and that a stop leaves no trace in the result."""

from __future__ import annotations

import argparse
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.engine.target import DecoderModel, TargetError
from drafters.ngram import read_corpus
from drafters.specs import DraftModelSpec, MedusaSpec, SpecError
from drafters.training import train_stage
from drafters.training.capture_stage import add_arguments as add_capture_arguments
from drafters.training.capture_stage import run as run_capture
from drafters.training.examples import Example
from drafters.training.stage import StageError, read_manifest, take_back_unworked
from drafters.training.train_inputs import completed, method_settings
from drafters.training.train_options import budget
from tests.drafters.training.tiny import VOCAB, tiny_examples, train_options, write_examples, write_tiny_target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target on disk."""
    return write_tiny_target(tmp_path_factory.mktemp("target") / "target")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory, target: Path) -> Path:
    """Finished examples of that target."""
    return write_examples(tmp_path_factory.mktemp("examples") / "examples", target)


class Saying:
    """Keeps what is said, and does something when a line begins in a certain way."""

    def __init__(self, start: str = "\0", do: Any = None) -> None:
        self.lines: list[str] = []
        self._start, self._do = start, do

    def __call__(self, line: str) -> None:
        """Take a line."""
        self.lines.append(line)
        if line.startswith(self._start):
            self._start = "\0"
            self._do()


def weights(out: Path) -> dict[str, torch.Tensor]:
    """Tensors of the written checkpoint."""
    return dict(Checkpoint.load(out / "checkpoint").tensors)


def steps(out: Path) -> list[tuple[int, float]]:
    """Step and loss of the log's lines."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    return [(line["step"], line["loss"]) for line in lines if line["kind"] == "step"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, target: Path, examples: Path) -> Path:
    """A training that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert train_stage.run(train_options(target, examples, out), Saying()) == 0
    return out


def test_it_learns_and_writes_what_the_engine_loads(whole: Path, target: Path) -> None:
    """The loss falls, the manifest covers checkpoint and log, tells of before and after, and the engine takes the folder."""
    curve = steps(whole)
    assert sum(loss for _, loss in curve[-3:]) < sum(loss for _, loss in curve[:3])
    manifest = read_manifest(whole, "train")
    assert set(manifest.outputs) == {"log.jsonl", "checkpoint/config.json", "checkpoint/model.safetensors"}
    assert manifest.counts["held_out_after"]["all"]["loss"] < manifest.counts["held_out_before"]["all"]["loss"]
    assert manifest.counts["held_out_after"]["note"] == "teacher-forced, not measured in the engine"
    assert set(manifest.counts["held_out_after"]["by_language"]) == {"ko", "en", "code"}
    assert not (whole / "state.pt").exists()
    assert {tensor.dtype for tensor in weights(whole).values()} == {torch.bfloat16}
    build(MedusaSpec(model=whole / "checkpoint"), DecoderModel.load(target, torch.float32), 10)


def test_a_finished_training_is_not_done_again(whole: Path, target: Path, examples: Path) -> None:
    """The same command says so at once; another rate is refused."""
    say = Saying()
    assert train_stage.run(train_options(target, examples, whole), say) == 0
    assert say.lines[-1].startswith(f"{whole} is done: medusa after")
    with pytest.raises(StageError, match=r"other settings \(rate was 0\.02, now 0\.5\)"):
        train_stage.run(train_options(target, examples, whole, "--rate", "0.5"), say)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_training_ends_as_an_uninterrupted_one(
    number: signal.Signals, whole: Path, target: Path, examples: Path, tmp_path: Path
) -> None:
    """Asked to stop at step 4 it keeps step 4 or 5; continued, every loss and every weight is the same to the bit."""
    say = Saying("step 4,", lambda: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        train_stage.run(train_options(target, examples, tmp_path / "out"), say)
    assert signal.getsignal(number) == before
    assert 4 <= steps(tmp_path / "out")[-1][0] <= 5
    assert not (tmp_path / "out" / "checkpoint").exists()
    with pytest.raises(StageError, match="was begun and is not finished"):
        read_manifest(tmp_path / "out", "train")
    again = Saying()
    assert train_stage.run(train_options(target, examples, tmp_path / "out"), again) == 0
    assert any(line.startswith("continued at step") for line in again.lines)
    assert steps(tmp_path / "out") == steps(whole)
    assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(tmp_path / "out").items())


class Killed(Exception):
    """Stands for a process that ends without a word."""


def test_a_killed_training_goes_on_from_its_last_checkpoint(
    whole: Path, target: Path, examples: Path, tmp_path: Path
) -> None:
    """Killed at step 7, after checkpoints at every step: the lines after the last one are dropped and written again."""

    def die() -> None:
        raise Killed

    options = train_options(target, examples, tmp_path / "out", "--checkpoint-seconds", "0")
    with pytest.raises(Killed):
        train_stage.run(options, Saying("step 7,", die))
    assert train_stage.run(options, Saying()) == 0
    assert steps(tmp_path / "out") == steps(whole)
    assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(tmp_path / "out").items())


def test_a_checkpoint_cut_short_is_named(target: Path, examples: Path, tmp_path: Path) -> None:
    """Half a state file is not gone on from."""
    options = train_options(target, examples, tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        train_stage.run(options, Saying("step 2,", lambda: os.kill(os.getpid(), signal.SIGTERM)))
    state = tmp_path / "out" / "state.pt"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(StageError, match=r"state\.pt cannot be read as a checkpoint"):
        train_stage.run(options, Saying())


def test_patience_ends_it_and_the_best_weights_are_written(target: Path, examples: Path, tmp_path: Path) -> None:
    """At an absurd rate nothing gets better: it ends after one evaluation, the heads are those it began with, and it says so."""
    options = train_options(
        target, examples, tmp_path / "out", "--rate", "1000", "--patience", "1", "--stop-on", "loss", "--clip", "1e9"
    )
    say = Saying()
    assert train_stage.run(options, say) == 0
    assert "holds the weights that it began with" in say.lines[-1]
    counts = read_manifest(tmp_path / "out", "train").counts
    assert (counts["best_step"], counts["stopped_early"]) == (0, True)
    assert all(not tensor.any() for tensor in weights(tmp_path / "out").values())
    assert counts["held_out_after"]["all"]["loss"] == pytest.approx(counts["held_out_before"]["all"]["loss"])
    last = train_options(target, examples, tmp_path / "last", "--rate", "1", "--patience", "1", "--stop-on", "nothing")
    assert train_stage.run(last, Saying()) == 0
    counts = read_manifest(tmp_path / "last", "train").counts
    assert counts["best_step"] == counts["steps"] > 0
    assert not counts["stopped_early"]
    assert any(tensor.any() for tensor in weights(tmp_path / "last").values())


def test_captured_states_give_what_the_target_in_the_loop_gives(
    whole: Path, target: Path, examples: Path, tmp_path: Path
) -> None:
    """The curve of stored states is that of computed ones but for their rounding to bfloat16, 3 digits."""
    parser = argparse.ArgumentParser()
    add_capture_arguments(parser)
    given = ["--examples", str(examples), "--target", str(target), "--layers", "2", "--out", str(tmp_path / "features")]
    assert run_capture(parser.parse_args([*given, "--threads", "1"]), Saying()) == 0
    options = train_options(target, examples, tmp_path / "out", "--features", str(tmp_path / "features"))
    assert train_stage.run(options, Saying()) == 0
    for (step, loss), (other_step, other_loss) in zip(steps(tmp_path / "out"), steps(whole), strict=True):
        assert step == other_step
        assert loss == pytest.approx(other_loss, rel=0.02)


def test_states_of_another_target_are_refused(target: Path, examples: Path, tmp_path: Path) -> None:
    """Captured with plain weights, trained for 4-bit ones: other hidden states."""
    parser = argparse.ArgumentParser()
    add_capture_arguments(parser)
    given = ["--examples", str(examples), "--target", str(target), "--layers", "1", "--out", str(tmp_path / "features")]
    assert run_capture(parser.parse_args([*given, "--threads", "1"]), Saying()) == 0
    more = ("--features", str(tmp_path / "features"), "--weights", "rtn4")
    with pytest.raises(StageError, match="was captured from another target"):
        train_stage.run(train_options(target, examples, tmp_path / "out", *more), Saying())


def test_it_goes_on_from_a_published_checkpoint(whole: Path, target: Path, examples: Path, tmp_path: Path) -> None:
    """What was reached is where it begins, but for the export's rounding."""
    options = train_options(target, examples, tmp_path / "out", "--start", str(whole / "checkpoint"))
    assert train_stage.run(options, Saying()) == 0
    before = read_manifest(tmp_path / "out", "train").counts["held_out_before"]
    assert before == read_manifest(whole, "train").counts["held_out_after"]


def test_a_checkpoint_of_a_finished_training_is_removed(target: Path, examples: Path, tmp_path: Path) -> None:
    """Killed between the manifest and the removal of state.pt, the same command removes it."""
    options = train_options(target, examples, tmp_path / "out", "--tokens", "60")
    assert train_stage.run(options, Saying()) == 0
    (tmp_path / "out" / "state.pt").write_bytes(b"left")
    assert train_stage.run(options, Saying()) == 0
    assert not (tmp_path / "out" / "state.pt").exists()


def test_a_draft_model_is_written_with_the_targets_tokenizer(target: Path, examples: Path, tmp_path: Path) -> None:
    """A folder that the spec loads as it is."""
    sizes = [f"--set={key}" for key in ("hidden_size=16", "layers=1", "intermediate_size=16", "heads=1", "kv_heads=1")]
    options = train_options(target, examples, tmp_path / "out", *sizes, method="draft_model")
    assert train_stage.run(options, Saying()) == 0
    folder = tmp_path / "out" / "checkpoint"
    assert (folder / "tokenizer.json").read_bytes() == (target / "tokenizer.json").read_bytes()
    assert json.loads((folder / "config.json").read_text("utf-8"))["dtype"] == "bfloat16"
    build(DraftModelSpec(model=folder), DecoderModel.load(target, torch.float32), 100)


def test_an_ngram_corpus_holds_each_training_answer_once(target: Path, tmp_path: Path) -> None:
    """Two equal answers and one held out: one line; half a table where the tokens end."""
    made = tiny_examples()
    examples = write_examples(tmp_path / "examples", target, [*made, replace(made[0], id="again")])
    options = train_options(target, examples, tmp_path / "out", "--tokens", "100000", method="ngram")
    assert train_stage.run(options, Saying()) == 0
    written = read_corpus(tmp_path / "out" / "checkpoint" / "corpus.txt", VOCAB)
    answers = {one.token_ids[a:b] for one in made if one.split == "train" for a, b in one.answers}
    assert sorted(map(tuple, written)) == sorted(answers)
    assert read_manifest(tmp_path / "out", "train").counts["duplicates"] >= 1
    options = train_options(target, examples, tmp_path / "small", "--tokens", "60", method="ngram")
    assert train_stage.run(options, Saying()) == 0
    assert 40 < sum(map(len, read_corpus(tmp_path / "small" / "checkpoint" / "corpus.txt", VOCAB))) <= 60


def test_a_draft_vocabulary_is_counted_in_the_shares_of_the_mix() -> None:
    """Ten Korean 5s and five English 7s: 5 is the most frequent as they come, 7 where English is nine tenths."""
    korean = Example("k", "ko", "office", "train", (1, *(5,) * 10), ((1, 11),))
    english = Example("e", "en", "office", "train", (1, *(7,) * 5), ((1, 6),))
    settings = method_settings("eagle3", ["draft_vocab_size=1"], 1)
    for mix, wanted in ((None, (5,)), ({"en": 0.9, "ko": 0.1}, (7,)), ({"ko": 1.0}, (5,))):
        say = Saying()
        made = completed(settings, [korean, english], mix, 8, None, say)
        assert made.model_dump()["draft_vocabulary"] == wanted
        assert "of the answers' tokens are outside the draft vocabulary of 1" in say.lines[0]
    plain = method_settings("medusa", [], 1)
    assert completed(plain, [korean], None, 8, None, say) is plain


def test_a_drafter_of_other_texts_gets_the_tokens_of_these(target: Path, tmp_path: Path) -> None:
    """Trained on tokens 0 to 15 with a vocabulary of sixteen, it goes on with answers of 40 to 55: these are then what
    it drafts; what the manifest holds of the settings is what was given."""

    def counting(first: int) -> list[Example]:
        ids = tuple(range(first, first + 16))
        sides: tuple[Literal["train", "heldout"], ...] = ("train", "train", "heldout")
        return [Example(f"e{n}", "ko", "chat", side, ids, ((2, 16),)) for n, side in enumerate(sides)]

    before = write_examples(tmp_path / "before", target, counting(0))
    after = write_examples(tmp_path / "after", target, counting(40))
    fresh = ("--set", "draft_vocab_size=16", "--set", "num_tokens=2", "--tokens", "60")
    options = train_options(target, before, tmp_path / "first", *fresh, method="eagle3")
    assert train_stage.run(options, Saying()) == 0
    start = ("--start", str(tmp_path / "first" / "checkpoint"), "--set", "num_tokens=2", "--tokens", "60")
    say = Saying()
    assert train_stage.run(train_options(target, after, tmp_path / "second", *start, method="eagle3"), say) == 0
    assert any(
        "100.00% of the answers' tokens are outside the checkpoint's draft vocabulary" in one for one in say.lines
    )
    known = weights(tmp_path / "second")["t2d"].nonzero().flatten().tolist()
    assert set(range(42, 56)) <= set(known)
    assert len(known) == 16
    assert read_manifest(tmp_path / "second", "train").settings["set"] == {"num_tokens": 2, "seed": 1}


def test_passes_are_counted_in_the_tokens_of_the_training_examples() -> None:
    """Two examples of 3 and 5 tokens: a pass and a half is 12; given tokens stand as they are."""
    made = [Example(str(n), "ko", "chat", "train", tuple(range(n)), ((1, n),)) for n in (3, 5)]
    assert budget(argparse.Namespace(tokens=None, passes=1.5), made) == 12
    assert budget(argparse.Namespace(tokens=70, passes=None), made) == 70


def test_a_training_by_passes_says_so(target: Path, tmp_path: Path) -> None:
    """A tenth of a pass leaves a short table; the manifest has the passes, and other ones are other settings."""
    made = tiny_examples()
    examples = write_examples(tmp_path / "examples", target, made)
    options = train_options(target, examples, tmp_path / "out", method="ngram")
    options.tokens, options.passes = None, 0.1
    assert train_stage.run(options, Saying()) == 0
    manifest = read_manifest(tmp_path / "out", "train")
    assert (manifest.settings["tokens"], manifest.settings["passes"]) == (None, 0.1)
    most = 0.1 * sum(len(one.token_ids) for one in made if one.split == "train")
    assert 0 < sum(map(len, read_corpus(tmp_path / "out" / "checkpoint" / "corpus.txt", VOCAB))) <= most
    options.passes = 0.2
    with pytest.raises(StageError, match=r"other settings \(passes was 0\.1, now 0\.2\)"):
        train_stage.run(options, Saying())


def test_bad_options_are_named(target: Path, examples: Path, tmp_path: Path) -> None:
    """Unknown methods and settings, values out of range, states for some examples alone."""
    for more, said in (
        (("--set", "heads=3"), "unknown key 'heads'; allowed: decay, layers, loss, num_tokens, original_lm_head, seed"),
        (("--set", "layers=0"), "'layers' is 0: input should be greater than or equal to 1"),
        (("--set", "loss=mean"), "'loss' is 'mean': input should be 'soft' or 'hard'"),
        (("--set", "layers"), "has no '='; give key=value"),
        (("--mix", "fr=1"), "--mix has 'fr=1'"),
        (("--rate", "0"), "--rate is 0.0; allowed: above 0"),
        (("--clip", "inf"), "--clip is inf; allowed: above 0"),
        (("--evaluations", "0"), "--evaluations is 0; allowed: 1 or more"),
        (("--features", "a", "--features", "b"), "2 --features for 1 --examples"),
        (("--dtype", "bfloat16"), "needs --precision bf16"),
    ):
        with pytest.raises(StageError, match=said.replace("(", r"\(")):
            train_stage.run(train_options(target, examples, tmp_path / "out", *more), Saying())
    with pytest.raises(StageError, match=r"--method 'eagel3' given; allowed: dflash, .*, ngram"):
        train_stage.run(train_options(target, examples, tmp_path / "out", method="eagel3"), Saying())
    assert not (tmp_path / "out").exists()


def test_bad_examples_are_named(target: Path, examples: Path, tmp_path: Path) -> None:
    """Those of another target, unfinished ones, ones without a held-out side, and a checkpoint of another target."""
    other = write_tiny_target(tmp_path / "other", seed=1)
    with pytest.raises(StageError, match="was written by another target"):
        train_stage.run(train_options(other, examples, tmp_path / "out"), Saying())
    with pytest.raises(StageError, match="the result of 'drafters regenerate' is missing"):
        train_stage.run(train_options(target, tmp_path / "unfinished", tmp_path / "out"), Saying())
    assert not (tmp_path / "out").exists()
    one = write_examples(tmp_path / "one", target, tiny_examples(held_out=0))
    with pytest.raises(StageError, match="24 training and 0 held-out examples"):
        train_stage.run(train_options(target, one, tmp_path / "out"), Saying())
    Checkpoint({"medusa_num_heads": 4, "medusa_num_layers": 1}, {}).save(tmp_path / "empty")
    with pytest.raises(SpecError, match="lacks"):
        train_stage.run(
            train_options(target, examples, tmp_path / "out2", "--start", str(tmp_path / "empty")), Saying()
        )


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(
    target: Path, examples: Path, tmp_path: Path
) -> None:
    """With what there is."""
    with pytest.raises(TargetError, match=r"device 'cuda:77' cannot be used .*; there is cpu"):
        train_stage.run(train_options(target, examples, tmp_path / "out", "--device", "cuda:77"), Saying())
    assert not (tmp_path / "out").exists()


def test_a_start_that_does_not_fit_is_named_and_frees_the_folder(target: Path, examples: Path, tmp_path: Path) -> None:
    """The path, since its content alone says little; the corrected command uses the same folder."""
    out, empty = tmp_path / "out", tmp_path / "empty"
    Checkpoint({"medusa_num_heads": 4, "medusa_num_layers": 1}, {}).save(empty)
    options = train_options(target, examples, out, "--start", str(empty))
    with pytest.raises(SpecError, match=rf"--start {empty}: .*lacks"):
        train_stage.run(options, Saying())
    assert take_back_unworked(out)
    assert list(out.iterdir()) == []
