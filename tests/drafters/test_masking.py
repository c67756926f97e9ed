"""Masking: what is found, what replaces it, and that it stays the same everywhere."""

from __future__ import annotations

import json
import sys

import pytest

from drafters.masking import Found, Masker, MaskingUnavailable, Mode, fingerprint, tape_scanner
from drafters.masking_fields import kind_of_key, looks_like_name

KEY = b"a key of the tests"


def masked(*texts: str, mode: Mode = "surrogate", scope: str = "a") -> list[str]:
    """The texts masked together."""
    masker = Masker(mode, KEY, tape_scanner())
    for text in texts:
        masker.learn(text, scope)
    masker.settle()
    return [masker.mask(text, scope) for text in texts]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"name": "홍길동", "phone": "010-9999-8888"}', ["홍길동", "010-9999-8888"]),
        ('{"name": "\\ud64d\\uae38\\ub3d9", "고객": "한지민"}', ["홍길동", "ud64d", "한지민"]),
        ('{"rows": [{"성명": "오세라", "계좌": "110-222-333444"}, {"성명": "남기', ["오세라", "110-222-333444"]),
        ('{"args": "{\\"성명\\": \\"오세라\\", \\"주소\\": \\"부산광역시 중구 중앙로 1\\"}"}', ["오세라", "중앙로 1"]),
        ("{'고객명': '이도현', '사업자등록번호': '123-45-67890'}", ["이도현", "123-45-67890"]),
        ('{"참석자": ["한지민", "유재"], "연락처": ["02-555-1234"]}', ["한지민", "유재", "555-1234"]),
        ('{"phone": 1012345678}', ["12345678"]),
        ('{"customer": {"name": "Minjun Hwang", "email": "mj@corp.example"}}', ["Minjun", "Hwang", "mj@corp"]),
        ("성명,연락처,주소\n오다인,010-2222-3333,부산광역시 중구 중앙로 10\n", ["오다인", "2222-3333", "중앙로 10"]),
        ("| 담당자 | 기한 |\n|---|---|\n| 차은우 대리 | 5/12 |\n", ["차은우"]),
        ("Name: John Smith\nPhone: +1 202-555-0143\n", ["John", "Smith", "555-0143"]),
        ("법인등록번호: 110111-1234567", ["110111-1234567"]),
        ("결재선은 황시우, 안유진입니다. 류아름 책임에게 알려 주세요.", ["황시우", "안유진", "류아름"]),
        ("담당자 김철수 과장, 여권 M12345678, 운전면허 11-12-123456-78", ["김철수", "M12345678", "123456-78"]),
        ("주민등록번호 800101-1234560, 생년월일 1980년 1월 1일", ["800101", "1980년 1월 1일"]),
        ("카드 4111-1111-1111-1111, 메일 cs.kim@hanbit.example.com", ["4111-1111", "cs.kim@hanbit"]),
    ],
)
@pytest.mark.parametrize("mode", ["surrogate", "label"])
def test_values_are_found(text: str, values: list[str], mode: Mode) -> None:
    """Keys, columns, headings and plain text give values away, and none of them is left."""
    result = masked(text, mode=mode)[0]
    assert not [value for value in values if value in result]


@pytest.mark.parametrize("mode", ["surrogate", "label"])
def test_json_stays_json(mode: Mode) -> None:
    """Whole JSON stays whole: same keys, same types of structure, numbers that are no data unchanged."""
    text = '{"customer": {"name": "홍길동", "phone": 1012345678}, "items": [{"name": "노트북", "qty": 2}]}'
    value = json.loads(masked(text, mode=mode)[0])
    assert value["items"] == [{"name": "노트북", "qty": 2}]
    assert isinstance(value["customer"]["phone"], int if mode == "surrogate" else str)


def test_find_that_runs_over_json_marks_does_not_break_it() -> None:
    """A scanner takes an address over the end of its string: the strings are replaced, the marks between them stay."""

    def greedy(text: str) -> list[Found]:
        return [Found(text.index("부산"), text.index("3층") + 2, "address")]

    masker = Masker("label", KEY, greedy)
    text = '{"place": "부산광역시 중구", "detail": "3층"}'
    masker.learn(text, "a")
    masker.settle()
    assert json.loads(masker.mask(text, "a"))["place"] == "[주소]"


def test_tool_schema_is_left_alone() -> None:
    """A schema's property of the name of a personal key is no personal value."""
    text = '{"properties": {"name": {"type": "string", "description": "고객의 이름"}, "email": {"type": "string"}}}'
    assert masked(text) == [text]


def test_same_value_has_the_same_surrogate_in_all_texts() -> None:
    """A name known from one text is replaced in another where nothing gives it away, and its particle stays."""
    first, second = masked("담당자 김철수 과장", "오늘 김철수는 회의에 참석함")
    name = first.removeprefix("담당자 ").removesuffix(" 과장")
    assert second == f"오늘 {name}는 회의에 참석함"


def test_surrogate_does_not_depend_on_order() -> None:
    """Two runs over the same texts in another order agree."""
    texts = [
        f"담당자 {name} 과장 010-{number}-0000"
        for name, number in (("김철수", 1234), ("박서연", 2345), ("이도현", 3456))
    ]
    assert masked(*texts) == masked(*reversed(texts))[::-1]


def test_no_surrogate_is_another_original() -> None:
    """With a thousand numbers of four free digits, a surrogate that is another one's original would be likely; none is."""
    numbers = [f"010-1111-{number:04}" for number in range(0, 9000, 9)]
    results = masked(*(f"연락처: {number}" for number in numbers))
    shown = {result.removeprefix("연락처: ") for result in results}
    assert len(shown) == len(numbers)
    assert not shown & set(numbers)


def test_short_name_is_looked_for_only_in_its_file() -> None:
    """유재 is replaced where a key named it; in another file the same two syllables may be a word."""
    masker = Masker("surrogate", KEY, None)
    masker.learn('{"참석자": ["유재"]}', "one")
    masker.learn("유재가 늦었다", "other")
    masker.settle()
    assert not masker.mask("유재가 늦었다", "one").startswith("유재")
    assert masker.mask("유재가 늦었다", "other") == "유재가 늦었다"


@pytest.mark.parametrize("word", ["노트북", "정산의"])
def test_ordinary_word_taken_for_a_name_once_is_left_alone(word: str) -> None:
    """A scanner's one mistake in many rewrites no word without a name's form, nor one with its particle, and is counted."""

    def mistaken(text: str) -> list[Found]:
        return [Found(0, 3, "name")] if text.endswith("정보") else []

    masker = Masker("surrogate", KEY, mistaken)
    texts = [f"{word} 정보", *(f"{number}번 {word} 길이" for number in range(30)), "정산은 정산을 정산이 정산 정산과"]
    for text in texts:
        masker.learn(text, "a")
    masker.settle()
    assert [masker.mask(text, "a") for text in texts] == texts
    assert masker.left == {"ordinary words": 1, "two syllables without a title": 0}
    assert masker.distinct == {}


@pytest.mark.parametrize(
    "found", [["성명: 김민준\n부서: 총무팀"], ["김민준 팀장님께 보고드립니다."] * 5, ["담당자 김민준, 총무팀"]]
)
def test_frequent_name_is_masked_everywhere(found: list[str]) -> None:
    """A name that a key, a title or a role gave away is no ordinary word, however often it stands alone."""
    texts = [*found, *(f"{number}번. 이번 건은 김민준이 처리하기로 했다." for number in range(300))]
    assert not [text for text in masked(*texts) if "김민준" in text]


def test_two_syllables_are_a_name_only_before_a_title() -> None:
    """고객 문의 stays what it is, and 허준 before a title is masked throughout its file, though a scanner takes both."""
    assert masked("0번 고객 문의입니다. 연락은 010-1234-5678")[0].startswith("0번 고객 문의입니다.")
    masker = Masker(
        "label", KEY, lambda text: [Found(text.index(n), text.index(n) + 2, "name") for n in ("허준", "문의")]
    )
    for text in ("문의는 허준 팀장님께 합니다.", "허준에게 문의가 왔다."):
        masker.learn(text, "a")
    masker.settle()
    assert masker.mask("문의는 허준 팀장님께 합니다.", "a") == "문의는 [이름] 팀장님께 합니다."
    assert masker.mask("허준에게 문의가 왔다.", "a") == "[이름]에게 문의가 왔다."
    assert masker.left["two syllables without a title"] == 3


def test_rare_names_are_found() -> None:
    """Surnames that few people have, and given names of Korean words."""
    (text,) = masked("참석: 단비주 팀장, 경태산 주임, 방이든 사원\n - 단비주: 찬성\n - 방이든: 반대\n수신: 공장장")
    assert not [name for name in ("단비주", "경태산", "방이든") if name in text]
    assert text.endswith("수신: 공장장")


def test_heads_of_english_mails() -> None:
    """Sender and addressee are masked, as whole names and first names alike, their house and the rest stay."""
    mail = (
        "From: Piet Harrow\nTo: Tamsin Vale, Purchasing Department\n\nHello Tamsin,\nwill you reach me on 555-0110?\n"
        "Piet Harrow\nReported by: Tamsin Vale, Marrowgate Rail\n"
    )
    lines = masked(mail)[0].splitlines()
    sender, addressee = lines[0].removeprefix("From: "), lines[1].removeprefix("To: ").partition(",")[0]
    assert lines[1].endswith(", Purchasing Department")
    assert lines[3] == f"Hello {addressee.split()[0]},"
    assert lines[4].startswith("will you reach me on ") and "555-0110" not in lines[4]
    assert lines[5:] == [sender, f"Reported by: {addressee}, Marrowgate Rail"]
    assert not {"Piet", "Harrow", "Tamsin", "Vale"} & set(f"{sender} {addressee}".split())


def test_overlapping_finds_leave_nothing_between_them() -> None:
    """Where a scanner runs an address into a number that a key names, both are replaced, each as what it is."""

    def greedy(text: str) -> list[Found]:
        start = text.index("부산")
        return [Found(start, start + 27, "address")]

    text = '부산광역시 중구 중앙로 10 {"phone": "051-222-3333"}'
    masker = Masker("label", KEY, greedy)
    masker.learn(text, "a")
    masker.settle()
    assert masker.mask(text, "a").startswith("[주소]")
    assert "051" not in masker.mask(text, "a")


def test_counts_are_by_file_and_kind() -> None:
    """The report counts what was replaced where."""
    masker = Masker("label", KEY, tape_scanner())
    for scope in ("one", "two"):
        masker.learn("메일 a.b@corp.example", scope)
    masker.settle()
    masker.mask("메일 a.b@corp.example, a.b@corp.example", "one")
    masker.mask("메일 a.b@corp.example", "two")
    assert {scope: dict(counts) for scope, counts in masker.counts.items()} == {
        "one": {"email": 2},
        "two": {"email": 1},
    }
    assert masker.distinct == {"email": 1}


def test_without_masking_nothing_changes() -> None:
    """Mode none changes no character but composes Hangul."""
    assert masked("담당자 김철수 010-1234-5678", mode="none") == ["담당자 김철수 010-1234-5678"]


def test_file_name_that_looks_like_a_person_is_masked() -> None:
    """A name may stand nowhere but in a file's name."""
    masker = Masker("surrogate", KEY, tape_scanner())
    masker.settle()
    for path, hidden in (
        ("인사/이력서_홍길동.txt", ["홍길동"]), ("이하늘_평가서.txt", ["이하늘"]), ("강하늘.txt", ["강하늘"]), ("허준_면담.txt", ["허준"]),
        ("김 철수 이력서.txt", ["김", "철수"]), ("Hong_Gildong_review.txt", ["Hong", "Gildong"]), ("KimMinsu-cv.md", ["Kim", "Minsu"]),
        ("01012345678.txt", ["5678"]), ("800101-1234560.txt", ["800101", "1234560"]),
    ):  # fmt: skip
        shown = masker.mask_path(path, "a")
        assert not [name for name in hidden if name in shown], shown
        assert shown.rpartition(".")[2] == path.rpartition(".")[2]
    assert not masker.counts.get("a")


def test_known_words_of_file_names_stay() -> None:
    """What tells files apart without telling of persons: words of offices, dates, small numbers, endings."""
    masker = Masker("surrogate", KEY, tape_scanner())
    masker.settle()
    for path in (
        "인사/주문서.txt",
        "주간보고-03.txt",
        "2026-03-12_회의록_v2.md",
        "src/orders_api.py",
        "monthly_report.sql",
    ):
        assert masker.mask_path(path, "a") == path


def test_hidden_words_follow_from_the_key() -> None:
    """The same word is hidden in the same way under one key, in another way under another."""
    shown = []
    for key in (KEY, KEY, b"another key of the tests"):
        masker = Masker("surrogate", key, None)
        masker.settle()
        shown.append((masker.mask_path("강하늘.txt", "a"), masker.identity("강하늘")))
    assert shown[0] == shown[1]
    assert shown[0][0] != shown[2][0]
    assert shown[0][1] != shown[2][1]


def test_missing_scanner_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the message names the extra."""
    monkeypatch.setitem(sys.modules, "maskingtape", None)
    with pytest.raises(MaskingUnavailable, match=r"spec-harness\[pii\]"):
        tape_scanner()


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("customer_name", "name"), ("고객명", "name"), ("name", "?name"), ("휴대전화", "phone"), ("phoneNumber", "phone"),
        ("E-mail", "email"), ("배송지 주소", "address"), ("계좌번호", "account"), ("주민등록번호", "rrn"), ("사업자번호", "biz_reg"),
        ("filename", None), ("model_name", None), ("부서", None), ("email_template", None),
    ],
)  # fmt: skip
def test_keys(key: str, kind: str | None) -> None:
    """Case, spaces and marks of a key do not matter, and a key that only contains such a word is none."""
    assert kind_of_key(key) == kind


def test_looks_like_name() -> None:
    """A surname with a given name, in Korean or Latin, and no ordinary word."""
    assert all(map(looks_like_name, ("김철수", "남궁민수", "홍길동", "John Smith", "Mary-Ann O. Lee")))
    assert not any(map(looks_like_name, ("노트북", "주문서", "거래일", "팀장", "search_mail", "Order", "")))


def test_fingerprint_tells_keys_apart() -> None:
    """Eight digits, different for different keys, without the key in them."""
    assert len(fingerprint(KEY)) == 8
    assert fingerprint(KEY) != fingerprint(KEY + b"1")
