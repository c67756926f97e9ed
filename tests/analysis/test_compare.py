"""Before and after on the same steps: figures with answers that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness.analysis.compare import Comparison, compare_runs
from harness.errors import UsageError
from tests.builders import BASELINE
from tests.comparing import THREE, TWO, run

BEFORE = {"d2": {"ko": TWO, "en": TWO}}
AFTER = {"d2": {"ko": THREE, "en": TWO}}


@pytest.fixture
def korean_gained(tmp_path: Path) -> Comparison:
    """Korean goes from 2 to 3, English stays at 2; the machine is twice as fast in the run after, and the arm no faster by itself."""
    before = run(tmp_path / "before", BEFORE)
    after = run(tmp_path / "after", AFTER, milliseconds={BASELINE: 500, "d2": 250})
    return compare_runs(before, after)


def row(frame: pl.DataFrame, **keys: Any) -> dict[str, Any]:
    """Return the one row with these keys, null where a key of place is not named."""
    place: dict[str, Any] = {
        name: None for name in ("workload", "concurrency", "kind", "language", "genre") if name in frame.columns
    }
    wanted = {"arm_after": "d2", **place, **keys}
    found = frame.filter(pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in wanted.items()))
    assert found.height == 1
    return dict(found.row(0, named=True))


def test_acceptance_is_told_by_language_with_its_change(korean_gained: Comparison) -> None:
    """Korean 2 → 3 in every task: +1 with an interval of +1 to +1; English unchanged: 0 from 0 to 0."""
    ends = ("before", "after", "change", "change_low", "change_high")
    korean = row(korean_gained.acceptance, language="ko")
    english = row(korean_gained.acceptance, language="en")
    assert [korean[f"acceptance_length_{end}"] for end in ends] == [2, 3, 1, 1, 1]
    assert [english[f"acceptance_length_{end}"] for end in ends] == [2, 2, 0, 0, 0]
    assert (korean["n_tasks"], korean["n_steps"]) == (6, 12)


def test_all_steps_together_are_a_ratio_of_sums(korean_gained: Comparison) -> None:
    """20 accepted in 20 rounds before, 30 in 20 after: 2 and 2.5. In 40 passes: 1.5 and 1.75 tokens a pass."""
    whole = row(korean_gained.acceptance)
    assert (whole["acceptance_length_before"], whole["acceptance_length_after"]) == (2, 2.5)
    assert (whole["tokens_per_pass_before"], whole["tokens_per_pass_after"]) == (1.5, 1.75)
    assert row(korean_gained.acceptance, genre="mail")["acceptance_length_change"] == 0.5
    assert row(korean_gained.acceptance, kind="plan")["acceptance_length_change"] == 1
    assert row(korean_gained.acceptance, workload="office")["acceptance_length_change"] == 0.5


def test_steps_of_unknown_genre_make_no_second_row_of_all(tmp_path: Path) -> None:
    """Where no genre is known there is one row of all steps, not two."""
    found = compare_runs(run(tmp_path / "a", BEFORE, genres={}), run(tmp_path / "b", AFTER, genres={})).acceptance
    assert not found.select(found.columns[:7]).is_duplicated().any()
    assert row(found)["n_tasks"] == 6


def test_survival_stands_before_and_after(korean_gained: Comparison) -> None:
    """In Korean 6 and 4 of 10 rounds got to positions 1 and 2, then 10, 6 and 4 to positions 1, 2 and 3."""
    own = korean_gained.survival.filter((pl.col("language") == "ko") & pl.col("workload").is_null())
    assert own.select("position", "survival_before", "survival_after").rows() == [
        (1, 0.6, 1.0),
        (2, 0.4, 0.6),
        (3, 0.0, 0.4),
    ]


def test_times_of_two_runs_stand_beside_each_runs_own_speed_up(korean_gained: Comparison) -> None:
    """Tasks take 2 s before and 0.5 s after: 4 times as fast. The baseline takes half as long too, so the speed-up went from 1 to 2."""
    found = row(korean_gained.times, workload="office", concurrency=1)
    assert (found["task_time_mean_before"], found["task_time_mean_after"], found["task_time_ratio"]) == (2, 0.5, 4)
    assert (found["speed_up_before"], found["speed_up_after"], found["speed_up_ratio"]) == (1, 2, 2)
    assert (found["speed_up_ratio_low"], found["speed_up_ratio_high"]) == (2, 2)
    assert row(korean_gained.times, arm_after=BASELINE, workload="office", concurrency=1)["task_time_ratio"] == 2


def test_two_arms_of_one_run_are_compared_inside_it(tmp_path: Path) -> None:
    """Both sides are the one run, and the baseline cancels: what is left is 1 s against 0.5 s a step."""
    folder = run(tmp_path / "run", {"old": BEFORE["d2"], "new": AFTER["d2"]}, milliseconds={"new": 500})
    found = compare_runs(folder, None, [("old", "new")])
    assert found.within
    assert found.sound
    assert row(found.acceptance, arm_after="new", language="ko")["acceptance_length_change"] == 1
    assert row(found.times, arm_after="new", workload="office", concurrency=1)["task_time_ratio"] == 2


def test_few_tasks_have_a_change_without_an_interval(tmp_path: Path) -> None:
    """Four tasks are too few for an interval of 95 %."""
    found = compare_runs(run(tmp_path / "a", BEFORE, tasks=4), run(tmp_path / "b", AFTER, tasks=4))
    korean = row(found.acceptance, language="ko")
    assert (korean["acceptance_length_change"], korean["acceptance_length_change_low"]) == (1, None)


def test_the_interval_of_a_change_pairs_the_tasks(tmp_path: Path) -> None:
    """Tasks differ widely from one another, but each gains just as much: the change is sure although either figure is not."""
    before = run(tmp_path / "a", BEFORE)
    after = run(tmp_path / "b", AFTER)
    for folder, gain in ((before, 0), (after, 10)):
        lines = (folder.path / "steps.jsonl").read_text(encoding="utf-8").splitlines()
        steps = []
        for line in lines:
            changed = pl.read_ndjson(line.encode()).row(0, named=True)
            if changed["arm"] == "d2":
                changed["num_accepted_tokens"] = 10 * int(changed["task_id"][1:]) + gain
            steps.append(changed)
        (folder.path / "steps.jsonl").write_bytes(b"".join(_json(item) for item in steps))
    whole = row(compare_runs(before, after).acceptance)
    assert whole["acceptance_length_change"] == pytest.approx(1)
    assert (whole["acceptance_length_change_low"], whole["acceptance_length_change_high"]) == pytest.approx((1, 1))


def _json(value: dict[str, Any]) -> bytes:
    import orjson

    return orjson.dumps(value) + b"\n"


def test_outputs_that_differ_are_counted_with_the_first_letter(tmp_path: Path) -> None:
    """ "text" and "test" differ at the third letter, in all 24 steps of the arm and in none of the baseline's."""
    before, after = run(tmp_path / "a", BEFORE), run(tmp_path / "b", AFTER, texts={"d2": "test"})
    found = compare_runs(before, after).outputs
    own = found.filter(pl.col("arm_after") == "d2").row(0, named=True)
    assert (own["n_steps"], own["n_identical"], own["first_difference_character_min"]) == (24, 0, 3)
    assert own["example_step"] == "t1:0"
    assert found.filter(pl.col("arm_after") == BASELINE)["identical_share"].to_list() == [1.0]


def test_steps_of_one_run_alone_are_counted_and_left_out(tmp_path: Path) -> None:
    """Six tasks before and five after, twice each: four steps stand before alone, and 20 on both sides."""
    found = compare_runs(run(tmp_path / "a", BEFORE), run(tmp_path / "b", AFTER, tasks=5))
    own = found.steps.filter(pl.col("arm_after") == "d2").row(0, named=True)
    assert (own["n_steps"], own["n_steps_only_before"], own["n_steps_only_after"]) == (20, 4, 0)
    assert own["example_step"] == "t6:0"
    assert row(found.acceptance)["n_tasks"] == 5


def test_a_failed_step_is_no_pair(tmp_path: Path) -> None:
    """Steps that failed after count as failures, not as acceptance."""
    failing = run(tmp_path / "b", AFTER, step_fields={"error_kind": "timeout", "error_message": "late", "spec": None})
    found = compare_runs(run(tmp_path / "a", BEFORE), failing)
    own = found.steps.filter(pl.col("arm_after") == "d2").row(0, named=True)
    assert (own["n_steps"], own["n_steps_failed_before"], own["n_steps_failed_after"]) == (0, 0, 24)
    assert found.acceptance.is_empty()


def test_a_task_of_one_name_and_another_content_is_left_out_loudly(tmp_path: Path) -> None:
    """t1 was rewritten between the runs: the pairing is not sound, and five tasks are left."""
    hashes = {f"t{number}": f"t{number}" * 8 for number in range(1, 7)} | {"t1": "other"}
    after = run(tmp_path / "b", AFTER, tasks_sha256="1" * 64, task_sha256=hashes)
    found = compare_runs(run(tmp_path / "a", BEFORE), after)
    assert not found.sound
    assert row(found.acceptance)["n_tasks"] == 5
    assert "left out (1, first t1)" in found.differences.filter(pl.col("severity") == "invalid")["setting"][0]


def test_prompts_of_other_lengths_make_the_pairing_unsound(tmp_path: Path) -> None:
    """The same step with 50 and with 60 prompt tokens was not asked the same."""
    found = compare_runs(run(tmp_path / "a", BEFORE), run(tmp_path / "b", AFTER, step_fields={"prompt_tokens": 60}))
    first = found.differences.row(0, named=True)
    assert (first["severity"], first["value_before"], first["value_after"]) == ("invalid", "50", "60")


def test_the_only_drafters_of_two_runs_are_paired_whatever_their_names(tmp_path: Path) -> None:
    """One run has the arm before, the other the arm after: that is what is to be compared."""
    found = compare_runs(run(tmp_path / "a", {"before": BEFORE["d2"]}), run(tmp_path / "b", {"after": AFTER["d2"]}))
    assert found.arms == ((BASELINE, BASELINE), ("before", "after"))
    assert found.drafting == (("before", "after"),)


def test_runs_with_nothing_in_common_say_what_each_holds(tmp_path: Path) -> None:
    """Another workload: an error with both runs' workloads, arms and concurrencies."""
    other = run(tmp_path / "b", AFTER, name="support", concurrency=(4,))
    with pytest.raises(UsageError, match="no step in common") as caught:
        compare_runs(run(tmp_path / "a", BEFORE), other)
    assert "office: arms baseline, d2; concurrency 1; 6 tasks" in str(caught.value)
    assert "support: arms baseline, d2; concurrency none finished; 6 tasks" in str(caught.value)


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([("d2", "d3")], "no arm 'd3'; it has baseline, d2"),
        (None, "say which of its arms"),
        ([("d2", "d2")], "says nothing"),
    ],
)
def test_arms_of_one_run_must_be_two_of_its_arms(tmp_path: Path, arms: Any, message: str) -> None:
    """An unknown arm, none, or one with itself is refused with what there is."""
    with pytest.raises(UsageError, match=message):
        compare_runs(run(tmp_path / "run", BEFORE), None, arms)
