"""Language labels against texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from harness.analysis.language import IDENTIFIER, IN_PATH, NO_PATH, agrees, detect
from harness.tasks import Language, Step, read_tasks

DATA = sorted((Path(__file__).parents[2] / "workloads" / "data").glob("*.jsonl"))
KOREAN = "3월 16일(월) 14시 27분에 청람가구 구매팀으로 발송했습니다. 회신 기한은 내일 낮 12시입니다."
ENGLISH = "The goods have been in Basel since 10 June. Customs holds them because a statement is missing."


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (KOREAN, "ko"),
        (ENGLISH, "en"),
        ("`OrderService.retry()`를 읽어 timeout 값과 RetryPolicy 생성 위치를 확인합니다.", "ko+code"),
        (
            "The key of `cache_key` lacks the tenant, so user 31 of Birch reads the entry of user 31 of Alder.",
            "en+code",
        ),
        ("def close(conn):\n    conn.commit()\n    return conn.close()\n", "code"),
        ("```python\nfor row in rows:\n    total = total + row\n", "code"),
        ('<tool_call>run_tests {"target": "labels", "verbose": true}</tool_call>', "code"),
        ('<tool_call>search_documents {"query": "하남 허브 오분류 원인별"}</tool_call>', "ko+code"),
        ("12:30 - 14:00", None),
        ("", None),
    ],
)
def test_detect(text: str, label: Language | None) -> None:
    """Hangul makes Korean, identifiers and fences make code, digits alone make nothing."""
    assert detect(text) == label


@pytest.mark.parametrize(
    ("label", "text"),
    [("ko", ENGLISH), ("ko+code", ENGLISH), ("en", KOREAN), ("code", ENGLISH), ("ko", ""), ("en", "7")],
)
def test_another_language_does_not_pass(label: str, text: str) -> None:
    """English for Korean, Korean for English, prose for code and no letters at all are mismatches."""
    assert not agrees(label, text)


@pytest.mark.parametrize("label", ["ko", "ko+code"])
def test_a_name_or_two_keeps_korean_korean(label: str) -> None:
    """A Korean text with one identifier in it may carry either label."""
    assert agrees(label, KOREAN + " 담당자는 order_id 값을 확인해 주세요.")


def written(step: Step) -> str:
    """Return a recorded answer as a replay stores one: text, then each tool call on its own line."""
    calls = [f"<tool_call>{call.name} {call.arguments}</tool_call>" for call in step.recorded.tool_calls]
    return "\n".join(part for part in (step.recorded.content, *calls) if part)


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_committed_workloads_are_labelled_right(path: Path) -> None:
    """At least 95 of 100 recorded answers of each committed task file fit their label, and 90 are detected as just that.

    The rest is judgement: whether a Korean letter with one product code in it is ko or ko+code.
    """
    steps = [step for task in read_tasks(path) for step in task.steps]
    fitting = sum(agrees(step.language, written(step)) for step in steps)
    exact = sum(detect(written(step)) == step.language for step in steps)
    assert fitting >= 0.95 * len(steps)
    assert exact >= 0.90 * len(steps)


def test_there_are_committed_workloads() -> None:
    """The check above has something to check."""
    assert DATA


@settings(max_examples=2000, deadline=None)
@given(st.text("aAbB1_.()/=-\"' \n가é", max_size=24))
@example("get_user(a.b, camelCase=1) CamelCase A가_b a-b.c")
@example("a/b x/y=1 (/tmp/ /a")
def test_without_a_path_the_fast_pattern_finds_the_same_identifiers(text: str) -> None:
    """Letter by letter: where each begins and ends."""
    assume(IN_PATH.search(text) is None)
    found = [[match.span() for match in pattern.finditer(text)] for pattern in (IDENTIFIER, NO_PATH)]
    assert found[0] == found[1]
