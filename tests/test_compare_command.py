"""`harness compare` as it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import cli
from tests.comparing import THREE, TWO, Accepted, run

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


def test_runs_of_one_name_do_not_share_a_folder(tmp_path: Path) -> None:
    """Runs that evaluations write all end in "run", and other pairs of arms are another comparison: five folders."""
    arms: dict[str, Accepted] = {"old": BEFORE, "new": AFTER}
    for place in ("x/01-evaluate", "y/01-evaluate", "y/02-evaluate"):
        run(tmp_path / place / "run", arms)
    after = str(tmp_path / "y" / "02-evaluate" / "run")
    for before in ("x/01-evaluate/run", "y/01-evaluate/run"):
        assert cli.run(["compare", str(tmp_path / before), after]) == 0
        assert cli.run(["compare", str(tmp_path / before), after, "--arms", "old=new"]) == 0
    assert cli.run(["compare", after, "--arms", "old=new"]) == 0
    made = sorted(path.name for path in Path(after).glob("compared-*"))
    assert len(made) == 5
    assert all("01-evaluate-run" in name for name in made[1:])
    assert made[0] == "compared-old=new"


def test_long_names_of_pairs_stay_apart(tmp_path: Path) -> None:
    """Two comparisons whose names begin alike for longer than a name may be."""
    names = [f"{'a' * 60}{end}" for end in "123"]
    run(tmp_path / "a", dict.fromkeys(names, BEFORE))
    for name in names[1:]:
        assert cli.run(["compare", str(tmp_path / "a"), "--arms", f"{names[0]}={name}"]) == 0
    assert len(list((tmp_path / "a").glob("compared-*"))) == 2


def test_a_folder_of_other_things_is_not_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run, somebody's table of the name of one of ours, a file: refused and left as they are."""
    words = ["compare", *(str(run(tmp_path / name, {"d2": BEFORE}).path) for name in ("a", "b")), "--out"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "differences.csv").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, said in (("a", "holds files that no comparison wrote (cells.jsonl and 3 more)"),
                       ("mine", "holds files that no comparison wrote (differences.csv)"),
                       ("file", "Not a directory")):  # fmt: skip
        before = sorted(tmp_path.rglob("*"))
        assert cli.run([*words, str(tmp_path / name)]) == 2
        assert said in capsys.readouterr().err
        assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "mine" / "differences.csv").read_text() == "mine"


def test_a_comparison_is_written_over_an_earlier_one(tmp_path: Path) -> None:
    """The folder of an earlier comparison, an empty one, and one with what a desktop leaves behind are all good."""
    words = ["compare", *(str(run(tmp_path / name, {"d2": BEFORE}).path) for name in ("a", "b")), "--out"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".DS_Store").write_text("")
    assert cli.run([*words, str(tmp_path / "out")]) == 0
    (tmp_path / "out" / "comparison.html").write_text("old")
    assert cli.run([*words, str(tmp_path / "out")]) == 0
    assert "<html" in (tmp_path / "out" / "comparison.html").read_text(encoding="utf-8")
