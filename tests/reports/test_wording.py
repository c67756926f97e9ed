"""Texts and figures for people."""

from __future__ import annotations

import re
import string

import pytest

from harness.analysis.frames import Finding
from harness.analysis.validity import CODES
from harness.errors import UsageError
from reports.wording import LANGUAGES, UNKNOWN, crossing, interval, number, percent, wording


def places(text: str) -> set[str]:
    """Return the names of the places in a text."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_texts_with_the_same_places() -> None:
    """No text is missing in one language, and none says less than its twin."""
    korean, english = wording("ko").texts, wording("en").texts
    assert korean.keys() == english.keys()
    assert {key for key in korean if places(korean[key]) != places(english[key])} == set()


def test_korean_texts_are_korean() -> None:
    """A text that was copied over and never translated is caught."""
    same = {key for key, text in wording("ko").texts.items() if text == wording("en").texts[key]}
    assert {key for key in same if re.search("[a-z]{3}", re.sub(r"\{.*?\}", "", wording("en").texts[key]))} <= {
        "table.threshold"
    }


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("code", CODES)
def test_every_finding_has_a_text_that_asks_only_for_values_it_gets(lang: str, code: str) -> None:
    """A code of the analysis is never shown raw, and its text never shows a dash for a value that was given another name."""
    assert places(wording(lang).texts[f"finding.{code}"]) <= set(CODES[code])


def test_texts_about_findings_that_do_not_exist_are_removed() -> None:
    """The texts name no finding that the analysis cannot make."""
    assert {key.removeprefix("finding.") for key in wording("en").texts if key.startswith("finding.")} == set(CODES)


def test_an_unknown_finding_is_shown_with_its_values() -> None:
    """A run written by a newer version still renders."""
    finding = Finding("brand_new", "warning", None, None, {"ratio": 1.23456, "loads": [1, 4]})
    assert wording("en").finding(finding) == "brand_new: ratio=1.23, loads=1, 4"


def test_a_finding_without_a_value_reads_as_unknown() -> None:
    """A missing value is a dash, not a crash and not 0."""
    assert (
        wording("en")
        .finding(Finding("few_tasks", "warning", None, None, {}))
        .startswith(f"Few distinct tasks in the steady window ({UNKNOWN});")
    )


def test_a_long_message_inside_a_finding_is_cut_to_one_line() -> None:
    """An engine's stack trace does not fill the page."""
    values = {
        "concurrency": 1,
        "n_failed": 1,
        "n_steps": 2,
        "share": 0.5,
        "error_kind": "protocol",
        "example": "a\nb" * 500,
    }
    text = wording("en").finding(Finding("steps_failed", "warning", None, None, values))
    assert "\n" not in text
    assert text.endswith("…")
    assert len(text) < 360


def test_another_language_is_refused_with_the_known_ones() -> None:
    """The message says what was given and what is allowed."""
    with pytest.raises(UsageError, match="unknown report language 'fr'; known: ko, en"):
        wording("fr")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "s", UNKNOWN),
        (float("nan"), "x", UNKNOWN),
        (float("inf"), None, UNKNOWN),
        (0, "tokens", "0"),
        (0.0, "s", "0"),
        (8.0, "s", "8.00"),
        (12.34, "s", "12.3"),
        (0.01234, "s", "0.0123"),
        (1234.5, "tasks/h", "1,234"),
        (1.0, "x", "1.00"),
        (2.3149, "tokens/round", "2.31"),
        (9.0, "tasks", "9"),
        (8.64, "tasks", "8.6"),
        (13.1, "tasks", "13"),
        (16, "tasks", "16"),
        (True, None, "True"),
        ("text", "s", "text"),
    ],
)
def test_a_figure_takes_the_form_of_its_unit(value: object, unit: str | None, shown: str) -> None:
    """Unknown is a dash, nought is nought, and no figure pretends to more than three places."""
    assert number(value, unit) == shown


@pytest.mark.parametrize(
    ("share", "shown"), [(1, "100"), (0, "0"), (0.9999, "99.9"), (0.0001, "0.1"), (0.98, "98.0"), (1.2, "120.0")]
)
def test_only_all_reads_as_100_per_cent_and_only_none_as_0(share: float, shown: str) -> None:
    """One differing step in ten thousand is not rounded away."""
    assert percent(share) == shown


def test_an_open_end_of_an_interval_is_shown_open() -> None:
    """An end beyond the measured range is not left out, which would read as certainty."""
    assert interval(9.0, 6.0, 14.0, "tasks") == "9 [6–14]"
    assert interval(9.0, 6.0, None, "tasks") == "9 [6–…]"
    assert interval(None, None, 5.0, "tasks") == "– […–5]"
    assert interval(9.0, None, None, "tasks") == "9 [–]"
    assert interval(None, None, None, "tasks") == "–"


def test_no_interval_is_told_from_one_that_reaches_beyond_the_range() -> None:
    """Both have no ends to print."""
    assert crossing(4.2, None, None, "open_both") == "4.2 […–…]"
    assert crossing(4.2, None, None, "none") == "4.2 [–]"
    assert crossing(4.2, None, 9.0, "open_low") == "4.2 […–9]"
    assert crossing(None, None, None, "open_both") == "–"


@pytest.mark.parametrize(
    ("name", "value", "ko", "en"),
    [
        ("status", "done", "완료", "done"),
        ("window", "whole", "셀 전체", "whole cell"),
        ("error_kind", "cancelled", "취소됨", "cancelled"),
        ("cache_policy", "salt", "솔트로 분리", "salt"),
        ("reason", "no_baseline", "기준 구성이 없음", "there is no baseline"),
        ("status", "a new one", "a new one", "a new one"),
    ],
)
def test_words_of_the_program_are_translated(name: str, value: str, ko: str, en: str) -> None:
    """A machine name is for files; people read words, and a name of a newer version as it is."""
    assert (wording("ko").figure(name, value), wording("en").figure(name, value)) == (ko, en)


def test_a_finding_speaks_of_languages_and_reasons_by_name() -> None:
    """No code of the program inside a sentence."""
    odd = Finding("prompt_echo", "warning", None, None, {"language": "code", "share": 0.5, "n_steps": 8})
    assert wording("ko").finding(odd).startswith("코드 출력 8개 중 50.0 %가 프롬프트를 복사합니다.")
    late = Finding("threshold_not_evaluated", "warning", None, None, {"threshold": "x > 1", "reason": "no_values"})
    assert wording("en").finding(late) == "The threshold x > 1 could not be evaluated: a planned load has no value."


def test_a_missing_cell_is_named_with_its_load() -> None:
    """The form is the same in both languages."""
    values = {"n_planned": 4, "n_done": 3, "n_failed": 1, "n_unfinished": 0, "missing": "ngram at 16"}
    lost = Finding("cells_unfinished", "warning", "office-ko", None, values)
    assert all("ngram @ 16." in wording(lang).finding(lost) for lang in LANGUAGES)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(2.0, "s", "2.00 s"), (80.0, "ms", "80.0 ms"), (1.52, "x", "1.52x"), (0.979, "share", "97.9 %"), (None, "s", "–")],
)
def test_a_quantity_carries_its_unit(value: float | None, unit: str, shown: str) -> None:
    """Where rows of one column have different units, each says its own."""
    assert wording("en").quantity(value, unit) == shown
