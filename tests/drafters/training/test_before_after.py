"""Acceptance before and after, from the harness's rows: arithmetic a reader does in the head."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from drafters.training.adapt_report import measured, verdict
from drafters.training.before_after import Comparison, Step, compare, read_steps, same_outputs
from drafters.training.stage import StageError

COLUMNS = (
    "workload", "arm", "concurrency", "repeat", "phase", "instance", "task_id", "step_index", "language",
    "num_drafts", "num_accepted_tokens", "output_sha256", "error_kind",
)  # fmt: skip


def step(arm: str, task: str, rounds: int | None, accepted: int | None, language: str = "ko", text: str = "a") -> Step:
    """One counted step of one arm, the first of its task."""
    return Step(arm, ("office", "1", "1", "0", task, "0"), task, "office", language, rounds, accepted, text)


def pair(task: str, before: int, after: int, language: str = "ko") -> list[Step]:
    """A task with ten rounds before and ten after, so many tokens accepted."""
    return [step("before", task, 10, before, language), step("after", task, 10, after, language)]


def pooled(steps: list[Step], language: str | None = None) -> Comparison:
    """The comparison over all workloads."""
    return next(row for row in compare(steps, "before", "after") if (row.workload, row.language) == (None, language))


def test_acceptance_length_is_a_ratio_of_sums() -> None:
    """5 + 15 accepted in 20 rounds make 2 tokens a round, 30 in 20 make 2.5."""
    found = pooled([*pair("t1", 5, 10), *pair("t2", 15, 20)])

    assert (found.before, found.after, found.difference) == (2.0, 2.5, 0.5)
    assert (found.tasks, found.steps) == (2, 2)


def test_two_tasks_give_no_interval_and_show_nothing() -> None:
    """Below five tasks there is no interval, so no difference is shown however large it is."""
    found = pooled([*pair("t1", 0, 40), *pair("t2", 0, 40)])

    assert found.low is None
    assert not found.shown


def test_the_same_gain_in_every_task_is_shown() -> None:
    """Six tasks that all gain 0.5 give the interval 0.5 to 0.5."""
    found = pooled([row for index in range(6) for row in pair(f"t{index}", 10, 15)])

    assert (found.low, found.high) == (0.5, 0.5)
    assert found.shown


def test_gains_and_losses_that_cancel_are_not_shown() -> None:
    """Half of the tasks gain what the other half loses: the interval holds zero."""
    found = pooled([row for index in range(8) for row in pair(f"t{index}", 10, 15 if index % 2 else 5)])

    assert found.difference == 0.0
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.high
    assert not found.shown


def test_a_step_that_one_arm_lost_is_left_out_of_both() -> None:
    """What only one arm finished is no pair: the other arm's tokens of it do not count either."""
    found = pooled([*pair("t1", 10, 20), step("before", "t2", 10, 90)])

    assert (found.before, found.steps) == (2.0, 1)


def test_korean_with_code_counts_as_korean() -> None:
    """Language groups are those of the training mix."""
    steps = [*pair("t1", 10, 20, "ko+code"), *pair("t2", 0, 0, "code")]

    assert pooled(steps, "ko").after == 3.0
    assert pooled(steps, "code").after == 1.0


def test_nothing_drafted_is_unknown_not_one() -> None:
    """Without rounds there is no acceptance length."""
    assert pooled([step("before", "t1", 0, 0), step("after", "t1", 10, 5)]).before is None


def test_outputs_are_compared_step_by_step() -> None:
    """One of two texts is that of the baseline."""
    steps = [step("baseline", task, 0, 0) for task in ("t1", "t2")]
    steps += [step("after", "t1", 5, 5), step("after", "t2", 5, 5, text="b")]

    assert same_outputs(steps, "baseline", ["after"]) == {"after": {"steps": 2, "identical": 1}}


def write_run(folder: Path, arms: dict[str, int], *, valid: bool = True) -> Path:
    """A run's folder with six tasks, ten rounds each and so many accepted tokens; the baseline drafts nothing."""
    with (folder / "steps.csv").open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for arm, accepted in {"baseline": 0, **arms}.items():
            drafts = {"num_drafts": 10, "num_accepted_tokens": accepted} if arm != "baseline" else {"num_drafts": 0}
            same = {"workload": "office", "arm": arm, "concurrency": 1, "repeat": 1, "instance": 0, "step_index": 0}
            for task in range(6):
                shared = same | {"task_id": f"t{task}", "language": "ko", "output_sha256": "a", **drafts}
                rows.writerow(shared | {"phase": "counted"})
            rows.writerow(same | {"task_id": "t0", "phase": "warm_up", "num_drafts": 99, "num_accepted_tokens": 0})
            rows.writerow(same | {"task_id": "t9", "phase": "counted", "error_kind": "timeout"})
    (folder / "speed_up.csv").write_text(
        "workload,arm,concurrency,window,n_tasks,speed_up,speed_up_low,speed_up_high\n"
        "office,after,1,steady,6,1.5,1.25,1.75\noffice,after,1,whole,6,9,9,9\noffice,before,1,steady,4,1.1,,\n",
        encoding="utf-8-sig",
    )
    found = [] if valid else ["wrong_language,invalid,office,after,{}"]
    lines = ["code,severity,workload,arm,values", "few_tasks,warning,office,,{}", *found]
    (folder / "findings.csv").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return folder


def test_only_counted_steps_that_succeeded_are_read(tmp_path: Path) -> None:
    """Warm-up and failed steps are left out."""
    assert len(read_steps(write_run(tmp_path, {"before": 10, "after": 20}))) == 18


def test_the_verdict_says_what_is_shown_in_both_languages(tmp_path: Path) -> None:
    """2 tokens a round before, 3 after, all outputs identical, speed-ups with their intervals or without."""
    found = measured(write_run(tmp_path, {"before": 10, "after": 20}))

    english, korean = verdict(found, "en"), verdict(found, "ko")

    assert english[1].startswith("Korean: acceptance length 2.00 before, 3.00 after; +1.00")
    assert "6 of 6 steps identical" in english[2]
    assert english[-2] == "Speed-up of task time of after at 1 tasks in progress, office: 1.50 (1.25 to 1.75)."
    assert english[-1].endswith("1.10 (too few tasks for an interval).")
    assert korean[1].startswith("한국어: 수락 길이 학습 전 2.00, 학습 후 3.00")


def test_a_run_that_is_not_valid_is_called_so_first(tmp_path: Path) -> None:
    """What the harness forbids to conclude, the chain does not conclude either."""
    found = measured(write_run(tmp_path, {"before": 10, "after": 20}, valid=False))

    assert verdict(found, "en")[0].startswith("NOT VALID")
    assert "wrong_language" in verdict(found, "ko")[0]


def test_equal_arms_show_no_difference(tmp_path: Path) -> None:
    """The verdict does not call a difference what is none."""
    found = measured(write_run(tmp_path, {"before": 10, "after": 10}))

    assert "no difference shown" in verdict(found, "en")[0]
    assert "차이를 확인할 수 없다" in verdict(found, "ko")[0]


def test_without_a_drafter_before_only_the_new_one_is_told(tmp_path: Path) -> None:
    """Trained from fresh weights, there is nothing to compare with, and the verdict says so."""
    found = measured(write_run(tmp_path, {"after": 20}))

    assert found["acceptance"][0]["before"] is None
    assert "no drafter before" in verdict(found, "en")[0]


def test_a_run_without_its_tables_is_refused(tmp_path: Path) -> None:
    """The message names the file and how to get it."""
    with pytest.raises(StageError, match=r"steps\.csv cannot be read.*harness report"):
        measured(tmp_path)
