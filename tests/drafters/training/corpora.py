"""Small corpora for the tests of the corpus stage."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from drafters.training import corpus_stage
from drafters.training.conversations import Conversation, read_conversations

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
