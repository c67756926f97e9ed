"""Train and held-out do not repeat each other, and no conversation stands twice."""

from __future__ import annotations

import json
from pathlib import Path

from tests.drafters.training.corpora import build, document, folder_of, load, written


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
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / f"{number}.jsonl").write_text(json.dumps(line), "utf-8")
    build(tmp_path / "out", "--conversations", tmp_path / "logs", "--held-out", "0")
    assert [len(one.messages) for one in written(tmp_path / "out")] == [6]
