"""Invented values: same kind and shape, one for each value, and belonging to nobody."""

from __future__ import annotations

import re

import pytest

from drafters.surrogates import canonical, final_class, invent, pour

KEY = b"a key of the tests"


def made(kind: str, value: str, key: bytes = KEY) -> str:
    """The surrogate in the value's form."""
    return pour(kind, value, invent(key, kind, canonical(kind, value)))


@pytest.mark.parametrize(
    ("kind", "value", "shape"),
    [
        ("phone", "010-1234-5678", r"010-\d{4}-\d{4}"),
        ("phone", "(02) 345-6789", r"\(02\) \d{3}-\d{4}"),
        ("phone", "+82-10-1234-5678", r"\+82-10-\d{4}-\d{4}"),
        ("account", "123456-01-123456", r"[1-9]\d{5}-\d{2}-\d{6}"),
        ("card", "4111-1111-1111-1111", r"4\d{3}-\d{4}-\d{4}-\d{4}"),
        ("rrn", "800101-1234560", r"\d{6}-1\d{6}"),
        ("biz_reg", "123-45-67891", r"\d{3}-\d{2}-\d{5}"),
        ("passport", "M12345678", r"[A-Z]\d{8}"),
        ("driver_license", "11-12-123456-78", r"11-\d{2}-\d{6}-\d{2}"),
        ("birth_date", "1980년 1월 1일", r"(19|20)\d\d년 \d{1,2}월 \d{1,2}일"),
        ("birth_date", "1980-01-01", r"(19|20)\d\d-\d\d-\d\d"),
        ("email", "cs.kim3@hanbit.co.kr", r"[a-z]{2}\.[a-z]{3}\d@[a-z]{6}\.co\.kr"),
        ("email", "a.b@gmail.com", r"[a-z]\.[a-z]@gmail\.com"),
        ("name", "김철수", r"[가-힣]{3}"),
        ("name", "홍 길동", r"[가-힣] [가-힣]{2}"),
        ("name", "John Smith", r"[A-Z][a-z]+ [A-Z][a-z]+"),
        ("name", "JOHN SMITH", r"[A-Z]+ [A-Z]+"),
        ("name", "金哲秀", r"[一-鿿]{3}"),
        ("address", "서울특별시 강남구 테헤란로 123, 4층", r"[가-힣]+[시도] [가-힣]+구 [가-힣]+로 [1-9]\d\d, [1-9]층"),
        ("address", "12 Baker Street, London", r"\d\d [A-Z][a-z]+ Street, [A-Z][a-z]+"),
    ],
)
def test_shape_is_kept(kind: str, value: str, shape: str) -> None:
    """Groups, separators, script and case stay; the value itself does not."""
    surrogate = made(kind, value)
    assert re.fullmatch(shape, surrogate), surrogate
    assert surrogate != value


def test_one_value_written_in_two_ways_has_one_surrogate() -> None:
    """Separators and the country code are of the form, not of the value."""
    plain, marked, abroad = (made("phone", value) for value in ("01012345678", "010-1234-5678", "+82 10 1234 5678"))
    assert marked.replace("-", "") == plain
    assert abroad == f"+82 10 {plain[3:7]} {plain[7:]}"


def test_another_key_gives_other_surrogates() -> None:
    """Who does not have the key cannot tell which value a surrogate stands for."""
    assert made("rrn", "800101-1234560") == made("rrn", "800101-1234560")
    assert made("rrn", "800101-1234560") != made("rrn", "800101-1234560", b"another key")


def test_first_name_is_that_of_the_whole_name() -> None:
    """Hello Tamsin and Tamsin Vale speak of one person."""
    assert made("name", "Tamsin Vale").split()[0] == made("name", "Tamsin")


def luhn(number: str) -> bool:
    """The check of card numbers: every second digit from the right doubled."""
    digits = [int(digit) for digit in reversed(number)]
    return sum(digits[0::2] + [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]) % 10 == 0


def test_check_digits_are_wrong() -> None:
    """No surrogate of a card can be a real card: its check digit is never right, where a random one would be in a tenth."""
    assert luhn("4111111111111111")
    assert not any(luhn(invent(KEY, "card", "4111111111111111", attempt)) for attempt in range(200))


def test_name_ends_in_the_same_class_of_sound() -> None:
    """The particle after a name stays right: 수 and 가 go with 는, 민 with 은, 별 with 로."""
    for name in ("김철수", "박지민", "이한별", "정민"):
        for attempt in range(20):
            assert final_class(invent(KEY, "name", name, attempt)[-1]) == final_class(name[-1])
