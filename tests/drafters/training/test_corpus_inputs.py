"""What the corpus stage is told to read: wrong, unreadable, twice, too secret."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from drafters.training import corpus_stage
from drafters.training.stage import StageError
from tests.drafters.training.corpora import PERSONAL, build, document, folder_of, load, written


def test_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk in the middle is one message, and nothing is taken for whole."""

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus_stage, "_write", full)
    with pytest.raises(StageError, match="No space left on device; free some space"):
        build(tmp_path / "out", "--documents", folder_of(tmp_path, 5))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_unreadable_input_is_not_taken_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that cannot be read is named as such, at whatever pass."""
    folder = folder_of(tmp_path, 5)

    def refused(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(folder / "03.txt"))

    for number, name in enumerate(("begin", "learn", "collect")):
        with monkeypatch.context() as patch:
            patch.setattr(corpus_stage, name, refused)
            with pytest.raises(StageError, match=r"03\.txt cannot be read: Permission denied"):
                build(tmp_path / f"out{number}", "--documents", folder)


def test_limit_and_left_out_are_reported(tmp_path: Path) -> None:
    """A trial takes so many documents; files that are not taken are named with their reason."""
    folder = folder_of(tmp_path, 9)
    (folder / "cp949.txt").write_bytes(document(1).encode("cp949"))
    said = build(tmp_path / "out", "--documents", folder, "--limit", "4")
    report = load(tmp_path / "out" / "report.json")
    assert report["taken"] == 4
    assert report["left_out"] == [
        {
            "file": "cp949.txt",
            "reason": "CP949 (EUC-KR) text, not UTF-8; convert it: iconv -f CP949 -t UTF-8 FILE > NEW_FILE",
        }
    ]
    assert any("cp949.txt" in line for line in said)


def test_wrong_corpora(tmp_path: Path) -> None:
    """One document, none that can be read, an empty folder, nothing given, copies of one text: each is told what to do."""
    empty, single, unread, copies = (tmp_path / name for name in ("empty", "single", "unread", "copies"))
    for folder in (empty, single, unread, copies):
        folder.mkdir()
    (single / "a.txt").write_text(document(1), "utf-8")
    (unread / "a.txt").write_bytes(document(1).encode("cp949"))
    (unread / "b.bin").write_bytes(bytes(100))
    for number in range(3):
        (copies / f"{number}.txt").write_text(document(1), "utf-8")
    for name, arguments, said in (
        ("1", ("--documents", single), "cannot be split"),
        ("2", ("--documents", unread), r"all 2 were left out \(a.txt: CP949"),
        ("3", ("--documents", empty), "hold no files"),
        ("4", (), "nothing given to read"),
        ("5", ("--documents", copies), "none is left for training"),
        ("6", ("--documents", single, "--held-out", "1"), "--held-out 1.0; allowed"),
    ):
        with pytest.raises(StageError, match=said):
            build(tmp_path / name, *arguments)
    build(tmp_path / "whole", "--documents", single, "--held-out", "0")
    assert {one.split for one in written(tmp_path / "whole")} == {"train"}


def test_key_file(tmp_path: Path) -> None:
    """A key is made for its owner alone, refused inside the output and what is read, and refused when it is too short to protect."""
    folder = folder_of(tmp_path, 5)
    said = build(tmp_path / "out", "--documents", folder, "--key-file", tmp_path / "key")
    assert any("made the key" in line for line in said)
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    with pytest.raises(StageError, match="lies in the output folder"):
        build(tmp_path / "other", "--documents", folder, "--key-file", tmp_path / "other" / "key")
    (tmp_path / "short").write_text("secret")
    with pytest.raises(StageError, match="holds 6 bytes; a key needs at least 16"):
        build(tmp_path / "other", "--documents", folder, "--key-file", tmp_path / "short")


def test_an_error_holds_no_personal_value(tmp_path: Path) -> None:
    """A broken line is named by file and line; its content is not quoted."""
    log = tmp_path / "log.jsonl"
    log.write_text('{"messages": [{"role": "홍길동", "content": "010-1234-5678"}]}\n', "utf-8")
    with pytest.raises(StageError, match=r"log\.jsonl:1") as told:
        build(tmp_path / "out", "--conversations", log)
    assert not [value for value in PERSONAL if value in str(told.value)]
    assert not [path for path in (tmp_path / "out").iterdir() if "홍길동" in path.read_text("utf-8")]


def test_key_in_what_is_read_is_refused(tmp_path: Path) -> None:
    """Neither a key file within an input nor a text that holds the key goes on; no key is made there."""
    folder = folder_of(tmp_path, 5)
    with pytest.raises(StageError, match="which is read; keep the key apart"):
        build(tmp_path / "out", "--documents", folder, "--key-file", folder / "key.txt")
    assert not (folder / "key.txt").exists()
    build(tmp_path / "out", "--documents", folder, "--key-file", tmp_path / "key")
    (folder / "notes.txt").write_text(f"{document(9)}\nkey: {(tmp_path / 'key').read_text()}", "utf-8")
    with pytest.raises(StageError, match=r"notes\.txt: the secret key of --key-file stands in it"):
        build(tmp_path / "other", "--documents", folder, "--key-file", tmp_path / "key")


def test_output_within_an_input_is_refused(tmp_path: Path) -> None:
    """What the stage writes would be read the next time; nothing is made before the refusal, the key neither."""
    folder = folder_of(tmp_path, 5)
    with pytest.raises(StageError, match="which is read; give a folder outside it"):
        build(folder / "sub" / "out", "--documents", folder, "--key-file", tmp_path / "key")
    assert not (folder / "sub").exists()
    assert not (tmp_path / "key").exists()


def test_input_given_twice_is_refused(tmp_path: Path) -> None:
    """The same folder, or one within another, under two tags: which of them is meant cannot be told."""
    folder = folder_of(tmp_path, 5)
    (folder / "sub").mkdir()
    for other, said in ((f"{folder}=en/docs", "is given twice"), (f"{folder / 'sub'}=en/docs", "which is given too")):
        with pytest.raises(StageError, match=said):
            build(tmp_path / "out", "--documents", f"{folder}=ko/office", other)
    build(tmp_path / "out", "--documents", folder, "--conversations", conversation(folder / "log.jsonl"))


def test_file_name_in_another_encoding(tmp_path: Path) -> None:
    """A name in CP949, as an archive from Windows leaves it, stops nothing; report and corpus stay UTF-8."""
    folder = folder_of(tmp_path, 5)
    for name in ("회의록".encode("cp949") + b".txt", b"\xff\xfe.txt", "사진".encode("cp949") + b".jpg"):
        (Path(os.fsdecode(os.fsencode(folder) + b"/" + name))).write_text(document(len(name)), "utf-8")
    said = build(tmp_path / "out", "--documents", folder)
    assert "회의록.txt" in {one.source for one in written(tmp_path / "out")}
    assert any(line.startswith("left out 사진.jpg") for line in said)


@pytest.mark.parametrize("place", ["tools", "arguments"])
def test_labelled_number_leaves_json_whole(tmp_path: Path, place: str) -> None:
    """A bare number of a schema or of arguments that is an account becomes a label in quotes."""
    call = {"function": {"name": "f", "arguments": {"v": [110234567890 if place == "arguments" else 1]}}}
    line = {
        "messages": [
            {"role": "user", "content": "조회해 주세요. 계좌번호: 110234567890 입니다"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ],
        "tools": [{"function": {"name": "f", "parameters": {"v": [110234567890 if place == "tools" else 1]}}}],
    }
    (tmp_path / "log.jsonl").write_text(json.dumps(line), "utf-8")
    build(tmp_path / "out", "--conversations", tmp_path / "log.jsonl", "--mask", "label", "--held-out", "0")
    (made,) = written(tmp_path / "out")
    arguments = json.loads(made.messages[1]["tool_calls"][0]["function"]["arguments"])
    shown = arguments if place == "arguments" else made.tools[0]["function"]["parameters"]
    assert shown == {"v": ["[계좌번호]"]}


def test_name_of_a_tool_is_masked_as_in_its_schema(tmp_path: Path) -> None:
    """A person's name within a tool's name: call and schema still agree."""
    name = "lookup_추미애"
    line = {
        "messages": [
            {"role": "user", "content": "담당자 추미애 과장의 일정을 찾아 주세요."},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": name, "arguments": "{}"}}]},
        ],
        "tools": [{"function": {"name": name, "parameters": {}}}],
    }
    (tmp_path / "log.jsonl").write_text(json.dumps(line), "utf-8")
    build(tmp_path / "out", "--conversations", tmp_path / "log.jsonl", "--held-out", "0")
    (made,) = written(tmp_path / "out")
    called = made.messages[1]["tool_calls"][0]["function"]["name"]
    assert called == made.tools[0]["function"]["name"] != name


def test_limits_of_masking_are_told(tmp_path: Path) -> None:
    """The report says what is not looked for; without masking the owner is warned and hears nothing of names."""
    folder = folder_of(tmp_path, 5)
    masked = build(tmp_path / "masked", "--documents", folder)
    plain = build(tmp_path / "plain", "--documents", folder, "--mask", "none")
    assert "running text" in load(tmp_path / "masked" / "report.json")["limits"]
    assert any("may have stayed" in line for line in masked)
    assert not any("--mask none" in line for line in masked)
    assert plain[0].startswith("--mask none: names, numbers and addresses will stand in")
    assert "nothing is masked" in load(tmp_path / "plain" / "report.json")["limits"]


def conversation(path: Path) -> Path:
    """A file with one conversation."""
    turns = [{"role": "user", "content": "안녕하세요 여러분"}, {"role": "assistant", "content": "네, 안녕하세요."}]
    path.write_text(json.dumps({"messages": turns}) + "\n", "utf-8")
    return path
