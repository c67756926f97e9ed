"""``drafters regenerate`` with the builtin engine: what it writes, and what a kill or a full disk leaves."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drafters.training.conversations import Conversation
from drafters.training.stage import StageError, begin, read_manifest
from tests.drafters.engine.serving import fast, random_folder, song_folder, tokenizer
from tests.drafters.training.regenerating import (
    ANSWER,
    END,
    answers_of,
    chain_folder,
    corpus,
    examples_of,
    regenerate,
    report_of,
    talk,
)

MANY = [
    talk(f"c{number:02}", f"질문 {number}", "more, please", language="ko" if number % 2 else "en")
    for number in range(40)
]
SAMPLED = ("--max-tokens", 40, "--temperature", 0, 0.9, "--dtype", "float64")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that always gives one answer and ends."""
    return chain_folder(tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="module")
def babble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of random weights."""
    return random_folder(tmp_path_factory.mktemp("babble"))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of forty conversations."""
    return corpus(tmp_path_factory.mktemp("many") / "corpus", MANY)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, many: Path, babble: Path) -> Path:
    """What the random target answers to it, half at temperature 0, half at 0.9."""
    folder = tmp_path_factory.mktemp("unbroken") / "out"
    regenerate("--corpus", many, "--target", babble, "--out", folder, *SAMPLED)
    return folder


@contextmanager
def quota(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_target_answers_every_turn_and_the_report_counts_it(tmp_path: Path, chain: Path) -> None:
    """Two turns and one, nine tokens each with the end of turn; held-out ones are told apart in one file."""
    made = [talk("b", "one", "two", split="heldout"), talk("a", "one", language="en")]
    out = tmp_path / "out"
    regenerate("--corpus", corpus(tmp_path / "corpus", made), "--target", chain, "--out", out)
    found = examples_of(out)
    assert [(name, example.split, example.answer_tokens) for name, example in found.items()] == [
        ("a", "train", 9),
        ("b", "heldout", 18),
    ]
    expected = (*tokenizer(merges=0).encode(ANSWER).ids, END)
    assert [list(answers_of(example)) for example in found.values()] == [[expected], [expected, expected]]
    report = report_of(out)
    assert {key: report[key] for key in ("answers", "tokens", "mean_tokens", "finish", "looping_share", "failed")} == {
        "answers": 3,
        "tokens": 27,
        "mean_tokens": 9.0,
        "finish": {"stop": 3},
        "looping_share": 0.0,
        "failed": 0,
    }
    assert report["by_language"]["en"]["answers"] == 1
    assert read_manifest(out, "regenerate").counts["tokens_from"] == "engine"


def test_a_finished_folder_is_done_and_other_settings_need_another(tmp_path: Path, chain: Path) -> None:
    """Nothing is answered twice, and nothing overwritten."""
    source, out = corpus(tmp_path / "corpus", [talk("a", "one")]), tmp_path / "out"
    regenerate("--corpus", source, "--target", chain, "--out", out)
    before = (out / "examples.jsonl").stat()
    (said,) = regenerate("--corpus", source, "--target", chain, "--out", out)
    assert "is done: 1 answers, 9 tokens" in said
    assert (out / "examples.jsonl").stat().st_mtime_ns == before.st_mtime_ns
    assert not (out / "partial.jsonl").exists()
    with pytest.raises(StageError, match=r"other settings .*max_tokens"):
        regenerate("--corpus", source, "--target", chain, "--out", out, "--max-tokens", 5)


def test_cut_answers_stay_and_are_counted(tmp_path: Path, chain: Path) -> None:
    """Four of nine tokens, no end of turn."""
    out = tmp_path / "out"
    source = corpus(tmp_path / "corpus", [talk("a", "one")])
    regenerate("--corpus", source, "--target", chain, "--out", out, "--max-tokens", 4)
    assert report_of(out)["finish"] == {"length": 1}
    (answer,) = answers_of(examples_of(out)["a"])
    assert answer == tuple(tokenizer(merges=0).encode(ANSWER[:4]).ids)


def test_a_target_that_loops_gives_nothing_to_learn_unless_it_is_asked_for(tmp_path: Path) -> None:
    """The one that sings for ever: refused with the reason; kept with the flag, and counted."""
    source, song = corpus(tmp_path / "corpus", [talk("a", "one")]), song_folder(tmp_path / "song")
    short = ("--max-tokens", 150)
    with pytest.raises(StageError, match=r"'repetition': 1.*--keep-repetition"):
        regenerate("--corpus", source, "--target", song, "--out", tmp_path / "out", *short)
    regenerate("--corpus", source, "--target", song, "--out", tmp_path / "kept", *short, "--keep-repetition")
    assert (report_of(tmp_path / "kept")["looping"], len(examples_of(tmp_path / "kept"))) == (1, 1)


def test_four_bit_weights_answer_otherwise(tmp_path: Path, babble: Path) -> None:
    """They are those of the deployed target, so its answers are others than the plain one's."""
    source = corpus(tmp_path / "corpus", [talk("a", "one")])
    short = ("--max-tokens", 30, "--keep-repetition")
    for weights in ("plain", "nf4"):
        regenerate("--corpus", source, "--target", babble, "--out", tmp_path / weights, *short, "--weights", weights)
    assert examples_of(tmp_path / "plain") != examples_of(tmp_path / "nf4")


def test_answers_do_not_depend_on_who_is_answered_beside(
    tmp_path: Path, many: Path, babble: Path, unbroken: Path
) -> None:
    """Three at a time instead of sixteen: the same file, at temperature 0 and above."""
    regenerate("--corpus", many, "--target", babble, "--out", tmp_path / "out", *SAMPLED, "--concurrency", 3)
    assert (tmp_path / "out/examples.jsonl").read_bytes() == (unbroken / "examples.jsonl").read_bytes()
    by_temperature = report_of(unbroken)["by_temperature"]
    assert {key: by_temperature[key]["conversations"] for key in by_temperature} == {"0.0": 20, "0.9": 20}


def test_a_killed_run_goes_on_to_the_same_file(tmp_path: Path, many: Path, babble: Path, unbroken: Path) -> None:
    """SIGKILL after some conversations, and a last line cut short; what was finished is not answered again.

    As long as it is not killed, a second run is refused, though nothing moves.
    """
    out = tmp_path / "out"
    arguments = ["--corpus", many, "--target", babble, "--out", out, *SAMPLED, "--concurrency", 2]
    command = [sys.executable, "-m", "tests.drafters.training.regenerating", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    partial = out / "partial.jsonl"
    deadline = time.monotonic() + 120
    while not (partial.exists() and partial.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(StageError, match="another process works in"):
        regenerate(*arguments)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(StageError, match="not finished"):
        read_manifest(out, "regenerate")
    lines = partial.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    assert 3 <= len(whole) < len(MANY)
    partial.write_bytes(b"".join(whole) + b'{"id": "c0')
    said = regenerate(*arguments)
    assert said[0] == f"{len(whole)} of 40 conversations were answered before; going on"
    assert (out / "examples.jsonl").read_bytes() == (unbroken / "examples.jsonl").read_bytes()
    assert (out / "report.json").read_bytes() == (unbroken / "report.json").read_bytes()


def test_a_full_disk_is_said_and_nothing_is_taken_for_whole(
    tmp_path: Path, many: Path, babble: Path, unbroken: Path
) -> None:
    """A quota of three thousand bytes for a file; with room again the same command ends the work."""
    out = tmp_path / "out"
    arguments = ["--corpus", many, "--target", babble, "--out", out, *SAMPLED]
    with quota(3000), pytest.raises(StageError, match="cannot be written: File too large; free some space"):
        regenerate(*arguments)
    assert not (out / "manifest.json").exists()
    assert not (out / "examples.jsonl").exists()
    regenerate(*arguments)
    assert (out / "examples.jsonl").read_bytes() == (unbroken / "examples.jsonl").read_bytes()


def test_a_disk_that_fills_up_at_the_very_end_leaves_no_half_file(
    tmp_path: Path, many: Path, babble: Path, unbroken: Path
) -> None:
    """Everything is answered, but the examples do not fit."""
    out = tmp_path / "out"
    arguments = ["--corpus", many, "--target", babble, "--out", out, *SAMPLED]
    begin_with = out / "partial.jsonl"
    with quota((unbroken / "examples.jsonl").stat().st_size - 1), pytest.raises(StageError):
        regenerate(*arguments)
    assert [path.name for path in sorted(out.iterdir())] == [".lock", "partial.jsonl", "request.json"]
    assert begin_with.stat().st_size > 0


def test_a_limit_takes_the_same_first_conversations_whoever_is_quicker(
    tmp_path: Path, many: Path, babble: Path, unbroken: Path
) -> None:
    """Three hundred tokens: as few conversations as reach it, the same for two and for nine at a time."""
    for concurrency in (2, 9):
        regenerate(
            *("--corpus", many, "--target", babble, "--out", tmp_path / str(concurrency), *SAMPLED),
            *("--limit-tokens", 300, "--concurrency", concurrency),
        )
    assert (tmp_path / "2/examples.jsonl").read_bytes() == (tmp_path / "9/examples.jsonl").read_bytes()
    counts = read_manifest(tmp_path / "2", "regenerate").counts
    assert 300 <= counts["kept_tokens"] < 300 + 80  # two turns of forty tokens more at most
    assert set(examples_of(tmp_path / "2")) < set(examples_of(unbroken))


def test_too_many_empty_answers_end_the_stage_and_are_written_down(tmp_path: Path) -> None:
    """A target that ends its turn at once."""
    silent = chain_folder(tmp_path / "silent", "")
    source = corpus(tmp_path / "corpus", [talk("a", "one"), talk("b", "one")])
    with pytest.raises(StageError, match=r"of 2 conversations failed, more than --max-failures 0\.1.* is empty"):
        regenerate("--corpus", source, "--target", silent, "--out", tmp_path / "out")
    failures = [json.loads(line) for line in (tmp_path / "out/failures.jsonl").read_text().splitlines()]
    assert failures[0]["reason"] == "answer 1 is empty (stop after 1 tokens)"
    assert not (tmp_path / "out/manifest.json").exists()


def test_some_failures_are_allowed_and_stay_out(tmp_path: Path, chain: Path) -> None:
    """One empty text beside one conversation, with half allowed."""
    made = [talk("a", "one"), Conversation("b", "hand", "ko", "essay", "train", text="")]
    source = corpus(tmp_path / "corpus", made)
    regenerate("--corpus", source, "--target", chain, "--out", tmp_path / "out", "--max-failures", 0.5)
    assert list(examples_of(tmp_path / "out")) == ["a"]
    assert '"id": "b"' in (tmp_path / "out/failures.jsonl").read_text()
    assert report_of(tmp_path / "out")["failed"] == 1


def test_a_tokenizer_of_another_target_is_refused(tmp_path: Path, chain: Path) -> None:
    """More tokens than the model has rows."""
    folder = tmp_path / "mixed"
    shutil.copytree(chain, folder)
    fast(tokenizer(merges=120)).save_pretrained(folder)
    source = corpus(tmp_path / "corpus", [talk("a", "one")])
    with pytest.raises(StageError, match="belong to different models"):
        regenerate("--corpus", source, "--target", folder, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "nowhere"], "holds no tokenizer.json"),
        ([], "either --target"),
        (["--target", "x", "--base-url", "http://y"], "either --target"),
        (["--base-url", "http://y"], "--base-url needs --model"),
        (["--target", "CHAIN", "--temperature", "-1"], "--temperature is -1.0; allowed"),
        (["--target", "CHAIN", "--max-tokens", "0"], "--max-tokens is 0; allowed: 1 or more"),
        (
            ["--target", "CHAIN", "--context-tokens", "5"],
            "--context-tokens is 5: input should be greater than or equal",
        ),
        (["--target", "CHAIN", "--concurrency", "9999"], "--concurrency is 9999: input should be less than or equal"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, chain: Path, arguments: list[str], message: str) -> None:
    """Before anything is written."""
    given = [str(chain) if argument == "CHAIN" else argument for argument in arguments]
    with pytest.raises(StageError, match=message):
        regenerate("--corpus", tmp_path, "--out", tmp_path / "out", *given)
    assert not (tmp_path / "out").exists()


def test_an_unfinished_corpus_is_refused(tmp_path: Path, chain: Path) -> None:
    """It was begun, and nobody knows whether it is whole."""
    source = tmp_path / "documents.txt"
    source.write_text("source")
    begin(tmp_path / "corpus", "corpus", {"documents": source}, {})
    with pytest.raises(StageError, match="was begun and is not finished"):
        regenerate("--corpus", tmp_path / "corpus", "--target", chain, "--out", tmp_path / "out")
