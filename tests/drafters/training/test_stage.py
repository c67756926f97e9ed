"""A stage's folder: who may work in it, and what a kill leaves."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drafters.training import corpus_stage
from drafters.training.stage import (
    StageError,
    begin,
    digest,
    finish,
    read_manifest,
    take_back,
    take_back_unworked,
    write_whole,
)

BEGIN = (
    "import sys\nfrom pathlib import Path\nfrom drafters.training.stage import begin\n"
    "begin(Path(sys.argv[1]), 'corpus', {}, {'seed': 1})\nprint('begun', flush=True)\nsys.stdin.read()\n"
)


@contextmanager
def another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has begun the work of `open_folder`, and lives."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", BEGIN, str(folder)], stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def open_folder(folder: Path, seed: int = 1) -> Any:
    """Begin the work of the tests."""
    return begin(folder, "corpus", {}, {"seed": seed})


def test_a_kill_in_the_middle_of_the_first_write_does_not_block_the_folder(tmp_path: Path) -> None:
    """The temporary file of a process that is gone: the stage begins, and the file is gone too."""
    (tmp_path / ".request.json.4711").write_text('{"stage"')
    (tmp_path / ".lock").touch()
    assert open_folder(tmp_path) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "request.json"]


@pytest.mark.parametrize("name", ["notes.txt", ".notes", ".shard-00000.safetensors.4711", ".request.json.backup"])
def test_files_of_somebody_else_are_left_alone(tmp_path: Path, name: str) -> None:
    """A folder that no stage has begun holds nothing of a stage but what the very first write leaves."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(StageError, match="holds files that are not of this stage"):
        open_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_half_files_of_a_killed_stage_are_removed_when_it_goes_on(tmp_path: Path) -> None:
    """A shard and a checkpoint that were being written, in subfolders too; whole files and other hidden ones stay."""
    open_folder(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    left = [".shard-00000.safetensors.4711", ".state.pt.12", "checkpoint/.corpus.txt.9"]
    kept = ["state.pt", ".hidden", "checkpoint/model.0001"]
    for name in (*left, *kept):
        (tmp_path / name).touch()
    open_folder(tmp_path)
    assert [name for name in (*left, *kept) if (tmp_path / name).exists()] == kept


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    """The second is refused while the first lives; when that is killed, nothing is left that would block."""
    with another(tmp_path / "out") as process:
        with pytest.raises(StageError, match=r"another process works in .*out; wait for it, end it"):
            open_folder(tmp_path / "out")
        process.kill()
        process.wait()
        assert open_folder(tmp_path / "out") is None


def test_half_files_of_a_living_process_stay(tmp_path: Path) -> None:
    """It is about to rename them."""
    with another(tmp_path / "out"):
        (tmp_path / "out/.state.pt.12").touch()
        with pytest.raises(StageError):
            open_folder(tmp_path / "out")
        assert (tmp_path / "out/.state.pt.12").exists()


def test_one_process_may_begin_again_what_it_began(tmp_path: Path) -> None:
    """After an error, say."""
    assert [open_folder(tmp_path), open_folder(tmp_path)] == [None, None]


def test_a_finished_folder_has_no_lock_and_may_be_asked_by_all(tmp_path: Path) -> None:
    """Its end frees it: another process is told that it is done, and leaves nothing."""
    open_folder(tmp_path)
    write_whole(tmp_path / "out.txt", "done")
    finish(tmp_path, ["out.txt"], {"texts": 1})
    with another(tmp_path):
        assert open_folder(tmp_path).counts == {"texts": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "out.txt", "request.json"]
    assert read_manifest(tmp_path, "corpus").settings == {"seed": 1}


def test_a_folder_that_was_removed_is_locked_anew(tmp_path: Path) -> None:
    """A lock on a file that is gone keeps nobody out."""
    out = tmp_path / "out"
    open_folder(out)
    for path in out.iterdir():
        path.unlink()
    out.rmdir()
    open_folder(out)
    command = [sys.executable, "-c", BEGIN, str(out)]
    process = subprocess.run(command, capture_output=True, text=True, input="", check=False)
    assert "another process works in" in process.stderr


def test_what_is_taken_back_leaves_the_folder_free_for_other_work(tmp_path: Path) -> None:
    """Nothing of it stays."""
    open_folder(tmp_path)
    take_back(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert open_folder(tmp_path, seed=2) is None


def test_a_file_system_without_locks_is_worked_on_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems know none."""

    def refuse(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert open_folder(tmp_path) is None
    assert (tmp_path / "request.json").is_file()


def test_a_refusal_before_any_work_frees_the_folder(tmp_path: Path) -> None:
    """Scratch of the corpus, half files and empty ones are nothing: afterwards other settings may use the folder."""
    open_folder(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / corpus_stage.WORK).write_text("a masked line")
    (tmp_path / "checkpoint/.model.safetensors.77").write_text("half")
    (tmp_path / "partial.jsonl").touch()

    assert take_back_unworked(tmp_path)

    assert list(tmp_path.iterdir()) == []
    assert open_folder(tmp_path, seed=2) is None


@pytest.mark.parametrize("name", ["partial.jsonl", "state.pt", "checkpoint/model.safetensors", ".notes"])
def test_work_that_was_done_is_never_deleted(tmp_path: Path, name: str) -> None:
    """One file with content keeps the folder as it is."""
    open_folder(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / corpus_stage.WORK).write_text("a masked line")
    (tmp_path / name).write_text("work")

    assert not take_back_unworked(tmp_path)

    assert (tmp_path / name).read_text() == "work"
    assert (tmp_path / "request.json").is_file()
    assert (tmp_path / corpus_stage.WORK).is_file()


def test_a_folder_that_another_process_works_in_is_not_taken_back(tmp_path: Path) -> None:
    """Whoever was refused the lock has begun nothing there."""
    with another(tmp_path / "out"):
        with pytest.raises(StageError, match="another process"):
            open_folder(tmp_path / "out")
        assert not take_back_unworked(tmp_path / "out")
        assert (tmp_path / "out/request.json").is_file()


@pytest.mark.parametrize("out", ["read", "read/sub/out"])
def test_a_folder_within_an_input_is_refused(tmp_path: Path, out: str) -> None:
    """What a stage writes would be read the next time; nothing is made."""
    read = tmp_path / "read"
    read.mkdir()
    (read / "a.txt").write_text("a")
    (tmp_path / "link").symlink_to(read, target_is_directory=True)

    for given in (read, tmp_path / "link"):
        with pytest.raises(StageError, match=r"--out .* lies in .*, which is read"):
            begin(tmp_path / out, "corpus", {"documents": given}, {})

    assert [path.name for path in read.iterdir()] == ["a.txt"]


def test_a_folder_within_a_finished_stage_that_is_read_is_refused(tmp_path: Path) -> None:
    """A stage is given by its manifest; its folder is what must stay as it is."""
    open_folder(tmp_path / "corpus")
    write_whole(tmp_path / "corpus/out.txt", "done")
    finish(tmp_path / "corpus", ["out.txt"], {})

    with pytest.raises(StageError, match="lies in"):
        begin(tmp_path / "corpus/next", "regenerate", {"corpus": tmp_path / "corpus/manifest.json"}, {})


def test_the_finished_folder_of_another_stage_is_told_as_such(tmp_path: Path) -> None:
    """It was named as the output, so another folder is the advice."""
    open_folder(tmp_path)
    finish(tmp_path, [], {})

    with pytest.raises(StageError, match=r"holds the result of 'drafters corpus'; give another folder"):
        begin(tmp_path, "regenerate", {}, {})


@pytest.mark.parametrize(
    ("key", "value"), [("inputs", []), ("outputs", ["a"]), ("outputs", {"a": 1}), ("counts", 3), ("settings", None)]
)
def test_a_manifest_of_other_kinds_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    """The file, what is wrong in it and what to do."""
    open_folder(tmp_path)
    finish(tmp_path, [], {})
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    with pytest.raises(StageError, match=rf"manifest\.json is damaged or of another version .*{key}"):
        read_manifest(tmp_path, "corpus")


def test_a_request_of_other_kinds_is_refused(tmp_path: Path) -> None:
    """What was asked cannot be told from it."""
    open_folder(tmp_path)
    (tmp_path / "request.json").write_text('{"stage": "corpus", "inputs": ["a"], "settings": {}}')

    with pytest.raises(StageError, match=r"request\.json is damaged .inputs is \['a'\]"):
        open_folder(tmp_path)


def test_a_file_name_of_any_bytes_is_hashed(tmp_path: Path) -> None:
    """Archives of other systems bring names that are not UTF-8."""
    first = digest(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xb0\xa1.txt")).write_text("text")

    assert digest(tmp_path) != first
