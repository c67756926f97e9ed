"""The corpus stage as a whole: what it writes and what it never writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafters.training import corpus_stage
from drafters.training.stage import StageError, read_manifest
from tests.drafters.training.corpora import PERSONAL, build, folder_of, load, personal_corpus, written

WORKLOADS = Path(__file__).parents[3] / "workloads" / "data"


@pytest.mark.parametrize("mode", ["surrogate", "label"])
def test_no_personal_value_is_written(tmp_path: Path, mode: str) -> None:
    """No file of the stage holds any of the values, in any spelling of digits; what it says holds none but the names of
    files that were left out, which their owner must find.
    """
    folder, log = personal_corpus(tmp_path)
    key = tmp_path / "key"
    said = build(tmp_path / "out", "--documents", folder, "--conversations", log, "--mask", mode, "--key-file", key)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "conversations.jsonl",
        "masking.json",
        "report.json",
        "manifest.json",
        "request.json",
    }
    assert [line.partition(":")[0] for line in said if "홍길동" in line] == ["left out 홍길동_scan.hwp"]
    said = [line for line in said if not line.startswith("left out")]
    everything = "\n".join([path.read_text("utf-8") for path in files] + said)
    assert not [value for value in PERSONAL if value in everything]
    digits = "".join(character for character in everything if character not in "- ")
    assert not [
        v for v in PERSONAL if v[-4:].isdigit() and len(v) > 10 and v.replace("-", "").replace(" ", "") in digits
    ]
    assert key.read_text().strip() not in everything
    kinds = load(tmp_path / "out" / "masking.json")["kinds"]
    assert set(kinds) == {
        "name", "phone", "email", "address", "account", "card", "rrn", "biz_reg", "corp_reg", "passport", "birth_date", "driver_license",
    }  # fmt: skip


def test_documents_become_requests_and_beginnings(tmp_path: Path) -> None:
    """Each document gives a request with an answer still to be given and a beginning to be continued, on one side."""
    build(tmp_path / "out", "--documents", f"{folder_of(tmp_path, 12)}=ko/office")
    made = written(tmp_path / "out")
    asked = [one for one in made if one.messages]
    begun = [one for one in made if one.text is not None]
    assert len(asked) == 12
    assert len(begun) >= 10
    assert all(one.messages[-1] == {"role": "assistant", "content": ""} for one in asked)
    assert {(one.language, one.text_type) for one in made} == {("ko", "office")}
    assert all(len({one.split for one in made if one.source == source}) == 1 for source in {one.source for one in made})
    assert {one.split for one in made} == {"train", "heldout"}
    assert len({one.id for one in made}) == len(made)


def test_tasks_keep_their_recorded_answers(tmp_path: Path) -> None:
    """Recorded answers, calls and tools are there for the target to rewrite."""
    build(tmp_path / "out", "--tasks", WORKLOADS / "dev-ko.jsonl", "--mask", "none")
    made = written(tmp_path / "out")
    assert len(made) == 16
    assert all(one.tools and one.messages[0]["role"] == "system" for one in made)
    assert all(one.messages[-1]["role"] == "assistant" and one.messages[-1]["content"] for one in made)


def test_masked_turns_of_a_growing_conversation_stay_its_prefix(tmp_path: Path) -> None:
    """A log of one conversation after each turn: earlier turns are masked as they are in the longest."""
    turns: list[dict[str, Any]] = []
    for number, value in enumerate(("김철수", "010-1234-5678", "박서연")):
        turns += [
            {"role": "user", "content": f"{number}번 담당자 {value} 과장, 김철수에게 전달해 주세요."},
            {"role": "assistant", "content": f"{value}에 전달했습니다."},
        ]
    lengths = (2, 4, 6)
    # another opening word, so that each state counts as a conversation of its own and stays
    states = [[{"role": "system", "content": f"지침 {length}"}, *turns[:length]] for length in lengths]
    log = tmp_path / "log.jsonl"
    log.write_text(
        "".join(
            json.dumps({"messages": state, "session_id": length}) + "\n"
            for state, length in zip(states, lengths, strict=True)
        ),
        "utf-8",
    )
    build(tmp_path / "out", "--conversations", f"{log}=ko/chat", "--held-out", "0")
    made = sorted((one.messages[1:] for one in written(tmp_path / "out")), key=len)
    assert made[-1][: len(made[0])] == made[0]
    assert "김철수" not in json.dumps(made, ensure_ascii=False)


def test_ids_do_not_tell_of_what_was_masked(tmp_path: Path) -> None:
    """Another key gives other ids throughout, for they follow from names and texts only together with the key."""
    folder, log = personal_corpus(tmp_path)
    for name in "ab":
        given = (
            "--documents",
            folder,
            "--conversations",
            log,
            "--mask",
            "label",
            "--key-file",
            tmp_path / f"key {name}",
        )
        build(tmp_path / name, *given)
    a, b = (written(tmp_path / name) for name in "ab")
    assert [one.messages or one.text for one in a] == [one.messages or one.text for one in b]
    assert not {one.id.partition("-")[0] for one in a} & {one.id.partition("-")[0] for one in b}


def test_counts_of_kinds_are_those_of_the_files(tmp_path: Path) -> None:
    """What was replaced is counted once: in the texts, and not again for each showing of a file's name."""
    folder, log = personal_corpus(tmp_path)
    build(tmp_path / "out", "--documents", folder, "--conversations", log)
    masking = load(tmp_path / "out" / "masking.json")
    files = list(masking["files"].values())
    assert masking["kinds"] == {kind: sum(one.get(kind, 0) for one in files) for kind in masking["kinds"]}
    assert masking["kinds"]["rrn"] == 1
    assert set(masking["finds_left_as_they_are"]) == {"ordinary words", "two syllables without a title"}


def test_same_key_and_seed_give_the_same_corpus(tmp_path: Path) -> None:
    """Two runs agree byte for byte; another seed splits differently."""
    folder, log = personal_corpus(tmp_path)
    given = ("--documents", folder, "--conversations", log, "--key-file", tmp_path / "key")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build(tmp_path / name, *given, "--seed", str(seed))
    a, b, c = ((tmp_path / name / "conversations.jsonl").read_bytes() for name in "abc")
    assert a == b != c


def test_done_work_is_not_done_again(tmp_path: Path) -> None:
    """A finished folder is recognised; with other settings it is refused."""
    folder = folder_of(tmp_path, 5)
    build(tmp_path / "out", "--documents", folder, "--mask", "label")
    before = (tmp_path / "out" / "conversations.jsonl").stat().st_mtime_ns
    assert "done already" in build(tmp_path / "out", "--documents", folder, "--mask", "label")[-1]
    assert (tmp_path / "out" / "conversations.jsonl").stat().st_mtime_ns == before
    with pytest.raises(StageError, match="other settings"):
        build(tmp_path / "out", "--documents", folder, "--mask", "none")


def test_killed_run_is_not_taken_for_whole_and_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends in the middle leaves no corpus; the same command then makes it."""
    folder = folder_of(tmp_path, 5)

    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpus_stage, "choose", stopped)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "out", "--documents", folder)
    assert not (tmp_path / "out" / "conversations.jsonl").exists()
    with pytest.raises(StageError, match="begun and is not finished"):
        read_manifest(tmp_path / "out", "corpus")
    build(tmp_path / "out", "--documents", folder)
    assert read_manifest(tmp_path / "out", "corpus").counts["taken"] == 5
