"""The corpus stage as a whole: what it writes, what it never writes, and what a wrong corpus is told."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from drafters.training import corpus_stage
from drafters.training.conversations import Conversation, read_conversations
from drafters.training.stage import StageError, read_manifest

WORKLOADS = Path(__file__).parents[3] / "workloads" / "data"
SUBJECTS = ("예산", "채용", "물류", "보안", "설비", "교육", "계약", "품질")
PERSONAL = (
    "김철수", "박서연", "홍길동", "오세라", "한지민", "John Smith", "010-1234-5678", "01098765432", "02-345-6789", "+82-10-5555-7777",
    "cs.kim@hanbit.example.com", "서울특별시 강남구 테헤란로 123", "부산광역시 중구 중앙로 10", "123456-01-123456", "4111-1111-1111-1111",
    "800101-1234560", "123-45-67891", "110111-1234567", "M12345678", "1980년 1월 1일", "11-12-123456-78",
)  # fmt: skip
"""Invented values, at least one of each kind."""


def document(number: int) -> str:
    """A document that resembles no other one."""
    subject = SUBJECTS[number % len(SUBJECTS)]
    lines = [
        f"{subject} {chr(ord('가') + 97 * number + 31 * line)}{line * number}번 항목의 검토 의견은 {line * 7 + number}쪽에 있음."
        for line in range(9)
    ]
    return f"{subject} 업무 보고 {number}\n\n" + "\n".join(lines) + "\n\n위 내용을 검토하여 주시기 바랍니다."


def folder_of(root: Path, count: int) -> Path:
    """A folder with so many documents."""
    folder = root / "documents"
    folder.mkdir(exist_ok=True)
    for number in range(count):
        (folder / f"{number:02}.txt").write_text(document(number), "utf-8")
    return folder


def build(out: Path, *arguments: str | Path) -> list[str]:
    """Run the stage; returns what it said."""
    parser = argparse.ArgumentParser()
    corpus_stage.add_arguments(parser)
    said: list[str] = []
    assert corpus_stage.run(parser.parse_args([*map(str, arguments), "--out", str(out)]), said.append) == 0
    return said


def written(out: Path) -> list[Conversation]:
    """The corpus that was written."""
    return list(read_conversations(out / "conversations.jsonl"))


def load(path: Path) -> Any:
    """A report."""
    return json.loads(path.read_text("utf-8"))


def personal_corpus(root: Path) -> tuple[Path, Path]:
    """Every kind of value in documents, file names, messages, arguments, results, and again where nothing gives it away."""
    folder = folder_of(root, 6)
    (folder / "이력서_홍길동.txt").write_text(
        "성명: 홍길동\n주민등록번호: 800101-1234560\n생년월일 1980년 1월 1일\n여권 M12345678\n운전면허 11-12-123456-78\n"
        "주소: 서울특별시 강남구 테헤란로 123\n계좌: 국민은행 123456-01-123456\n카드 4111-1111-1111-1111\n연락처: 010-1234-5678",
        "utf-8",
    )
    (folder / "명단.csv").write_text(
        "성명,연락처,주소\n오세라,02-345-6789,부산광역시 중구 중앙로 10\n한지민,01098765432,부산광역시 중구 중앙로 10\n",
        "utf-8",
    )
    (folder / "메모.md").write_text(
        "어제 홍길동이 전화했다. 김철수는 받지 않았고 오세라에게 01012345678 번호를 남겼다. 상대 계좌 12345601123456 확인함.",
        "utf-8",
    )
    (folder / "홍길동_scan.hwp").write_bytes(b"\xd0\xcf\x11\xe0")
    arguments = {
        "customer": {"name": "홍길동", "phone": "+82-10-5555-7777"},
        "사업자등록번호": "123-45-67891",
        "name": "John Smith",
        "email": "a@b.example",
    }
    log = root / "log.jsonl"
    turns: list[dict[str, Any]] = [
        {"role": "system", "content": "담당자는 박서연 과장입니다. 회신은 cs.kim@hanbit.example.com 으로 합니다."},
        {"role": "user", "content": "담당자 김철수 과장의 등록을 확인해 주세요. 법인등록번호: 110111-1234567"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": json.dumps(arguments)}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"성명": "박서연", "계좌": "123456-01-123456"})},
        {"role": "assistant", "content": "김철수와 박서연, John Smith 모두 등록되어 있습니다."},
    ]
    lines = [
        {"messages": turns[:2]},
        {"messages": turns},
        {"text": "공지 사항입니다. 다음 주 월요일은 창립 기념일로 쉽니다. 업무에 참고하세요."},
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return folder, log


@pytest.mark.parametrize("mode", ["surrogate", "label"])
def test_no_personal_value_is_written(tmp_path: Path, mode: str) -> None:
    """No file of the stage holds any of the values, in any spelling of digits, and neither does what it says."""
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


def test_an_error_holds_no_personal_value(tmp_path: Path) -> None:
    """A broken line is named by file and line; its content is not quoted."""
    log = tmp_path / "log.jsonl"
    log.write_text('{"messages": [{"role": "홍길동", "content": "010-1234-5678"}]}\n', "utf-8")
    with pytest.raises(StageError, match=r"log\.jsonl:1") as told:
        build(tmp_path / "out", "--conversations", log)
    assert not [value for value in PERSONAL if value in str(told.value)]
    assert not [path for path in (tmp_path / "out").iterdir() if "홍길동" in path.read_text("utf-8")]


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


def test_beginnings_of_a_longer_conversation_are_dropped(tmp_path: Path) -> None:
    """Of a conversation logged after every turn only the longest state stays."""
    log = tmp_path / "log.jsonl"
    turns = [
        {"role": role, "content": f"{number}번째 말입니다."} for number, role in enumerate(("user", "assistant") * 3)
    ]
    other = [
        {"role": "user", "content": "전혀 다른 이야기를 하나 해 주세요."},
        {"role": "assistant", "content": "옛날 어느 마을의 이야기입니다."},
    ]
    lines = [{"messages": turns[:length]} for length in (1, 2, 4, 6)] + [{"messages": other}]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    build(tmp_path / "out", "--conversations", log)
    assert sorted(len(one.messages) for one in written(tmp_path / "out")) == [2, 6]
    assert load(tmp_path / "out" / "report.json")["duplicates"]["beginnings of a longer conversation"] == 3


def test_copies_of_held_out_texts_leave_training(tmp_path: Path) -> None:
    """Every document is there twice with a few words changed: no training text nearly repeats a held-out one."""
    folder = folder_of(tmp_path, 20)
    for number in range(20):
        (folder / f"copy-{number:02}.txt").write_text(
            document(number).replace("검토하여 주시기", "확인하여 주시기"), "utf-8"
        )
    build(tmp_path / "out", "--documents", folder, "--held-out", "0.3")
    report = load(tmp_path / "out" / "report.json")
    assert sum(report["duplicates"].values()) == 20
    assert report["duplicates"]["near-duplicates of heldout, removed from train"] > 0
    sources = {one.source.removeprefix("copy-") for one in written(tmp_path / "out")}
    assert len(sources) == len({one.source for one in written(tmp_path / "out")}) == 20


def test_held_out_page_of_a_longer_document_leaves_training(tmp_path: Path) -> None:
    """Pages stand alone and again in one long document: of those held out, the pieces of the long one are left out."""
    folder = folder_of(tmp_path, 12)
    (folder / "pages.txt").write_text("\n\n".join(document(number) for number in range(12)), "utf-8")
    build(tmp_path / "out", "--documents", folder, "--held-out", "0.3", "--max-characters", "400", "--mask", "none")
    made = written(tmp_path / "out")
    held = "\n".join(one.text or one.messages[0]["content"] for one in made if one.split == "heldout")
    trained = "\n".join(one.text or one.messages[0]["content"] for one in made if one.split == "train")
    pages = [document(number).splitlines()[2:11] for number in range(12)]
    of_held = [page for page in pages if sum(line in held for line in page) >= 5]
    assert 2 <= len(of_held) <= 8
    assert not [page for page in of_held if sum(line in trained for line in page) > 2]  # no more than an edge
    report = load(tmp_path / "out" / "report.json")
    assert report["pieces of heldout, removed from documents of train"] > 0


def test_one_conversation_under_two_sessions_is_kept_once(tmp_path: Path) -> None:
    """The beginning of a conversation that was logged under another name is no text of its own."""
    turns = [
        {"role": role, "content": f"{number}번째 말입니다."} for number, role in enumerate(("user", "assistant") * 3)
    ]
    lines = [{"messages": turns[: 2 * length], "session_id": length} for length in (1, 2, 3)]
    for number, line in enumerate(lines):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(line), "utf-8")
    build(tmp_path / "out", "--conversations", tmp_path, "--held-out", "0")
    assert [len(one.messages) for one in written(tmp_path / "out")] == [6]


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
    """A key is made for its owner alone, refused inside the output, and refused when it is too short to protect."""
    folder = folder_of(tmp_path, 5)
    said = build(tmp_path / "out", "--documents", folder, "--key-file", tmp_path / "key")
    assert any("made the key" in line for line in said)
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    with pytest.raises(StageError, match="lies in the output folder"):
        build(tmp_path / "other", "--documents", folder, "--key-file", tmp_path / "other" / "key")
    (tmp_path / "short").write_text("secret")
    with pytest.raises(StageError, match="holds 6 bytes; a key needs at least 16"):
        build(tmp_path / "other", "--documents", folder, "--key-file", tmp_path / "short")
