"""How the reference drafters are made: the plan, going on after a kill, and the folder of finished checkpoints."""

from __future__ import annotations

import argparse
import importlib
import json
import resource
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafters.training.methods import METHODS
from drafters.training.reference.families import SETTINGS, Work, collect, main, plan
from drafters.training.reference.prompts import COUNTS
from drafters.training.stage import StageError, begin, finish
from drafters.training.train_inputs import method_settings

SMALL: dict[str, Any] = {
    "families": {"public": {}, "adapted": {}},
    "methods": {"medusa": {}},
    "shared": {"ngram": {}},
}
"""Three drafters, for `collect`."""


@pytest.fixture
def settings() -> dict[str, Any]:
    """The committed settings."""
    made: dict[str, Any] = yaml.safe_load(SETTINGS.read_text("utf-8"))
    return made


@pytest.fixture
def works(settings: dict[str, Any]) -> dict[str, Work]:
    """What they plan, by name."""
    made = plan(settings, Path("prompts"), Path("target"), Path("out"))
    assert len({work.name for work in made}) == len({work.out for work in made}) == len(made)
    return {work.name: work for work in made}


def parsed(work: Work) -> argparse.Namespace:
    """Its command line as the real stage reads it; ends the program where that does not."""
    module = importlib.import_module(f"drafters.training.{work.arguments[0]}_stage")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(work.arguments[1:])


def test_every_command_line_is_one_that_its_stage_takes(works: dict[str, Work]) -> None:
    """Corpora, answers and drafters: options, choices and the settings of each method."""
    stages = [work.arguments[0] for work in works.values()]
    assert (stages.count("corpus"), stages.count("regenerate"), stages.count("train")) == (2, 2, 12)
    for work in works.values():
        options = parsed(work)
        assert options.out == work.out
        if "method" in options and options.method in METHODS:
            method_settings(options.method, options.set, options.seed)


def test_every_input_is_made_by_an_earlier_stage(works: dict[str, Work]) -> None:
    """Answers come after their corpus, drafters after their answers, an adapted one after its public one."""
    made: set[Path] = set()
    for work in works.values():
        options = parsed(work)
        needed = [getattr(options, "corpus", None)]
        for key in ("examples", "features"):
            given = getattr(options, key, None) or []
            needed += given if isinstance(given, list) else [given]
        if getattr(options, "start", None) is not None:
            assert options.start.name == "checkpoint"
            needed.append(options.start.parent)
        assert {folder for folder in needed if folder is not None} <= made
        made.add(work.out)


def test_the_corpora_are_the_files_that_the_prompts_module_writes(works: dict[str, Work]) -> None:
    """Each part with its label."""
    for folder, parts in COUNTS.items():
        given = parsed(works[f"{folder} corpus"]).conversations
        assert [Path(value.split(".jsonl=")[0]) for value in given] == [Path("prompts", folder, part) for part in parts]


def test_an_adapted_drafter_goes_on_from_the_public_one_with_its_shapes(works: dict[str, Work]) -> None:
    """The checkpoint says the draft vocabulary; only the number of tokens is told again."""
    public, adapted = (parsed(works[f"{family}-eagle3"]) for family in ("public", "adapted"))
    assert (public.start, adapted.start) == (None, Path("out/public-eagle3/checkpoint"))
    assert [value.split("=")[0] for value in public.set] == ["num_tokens", "draft_vocab_size"]
    assert [value.split("=")[0] for value in adapted.set] == ["num_tokens"]
    assert [len(options.examples) for options in (public, adapted)] == [1, 2]


def test_every_drafter_learns_from_stored_states_and_the_table_from_tokens(works: dict[str, Work]) -> None:
    """One folder of states for each of answers; a table of n-grams takes none."""
    for name in ("public-medusa", "adapted-dflash2", "draft-model"):
        options = parsed(works[name])
        assert [path.name.replace("states", "answers") for path in options.features] == [
            path.name for path in options.examples
        ]
    assert not parsed(works["ngram"]).features


def prompts(folder: Path) -> Path:
    """Two short texts of each part."""
    for name, parts in COUNTS.items():
        (folder / name).mkdir(parents=True)
        for part in parts:
            lines = [{"id": f"{part}/{number}", "text": f"{part}, text number {number}. " * 9} for number in range(2)]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / name / f"{part}.jsonl").write_text(text, "utf-8")
    return folder


def test_a_run_started_again_skips_what_is_finished_and_ends_at_the_first_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The corpora are made once; the answers fail for want of a target, with the stage's message and its exit code."""
    words = ["--prompts", str(prompts(tmp_path / "prompts")), "--target", str(tmp_path / "none"), "--out"]
    out = tmp_path / "out"
    assert main([*words, str(out), "--only", "public corpus"]) == 0
    made = (out / "public-corpus/conversations.jsonl").stat()
    assert "is done already" not in capfd.readouterr().err
    assert main([*words, str(out)]) == 2
    told = capfd.readouterr().err
    assert "public-corpus is done already" in told
    assert "public answers ended with 2; the same command goes on here" in told
    assert "public-medusa" not in told
    assert (out / "public-corpus/conversations.jsonl").stat().st_mtime_ns == made.st_mtime_ns


def test_an_unknown_stage_is_told_with_those_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is run or made."""
    out = tmp_path / "out"
    words = ["--prompts", str(tmp_path), "--target", str(tmp_path), "--out", str(out)]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--only", "public-mtp", "public-nothing"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "unknown ['public-nothing']; allowed: 'public corpus', 'public answers'" in message
    assert not out.exists()


def trained(out: Path, name: str, content: bytes = b"new") -> None:
    """A finished folder of ``drafters train`` with one file in its checkpoint."""
    begin(out / name, "train", {}, {"name": name})
    (out / name / "checkpoint").mkdir()
    (out / name / "checkpoint/weights").write_bytes(content)
    finish(out / name, ["checkpoint/weights"], {})


def files(folder: Path) -> dict[str, bytes]:
    """All files, hidden ones too, by their path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_finished_checkpoints_are_collected_and_nothing_of_older_ones_stays(tmp_path: Path) -> None:
    """One is finished, one begun, one not begun; the finished one takes the place of what was there."""
    trained(tmp_path, "public-medusa")
    begin(tmp_path / "ngram", "train", {}, {})
    for name in ("public-medusa", ".public-medusa.new"):  # an older one, and half a copy that a kill left
        (tmp_path / "drafters" / name).mkdir(parents=True)
        (tmp_path / "drafters" / name / "stale").touch()
    assert collect(SMALL, tmp_path) == ["public-medusa"]
    assert files(tmp_path / "drafters") == {"public-medusa/weights": b"new"}


def test_a_disk_that_is_full_leaves_the_old_checkpoint_whole(tmp_path: Path) -> None:
    """The new one does not fit; with room again it is taken."""
    trained(tmp_path, "public-medusa", b"x" * 5000)
    (tmp_path / "drafters/public-medusa").mkdir(parents=True)
    (tmp_path / "drafters/public-medusa/weights").write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        with pytest.raises(StageError, match="drafters cannot be written"):
            collect(SMALL, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path / "drafters/public-medusa") == {"weights": b"old"}
    collect(SMALL, tmp_path)
    assert files(tmp_path / "drafters/public-medusa") == {"weights": b"x" * 5000}


def test_a_checkpoint_that_was_changed_is_not_collected(tmp_path: Path) -> None:
    """Its manifest tells, and the copy there was stays."""
    trained(tmp_path, "public-medusa")
    collect(SMALL, tmp_path)
    (tmp_path / "public-medusa/checkpoint/weights").write_bytes(b"cut")
    with pytest.raises(StageError, match="was changed or cut short"):
        collect(SMALL, tmp_path)
    assert files(tmp_path / "drafters/public-medusa") == {"weights": b"new"}
