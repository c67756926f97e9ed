"""`harness compare` as it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import cli
from tests.comparing import THREE, TWO, run

BEFORE, AFTER = {"ko": TWO, "en": TWO}, {"ko": THREE, "en": TWO}


def test_two_runs_are_compared_and_the_page_lies_in_the_run_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, the verdict last, and the page where it is said to be."""
    run(tmp_path / "a", {"d2": BEFORE})
    run(tmp_path / "b", {"d2": AFTER})
    assert cli.run(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    *_, place, verdict = capsys.readouterr().out.splitlines()
    assert place == f"comparison: {tmp_path}/b/compared-with-a/comparison.html"
    assert (tmp_path / "b" / "compared-with-a" / "comparison.html").is_file()
    assert verdict.startswith("Comparison: d2, before and after: acceptance length 2.00 → 2.50")


def test_two_arms_of_one_run_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --arms, --out and Korean texts."""
    run(tmp_path / "a", {"old": BEFORE, "new": AFTER})
    words = ["compare", str(tmp_path / "a"), "--arms", "old=new", "--out", str(tmp_path / "out"), "--lang", "ko"]
    assert cli.run(words) == 0
    assert "늘어남: 한국어 2.00 → 3.00" in capsys.readouterr().out
    assert (tmp_path / "out" / "compared_times.csv").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "say which of its arms to compare"),
        (["a", "a"], "give it once with --arms"),
        (["a", "nowhere"], "is no run folder"),
        (["a", "b", "--arms", "d2=d9"], "has no arm 'd9'"),
        (["a", "other"], "no step in common"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """What is wrong is said, and nothing is written."""
    for name in ("a", "b"):
        run(tmp_path / name, {"d2": BEFORE})
    run(tmp_path / "other", {"d2": BEFORE}, name="support")
    paths = [str(tmp_path / word) if len(word) < 8 and word[0] not in "-d" else word for word in words]
    assert cli.run(["compare", *paths]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("comparison.html"))


def test_a_pair_of_arms_needs_an_equals_sign(capsys: pytest.CaptureFixture[str]) -> None:
    """The form is shown."""
    with pytest.raises(SystemExit) as caught:
        cli.run(["compare", "a", "b", "--arms", "d2"])
    assert caught.value.code == 2
    assert "public=adapted" in capsys.readouterr().err
