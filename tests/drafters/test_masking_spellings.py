"""One value in its many spellings."""

from __future__ import annotations

import json

import pytest

from drafters.masking import Masker, Mode, tape_scanner
from drafters.masking_spellings import iban_spans, plain_mail, respelled

KEY = b"a key of the tests"
KNOWN = (
    "담당자: 김민수 과장 (010-4827-3391), 메일 minsu.kim@hanbit-soft.co.kr, +33 6 12 34 56 78, 생년월일 1990년 3월 15일"
)


def masked(*texts: str, mode: Mode = "label") -> list[str]:
    """The texts masked together."""
    masker = Masker(mode, KEY, tape_scanner())
    for text in texts:
        masker.learn(text, "a")
    masker.settle()
    return [masker.mask(text, "a") for text in texts]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("minsu.kim%40hanbit-soft.co.kr", "[이메일]"), ("minsu.kim[at]hanbit-soft[dot]co[dot]kr", "[이메일]"),
        ("minsu.kim (at) hanbit-soft.co.kr", "[이메일]"), ("MINSU.KIM＠HANBIT-SOFT.CO.KR", "[이메일]"),
        ("010_4827_3391", "[전화번호]"), ("010/4827/3391", "[전화번호]"), ("010~4827~3391", "[전화번호]"),
        ("0 1 0 4 8 2 7 3 3 9 1", "[전화번호]"), ("010‑4827‑3391", "[전화번호]"), ("010—4827—3391", "[전화번호]"),
        ("06 12 34 56 78", "[전화번호]"), ("1990-03-15", "[생년월일]"), ("1990. 3. 15", "[생년월일]"),
        ("김 민 수", "[이름]"), ("김 민수", "[이름]"), ("%EA%B9%80%EB%AF%BC%EC%88%98", "[이름]"),
        ("&#44608;&#48124;&#49688;", "[이름]"), ("김\u200b민수", "[이름]"), ("lookup_김민수", "lookup_[이름]"),
    ],
)  # fmt: skip
def test_known_values_in_other_spellings(text: str, label: str) -> None:
    """Encoded, spelled out, spaced or with other marks: the value is the one that was found elsewhere."""
    assert masked(KNOWN, f"확인: {text}")[1] == f"확인: {label}"


def test_name_with_emphasis_within() -> None:
    """Marks of emphasis between surname and given name hide nothing."""
    assert "민수" not in masked(KNOWN, "**김**민수 과장, 김*민수*의 의견")[1]


def test_words_that_only_together_make_a_name_stay() -> None:
    """Where the surname is a word too, a blank before the rest is none within a name."""
    assert (
        masked("담당자: 이정의 과장", "이 정의가 맞다. 그 밖에 한 정 의 결")[1] == "이 정의가 맞다. 그 밖에 한 정 의 결"
    )
    assert masked("담당자: 이정의 과장", "이 정의 과장이 왔다")[1] == "[이름] 과장이 왔다"


def test_surrogate_keeps_the_spelling() -> None:
    """Marks of an address, blanks of a name and of digits stay where they were."""
    mail = masked(KNOWN, "minsu.kim[at]hanbit-soft[dot]co[dot]kr", mode="surrogate")[1]
    assert "[at]" in mail and mail.endswith("[dot]co[dot]kr") and "minsu" not in mail
    name = masked(KNOWN, "김 민 수", mode="surrogate")[1]
    assert [len(part) for part in name.split(" ")] == [1, 1, 1] and name != "김 민 수"
    number = masked(KNOWN, "0 1 0 4 8 2 7 3 3 9 1", mode="surrogate")[1]
    assert [len(part) for part in number.split(" ")] == [1] * 11


def test_row_of_days_of_birth() -> None:
    """All dates that stand in a row after the word, in any form, and no date behind other words."""
    (result,) = masked("생년월일 1990년 3월 15일, 90.03.15생, 1990-03-16 입사일 2020-01-02")
    assert result == "생년월일 [생년월일], [생년월일]생, [생년월일] 입사일 2020-01-02"


def test_iban_is_told_by_its_check_digits() -> None:
    """An account number is masked without a key beside it; with other check digits it is no account."""
    assert masked("송금은 IBAN DE89370400440532013000 으로")[0] == "송금은 IBAN [계좌번호] 으로"
    assert list(iban_spans("DE88370400440532013000")) == []


@pytest.mark.parametrize("mode", ["surrogate", "label"])
def test_known_number_in_json_stays_json(mode: Mode) -> None:
    """A number that only another text gave away, bare in a list and in a schema."""
    texts = masked("계좌번호: 110234567890 입니다", '{"v": [110234567890, 7], "s": "110234567890"}', mode=mode)
    value = json.loads(texts[1])
    assert "110234567890" not in texts[1]
    assert value["v"][1] == 7
    assert isinstance(value["v"][0], int if mode == "surrogate" else str)


def test_plain_mail_and_back() -> None:
    """The spelling goes and comes again."""
    assert plain_mail("a.b (at) c[dot]kr") == "a.b@c.kr"
    assert respelled("a.b (at) c[dot]kr", "x.y@z.kr") == "x.y (at) z[dot]kr"
    assert respelled("a%40c.kr", "x@z.kr") == "x%40z.kr"
