"""The screen of the doctor: texts for everything it can find, in both languages, within the width of a terminal."""

from __future__ import annotations

import re

import pytest

from harness.doctor.diagnosis import CODES, FACTS, GRADES, TOPICS, Diagnosis, Observation, Unknown
from reports.doctor import doctor_screen
from reports.wording import LANGUAGES, text_width, wording
from tests.reports.test_wording import places

GOOD = Observation("streaming", "good", "good", {"chunks": 3, "first_token_ms": 12.3456, "seconds": 1.5})


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_code_has_a_text_that_asks_only_for_values_it_gets(lang: str) -> None:
    """No observation is shown raw or with a dash for a value of another name; no text is left of one that cannot be made."""
    texts = wording(lang).texts
    said = {key.removeprefix("doctor.said."): text for key, text in texts.items() if key.startswith("doctor.said.")}
    assert said.keys() == CODES.keys()
    assert {code for code, text in said.items() if not places(text) <= set(CODES[code])} == set()
    for kind, names in (("topic", TOPICS), ("fact", FACTS), ("grade", GRADES)):
        prefix = f"doctor.{kind}."
        assert {key.removeprefix(prefix) for key in texts if key.startswith(prefix)} == set(names)


def test_screen() -> None:
    """Topics stand in their own order, each with its mark; the last lines are the verdict and what a workload would say."""
    failed = Observation(
        "reach", "proxy", "warning", {"place": "a:1", "proxy": "p:2", "connect_ms": 1.0, "round_trip_ms": 2.0}
    )
    diagnosis = Diagnosis(
        "http://a:1", (GOOD, failed), (Unknown("counters", "--metrics"),), kind="llamacpp", model="큰 모델"
    )
    lines = doctor_screen(diagnosis, "en", 120).splitlines()
    assert lines[0] == "harness doctor http://a:1"
    assert lines[2].startswith("! reachable")
    assert lines[3].startswith("✓ streaming      3 chunks, first token after 12.3 ms, 1.50 s in all")
    assert "· counters of drafted tokens: --metrics" in lines
    assert lines[-2].startswith("FIT to measure times; not tokens")
    assert lines[-1] == 'in a workload: engine: {kind: llamacpp, base_url: "http://a:1", model: "큰 모델"}'


def test_unfit() -> None:
    """An obstacle is marked and named in the verdict; an unfit server gets no line for a workload."""
    diagnosis = Diagnosis("http://a:1", (Observation("reach", "failed", "bad", {"why": "no\nroute " * 90}),))
    text = doctor_screen(diagnosis, "en", 100)
    assert text.splitlines()[-1] == "NOT FIT to measure: reachable"
    assert "✗ reachable" in text
    assert len(text.splitlines()) < 10  # a long message is cut
    assert "in a workload" not in text


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("width", [60, 100])
def test_lines_fit(lang: str, width: int) -> None:
    """Lines stay within the width, Hangul counted double, and continue under the text, not under the topic."""
    long = Observation("models", "unlisted", "bad", {"name": "m", "names": [f"모델-{n}" for n in range(30)]})
    lines = doctor_screen(Diagnosis("http://a:1", (long, GOOD)), lang, width).splitlines()
    assert max(text_width(line) for line in lines) <= width
    column = re.search(r"^✗ \S+(?: \S+)?  +", "\n".join(lines), re.MULTILINE)
    assert column is not None
    at = next(index for index, line in enumerate(lines) if line.startswith("✗"))
    assert lines[at + 1].startswith(" " * text_width(column[0]))
