"""Before and after on the same steps: figures with answers that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness.analysis.compare import Comparison, compare_runs
from harness.errors import UsageError
from harness.records import StepRecord
from harness.store import RunFolder
from tests.builders import ARM, BASELINE, cell_key, counters, run_folder, solo_tasks, step, waves, workload_entry
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
        name: None
        for name in ("workload", "concurrency", "kind", "language", "language_group", "genre")
        if name in frame.columns
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
    assert not found.select(found.columns[:8]).is_duplicated().any()
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
    """t1 was rewritten between the runs: that is a warning, and what is left, five tasks, is the same work."""
    hashes = {f"t{number}": f"t{number}" * 8 for number in range(1, 7)} | {"t1": "other"}
    after = run(tmp_path / "b", AFTER, tasks_sha256="1" * 64, task_sha256=hashes)
    found = compare_runs(run(tmp_path / "a", BEFORE), after)
    assert found.sound
    assert row(found.acceptance)["n_tasks"] == 5
    assert "left out (1, first t1)" in found.differences.filter(pl.col("severity") == "warning")["setting"][0]


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


def test_languages_stand_in_groups_too(tmp_path: Path) -> None:
    """Korean with code is Korean: 10 and 20 more of 20 rounds before and after; English is a group of its own."""
    code = {"language": "ko+code"}
    found = compare_runs(run(tmp_path / "a", BEFORE, step_fields=code), run(tmp_path / "b", AFTER, step_fields=code))
    korean = row(found.acceptance, language_group="ko")
    assert (korean["acceptance_length_before"], korean["acceptance_length_after"]) == (2, 2.5)
    assert set(found.acceptance["language_group"]) == {None, "ko"}


def timed(path: Path, records: list[StepRecord], **entries: dict[str, Any]) -> RunFolder:
    """Write a run of these steps; ``entries`` are keys of each workload in the manifest."""
    workloads = [workload_entry(name, **keys) for name, keys in (entries or {"office": {}}).items()]
    return run_folder(path, records, workloads=workloads)


def test_a_speed_up_of_the_window_takes_a_baseline_inside_the_window(tmp_path: Path) -> None:
    """t1 is inside the window of both arms. In one run its baseline is too, 1 s to 0.5 s; in the other it ran on alone."""
    office = {"concurrency": (2,)}
    arm = waves(cell_key(ARM, 2), [500, 1500])
    inside = timed(tmp_path / "a", waves(cell_key(BASELINE, 2), [1000, 4000]) + arm, office=office)
    again = timed(tmp_path / "b", waves(cell_key(BASELINE, 2), [1000, 4000]) + arm, office=office)
    outside = timed(tmp_path / "c", waves(cell_key(BASELINE, 2), [4000, 1000]) + arm, office=office)
    keys = {"arm_after": ARM, "workload": "office", "concurrency": 2, "window": "steady"}
    both, one = (row(compare_runs(inside, other).times, **keys) for other in (again, outside))
    assert (both["n_tasks"], both["speed_up_before"], both["speed_up_after"]) == (1, 2, 2)
    assert (one["n_tasks"], one["speed_up_before"], one["speed_up_after"]) == (1, None, None)


def test_without_a_steady_window_whole_cells_count_and_say_so(tmp_path: Path) -> None:
    """One task at a time where two were to be in progress: no window, so times and acceptance rest on the whole cells."""
    office = {"concurrency": (1, 2)}
    spec = {"spec": counters(10, 40, 10), "spec_source": "request"}
    folders = [
        timed(
            tmp_path / name,
            [
                *solo_tasks(cell_key(ARM, 2), [length, length], **spec),
                *solo_tasks(cell_key(ARM, 1), [length, length], **spec),
            ],
            office=office,
        )
        for name, length in (("a", 1000), ("b", 500))
    ]
    found = compare_runs(folders[0], folders[1])
    windows = dict(found.times.select("concurrency", "window").iter_rows())
    assert windows == {1: "steady", 2: "whole"}
    told = {load: row(found.acceptance, arm_after=ARM, concurrency=load)["window"] for load in (None, 1, 2)}
    assert told == {None: "whole", 1: "steady", 2: "whole"}


def test_workloads_are_pooled_at_loads_that_all_have(tmp_path: Path) -> None:
    """At concurrency 1 both have tasks, 1 s + 3 s before and 1 s + 1 s after; at 2 there is one workload alone."""
    entries = {"office": {"concurrency": (1, 2)}, "chat": {}}
    folders = [
        timed(
            tmp_path / name,
            [
                *solo_tasks(cell_key(ARM), [1000]),
                *solo_tasks(cell_key(ARM, workload="chat"), [chat]),
                *waves(cell_key(ARM, 2), [500, 500]),
            ],
            **entries,
        )
        for name, chat in (("a", 3000), ("b", 1000))
    ]
    pooled = compare_runs(folders[0], folders[1]).times.filter(pl.col("workload").is_null())
    assert pooled.select("concurrency", "task_time_ratio", "n_tasks").rows() == [(1, 2.0, 1)]


def test_the_second_start_of_a_task_is_paired_with_the_second(tmp_path: Path) -> None:
    """t1 starts twice in both runs, under other numbers: 1 s and 3 s before, 1 s and 1 s after are two pairs."""
    folders = []
    for name, number, second in (("a", 7, 3000), ("b", 5, 1000)):
        starts = [step(cell_key(ARM), end=1000), step(cell_key(ARM), due=1000, end=1000 + second, instance=number)]
        folders.append(timed(tmp_path / name, starts))
    found = compare_runs(folders[0], folders[1])
    assert found.steps["n_steps"].to_list() == [2]
    assert row(found.times, arm_after=ARM, workload="office", concurrency=1)["task_time_ratio"] == 2


def test_arms_without_a_partner_are_told(tmp_path: Path) -> None:
    """Each run has a drafter that the other lacks: both are named; asked for by name, nothing is left out."""
    one, other = (run(tmp_path / name, {"d2": BEFORE["d2"], name: AFTER["d2"]}) for name in ("x", "y"))
    assert compare_runs(one, other).left_out == (("x",), ("y",))
    assert compare_runs(one, other, [("d2", "d2")]).left_out == ((), ())


def test_drafters_of_which_none_has_a_partner_are_refused(tmp_path: Path) -> None:
    """Two drafters against one of another name: the baselines alone are no comparison of drafters."""
    one, other = run(tmp_path / "a", {"x": BEFORE["d2"], "y": AFTER["d2"]}), run(tmp_path / "b", {"z": BEFORE["d2"]})
    with pytest.raises(UsageError, match=r"(?s)no drafter of one run has a partner.*--arms.*arms baseline, x, y"):
        compare_runs(one, other)
    assert compare_runs(one, other, [(BASELINE, BASELINE)]).drafting == ()


def test_the_step_named_is_the_one_that_differs_first(tmp_path: Path) -> None:
    """t1 differs at the fourth letter, t2 at the second: that is the earliest, and t2 is the step."""
    folders = []
    for name, texts in (("a", ("text", "text")), ("b", ("tex!", "t!xt"))):
        records = [step(cell_key(ARM), f"t{number}", due=0, text=text) for number, text in enumerate(texts, start=1)]
        folders.append(run_folder(tmp_path / name, records, texts=texts))
    found = compare_runs(folders[0], folders[1]).outputs.row(0, named=True)
    assert (found["first_difference_character_min"], found["example_step"]) == (2, "t2:0")


@pytest.mark.parametrize(("load", "expected"), [(1, ("d2",)), (2, ("d2", "d3"))])
def test_arms_whose_drafts_follow_time_are_named(tmp_path: Path, load: int, expected: tuple[str, ...]) -> None:
    """Lengths chosen by measured costs always do; state of earlier requests does where several are in progress."""
    arms: list[dict[str, Any]] = [{"name": name, "method": "dflash2", "options": {}} for name in ("d2", "d3", "d4")]
    arms[0]["options"] = {"lengths": "goodput"}
    folders = []
    for name in ("a", "b"):
        records = [step(cell_key(arm, load)) for arm in ("d2", "d3", "d4")]
        folder = timed(tmp_path / name, records, office={"arms": arms, "concurrency": (load,)})
        folder.manifest |= {"engine": {"arms": {"d3": {"drafter_carries_state": True}}}}
        folder.write_manifest()
        folders.append(folder)
    assert compare_runs(folders[0], folders[1]).adrift == expected
