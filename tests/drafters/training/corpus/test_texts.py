"""Tags, requests, near-duplicates and the split."""

from __future__ import annotations

from collections import Counter

import pytest

from drafters.training.corpus.duplicates import THRESHOLD, Duplicates, HeldOut, signature, similarity, sketch
from drafters.training.corpus.languages import genre_of, language_of, text_type_of
from drafters.training.corpus.pieces import beginning, cut, request_for, requests
from drafters.training.corpus.splitting import split
from drafters.training.stage import StageError

MAIL = (
    "안녕하십니까, 물류팀입니다.\n3월 출고 일정이 변경되어 아래와 같이 공유드립니다.\n- 1차: 3월 4일(수)\n- 2차: 3월 11일(수)\n"
    "현장 인력 배치는 각 센터에서 조정해 주시고, 변경이 필요한 경우 금요일까지 회신 부탁드립니다.\n감사합니다. 물류팀 드림"
)
ESSAY = (
    "비가 그친 골목에는 젖은 흙냄새가 남아 있었다. 나는 오래된 우산을 접으며 문 앞에 섰다. 어머니는 부엌에서 국을 데우고 있었다.\n\n"
    "창밖으로 저녁이 천천히 내려앉는다. 아무 말도 하지 않았지만 그 침묵이 싫지 않았다. 그날의 온기를 아직 기억한다."
)
CODE = """import os


def total(values: list[int]) -> int:
    result = 0
    for value in values:
        result += value
    return result
"""
KO_CODE = f"합계를 구하는 함수입니다. 빈 목록이면 0을 돌려줍니다.\n\n```python\n{CODE}```\n\n호출하는 쪽에서 형식을 확인해 주세요."
ENGLISH = "The committee met on Tuesday and agreed to move the release. Nobody objected. The next meeting is in June, in the usual room."


@pytest.mark.parametrize(
    ("text", "language", "text_type"),
    [
        (MAIL, "ko", "office"),
        (ESSAY, "ko", "essay"),
        (CODE, "code", "code"),
        (KO_CODE, "ko+code", "docs"),
        (ENGLISH, "en", "docs"),
        (f"Run this first.\nIt sums the values given.\n\n```python\n{CODE}```\n", "en+code", "docs"),
        ('{"dept": "sales", "rows": [{"id": 1, "value": 20}]}', "code", "code"),
        ("Это письмо написано по-русски и не имеет английских слов.", None, None),
        ("これは日本語で書かれた文章です。韓国語ではありません。", None, None),
    ],
)
def test_tags(text: str, language: str | None, text_type: str | None) -> None:
    """The five languages are told apart, other languages are none, and the type follows from marks and endings."""
    assert language_of(text) == language
    if language and text_type:
        assert text_type_of(text, language) == text_type


def test_genres() -> None:
    """A mail asks for a reply; a table is known by its separators."""
    assert genre_of(MAIL, "ko") == "mail"
    assert genre_of("월,생산,불량\n1,100,3\n2,120,2\n", "ko") == "table"


def test_pieces_are_whole_paragraphs() -> None:
    """Cut at paragraphs where they fit, nothing lost, no piece above the limit."""
    paragraphs = [f"{number}번째 문단입니다. " + "내용이 이어집니다. " * 12 for number in range(9)]
    pieces = list(cut("\n\n".join(paragraphs), 400))
    assert all(len(piece) <= 400 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join("".join(paragraphs).split())
    assert all(piece[0].isdigit() for piece in pieces)


def test_text_without_a_place_to_cut_is_cut_all_the_same() -> None:
    """A thousand letters without a space become pieces of the limit."""
    assert [len(piece) for piece in cut("가" * 1000, 300)] == [300, 300, 300, 100]


def test_beginning_ends_with_a_sentence() -> None:
    """A beginning is a part of the text that stops where a sentence does; a short text has none."""
    start = beginning(ESSAY, "one")
    assert start is not None
    assert ESSAY.startswith(start)
    assert start.endswith((".", "다"))
    assert beginning("짧은 글이다. 끝.", "one") is None


def test_request_depends_on_document_and_seed_alone() -> None:
    """The same document gets the same request again; many documents get many requests, all with the document in them."""
    made = [request_for(MAIL, "ko", "office", f"1 {number}") for number in range(40)]
    assert made == [request_for(MAIL, "ko", "office", f"1 {number}") for number in range(40)]
    assert len(set(made)) > 6
    assert all("물류팀입니다" in one for one in made)


def test_every_request_holds_the_document_once() -> None:
    """Each template names the document or its beginning exactly once."""
    templates = [one for lists in requests().values() for group in lists.values() for one in group]
    assert Counter(one.count("{text}") + one.count("{head}") for one in templates) == {1: len(templates)}


def test_a_few_changed_words_are_a_near_duplicate() -> None:
    """Three words of a mail changed: caught."""
    changed = MAIL.replace("4일(수)", "5일(목)").replace("물류팀 드림", "물류팀 올림").replace("각 센터", "각 지점")
    seen = Duplicates()
    seen.add(signature(MAIL))
    assert seen.find(signature(changed)) == 0


def form(subject: str, reason: str, plan: str) -> str:
    """A form as offices fill them in."""
    return (
        f"결 재 요 청 서\n\n수신: 본부장\n제목: {subject}\n\n1. 추진 배경\n{reason}\n\n2. 추진 계획\n{plan}\n\n"
        "위와 같이 추진하고자 하오니 재가하여 주시기 바랍니다.\n\n붙임  세부 내역 1부.  끝."
    )


def test_forms_with_one_frame_and_other_contents_are_none() -> None:
    """Two requests on one form about different matters: both stay."""
    one = form(
        "회의실 영상 장비 교체",
        "화상회의 중 음성이 끊기는 사례가 지난달 14건 접수되었고 제조사의 수리 지원이 종료되었음.",
        "대회의실과 소회의실 3곳의 카메라와 마이크를 6월 말까지 교체하고 기존 장비는 교육장으로 옮겨 사용함.",
    )
    other = form(
        "신입사원 안전 교육 위탁",
        "상반기 입사자 32명이 법정 교육 시간을 채우지 못하여 외부 기관을 통한 집합 교육이 필요함.",
        "두 차례로 나누어 연수원에서 실시하고 수료증을 인사 시스템에 등록하며 비용은 교육 예산에서 집행함.",
    )
    assert similarity(signature(one), signature(other)) < THRESHOLD - 0.2
    seen = Duplicates()
    seen.add(signature(one))
    assert seen.find(signature(other)) is None


def test_page_within_a_longer_text_is_found() -> None:
    """A held-out page that straddles two pieces of a longer text takes both; a held-out text takes a page out of it."""
    pages = [" ".join(f"{place}.{number * place % 997}항" for number in range(200, 300)) for place in range(1, 8)]
    half = len(pages[1]) // 2
    longer = [pages[0] + pages[1][:half], pages[1][half:] + pages[2], pages[3]]
    assert similarity(signature("".join(longer)), signature(pages[1])) < THRESHOLD
    assert HeldOut([sketch(pages[1])]).repeated([sketch(piece) for piece in longer]) == {0, 1}
    assert HeldOut([sketch("".join(longer))]).repeated([sketch(pages[3]), sketch(pages[4])]) == {0}
    assert HeldOut([]).repeated([sketch(pages[0])]) == frozenset()


def test_phrases_of_the_house_repeat_nothing() -> None:
    """What stands in hundreds of held-out texts is a letterhead; a text with it and words of its own is none of them."""
    head = " ".join(f"문구{number * 37 % 991}" for number in range(80))
    held = HeldOut([sketch(head + f" 본문 {number * number}번 " * 3) for number in range(100)])
    assert held.repeated([sketch(head + " 전혀 다른 내용이며 앞의 것과 상관없이 새로 쓴 긴 글이다")]) == frozenset()


def test_similarity_of_known_texts() -> None:
    """Equal texts are 1 whatever their spaces and case, texts without a common run 0, shorter than a run still equal itself."""
    assert similarity(signature("A  b\nC d e f g"), signature("a b c d e f g")) == 1
    assert similarity(signature("가나다라마바사"), signature("abcdefghij")) == 0
    assert similarity(signature("가"), signature("가")) == 1


def test_split_keeps_to_the_share_and_is_stable() -> None:
    """About a tenth is held out, and files that come later do not move those that were there."""
    units = {f"file {number}": "ko/office" for number in range(400)}
    held = split(units, 0.1, 1)
    assert 25 <= len(held) <= 55
    grown = split({**units, **{f"new {number}": "ko/office" for number in range(200)}}, 0.1, 1)
    assert {unit for unit in grown if unit in units} == held
    assert split(units, 0.1, 2) != held


def test_every_larger_group_has_both_sides() -> None:
    """Five essays beside a thousand reports: at least one of them is held out, and not all."""
    units = {f"r{number}": "ko/office" for number in range(1000)} | {f"e{number}": "ko/essay" for number in range(5)}
    for seed in range(10):
        assert 1 <= sum(unit.startswith("e") for unit in split(units, 0.05, seed)) <= 4


def test_two_files_are_one_and_one() -> None:
    """The smallest corpus that can be split is split in halves."""
    assert len(split({"a": "ko/office", "b": "en/docs"}, 0.1, 1)) == 1


def test_one_file_cannot_be_split() -> None:
    """One document is told what to do, and goes with --held-out 0."""
    with pytest.raises(StageError, match="cannot be split"):
        split({"a": "ko/office"}, 0.1, 1)
    assert split({"a": "ko/office"}, 0.0, 1) == frozenset()
