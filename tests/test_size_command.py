"""`harness size`: servers for a number of agents, and what it says to bad input."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness import cli
from harness.analysis.offer import offer
from harness.analysis.run import analyse
from harness.records import StepRecord
from harness.store import RunFolder
from tests.analysis.test_agents import at_loads
from tests.builders import ARM, BASELINE, cell, cell_key, run_folder, step, waves, workload_entry

LOADS = (1, 2, 4, 8)
SLO = {"task_time_p50": "2s"}
PRICES = ("--price", "8000", "--years", "1", "--hours", "8000")  # a server costs 1 an hour


def times(workload: str = "office", arms: Mapping[str, float] | None = None) -> list[StepRecord]:
    """Return tasks of as many seconds as there are in progress in the baseline, of half as many with the drafter."""
    factors = {BASELINE: 1.0, ARM: 0.5} if arms is None else arms
    return at_loads(
        {(arm, load): 1000.0 * load * factor for arm, factor in factors.items() for load in LOADS}, workload=workload
    )


def folder(path: Path, records: Sequence[StepRecord] | None = None, *entries: Mapping[str, Any]) -> Path:
    """Write a run of the tasks above and return its folder."""
    given = entries or [workload_entry(concurrency=LOADS, slo=SLO)]
    return run_folder(path / "run", times() if records is None else records, workloads=given).path


def sized(path: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """Size the folder and return the rows of sizing.csv by arm."""
    assert cli.run(["size", str(path), *arguments]) == 0
    return {row["arm"]: row for row in pl.read_csv(path / "sizing.csv").iter_rows(named=True)}


def test_servers_follow_from_the_agents_that_each_carries(tmp_path: Path) -> None:
    """2 s are kept by 2 agents without and by 4 with the drafter: 16 agents take 8 and 4 servers, 4 are saved."""
    found = sized(folder(tmp_path), "--agents", "16")
    figures = (
        "agents",
        "servers",
        "servers_low",
        "servers_high",
        "servers_saved",
        "agents_per_server",
        "task_time_mean_s",
    )
    assert [found[BASELINE][name] for name in figures] == [2, 8, 8, 8, None, 2, pytest.approx(2)]
    assert [found[ARM][name] for name in figures] == [4, 4, 4, 4, 4, 4, pytest.approx(2)]
    assert found[ARM]["cost_per_1000_tasks"] is None  # nobody stated a price


def test_busy_share_and_headroom_move_the_servers(tmp_path: Path) -> None:
    """Half of the agents busy take half of the servers, half of each server free takes twice as many."""
    path = folder(tmp_path)
    assert sized(path, "--agents", "16", "--busy-share", "50%")[ARM]["servers"] == 2
    assert sized(path, "--agents", "16", "--headroom", "0.5")[ARM]["servers"] == 8


def test_costs_are_price_and_energy_of_the_hours_in_use(tmp_path: Path) -> None:
    """Sixteen agents finish 28,800 tasks an hour; eight servers at 1 an hour are 8/28.8, as much again for 1 kW each at 1 a kWh."""
    path = folder(tmp_path)
    plain = sized(path, "--agents", "16", *PRICES)[BASELINE]
    powered = sized(path, "--agents", "16", *PRICES, "--power-watts", "1000", "--kwh-price", "1")[BASELINE]
    assert plain["fleet_tasks_per_hour"] == pytest.approx(28_800)
    assert plain["cost_per_1000_tasks"] == pytest.approx(8 / 28.8)
    assert plain["cost_per_year"] == pytest.approx(64_000)
    assert powered["cost_per_1000_tasks"] == pytest.approx(16 / 28.8)
    assert powered["kwh_per_1000_tasks"] == pytest.approx(8 / 28.8)
    assert (plain["power_source"], powered["power_source"]) == (None, "stated")


def test_power_that_was_measured_is_used_where_none_is_stated(tmp_path: Path) -> None:
    """The GPUs used 500 J in each cell of one second: half a kilowatt a server, marked as measured."""
    records = times()
    keys = dict.fromkeys(record.cell for record in records)
    run = run_folder(
        tmp_path / "run",
        records,
        [cell(key, order=order, energy_j=500.0) for order, key in enumerate(keys)],
        [workload_entry(concurrency=LOADS, slo=SLO)],
    )
    row = sized(run.path, "--agents", "16")[BASELINE]
    assert (row["power_watts"], row["power_source"]) == (500, "nvml")


def test_the_tornado_puts_what_moves_the_answer_most_first(tmp_path: Path) -> None:
    """All tasks agree, so nothing measured moves anything; a fifth more or less agents move the servers by two fifths."""
    path = folder(tmp_path)
    sized(path, "--agents", "16", "--headroom", "50%", *PRICES)
    frame = pl.read_csv(path / "tornado.csv").filter(pl.col("arm") == ARM)
    swings = dict(frame.select("assumption", "swing").iter_rows())
    assert list(frame["swing"]) == sorted(frame["swing"], reverse=True)
    assert swings["agents"] == pytest.approx(0.4)
    assert swings["headroom"] == pytest.approx(0.5 / 0.4 - 0.5 / 0.6)
    assert swings["agents_per_server"] == swings["task_time"] == 0


def test_a_mix_takes_each_workload_by_its_share(tmp_path: Path) -> None:
    """Mail carries 2 agents a server, code 4 (its tasks take half as long): at half each 2.67, shown as 2, and 16 agents take 6 servers."""
    records = [*times("mail"), *times("code", {BASELINE: 0.5, ARM: 0.25})]
    entries = [workload_entry(name, concurrency=LOADS, slo=SLO) for name in ("mail", "code")]
    path = folder(tmp_path, records, *entries)
    mixed = sized(path, "--agents", "16", "--mix", "mail=50,code=50")[BASELINE]
    assert (mixed["agents"], mixed["servers"]) == (2, 6)
    assert sized(path, "--agents", "16", "--mix", "code=100")[BASELINE]["agents"] == 4


def test_the_tornado_moves_the_shares_of_a_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An agent on mail takes half a server, one on code a quarter: 16 agents at half each take 6, with 40 % on mail 5.6, with 60 % 6.4."""
    records = [*times("mail"), *times("code", {BASELINE: 0.5, ARM: 0.25})]
    entries = [workload_entry(name, concurrency=LOADS, slo=SLO) for name in ("mail", "code")]
    path = folder(tmp_path, records, *entries)
    sized(path, "--agents", "16", "--lang", "en")
    row = pl.read_csv(path / "tornado.csv").filter(arm=BASELINE, assumption="mix:mail").row(0, named=True)
    assert [row[name] for name in ("value", "value_low", "value_high")] == pytest.approx([0.5, 0.4, 0.6])
    assert (row["servers_at_low"], row["servers_at_high"]) == (6, 7)
    assert row["swing"] == pytest.approx(0.8 / 6)
    assert "share of mail" in capsys.readouterr().out
    sized(path, "--agents", "16", "--mix", "mail=100")
    assert not pl.read_csv(path / "tornado.csv")["assumption"].str.starts_with("mix").any()


def test_without_a_baseline_nothing_is_said_of_savings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The drafter's servers stand, what it saves cannot be said."""
    entry = workload_entry(methods={ARM: "ngram-map-k"}, concurrency=LOADS, slo=SLO)
    path = folder(tmp_path, times(arms={ARM: 0.5}), entry)
    assert sized(path, "--agents", "16")[ARM]["servers_saved"] is None
    assert "no baseline, so what the drafter saves cannot be said" in capsys.readouterr().out


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_the_page_stands_alone_and_the_last_line_is_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lang: str
) -> None:
    """One HTML file without a script, and a sentence with servers, service level and cost."""
    path = folder(tmp_path)
    sized(path, "--agents", "16", *PRICES, "--currency", "EUR", "--lang", lang)
    page = (path / "sizing.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert ARM in last
    assert "task_time_p50 ≤ 2s" in last
    assert "EUR" in last


def refused(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> str:
    """Return what is said where nothing is sized."""
    assert cli.run(["size", str(path), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert not (path / "sizing.csv").exists()
    return said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--agents", "0"), "--agents is '0'; give a whole number above 0"),
        (("--agents", "2.5"), "give a whole number"),
        (("--agents", "1e20"), "--agents is '1e20'; give a number from 1 to 1,000,000,000"),
        (
            ("--agents", "9", "--price", "1e308", "--years", "1"),
            "--price is '1e308'; give a number from 1e-06 to 1,000,",
        ),
        (("--agents", "9", "--price", "9", "--years", "1e-300"), "--years is '1e-300'; give a number from 0.01 to 100"),
        (("--agents", "9", "--headroom", "99.999%"), "give at most 0.99"),
        (("--agents", "9", "--price", "-5", "--years", "3"), "--price is '-5'; give a number above 0"),
        (("--agents", "9", "--price", "nan", "--years", "3"), "give a number above 0"),
        (("--agents", "9", "--price", "5"), "--price and --years belong together"),
        (("--agents", "9", "--busy-share", "140%"), "give a share above 0 up to 1"),
        (("--agents", "9", "--headroom", "1"), "from 0 to below 1"),
        (("--agents", "9", "--hours", "9000"), "give a number from 1 to 8,766"),
        (("--agents", "9", "--mix", "office=90"), "the shares sum up to 90; they must sum up to 100"),
        (("--agents", "9", "--mix", "ofice=100"), "did you mean 'office'? it has office"),
        (("--agents", "9", "--mix", "office=-100"), "give a share above 0"),
        (("--agents", "9", "--mix", "office"), "is no workload with its share"),
        (("--agents", "9", "--slo", "task_time=2s"), "percentile"),
        (("--agents", "9", "--slo", "task_time_p90"), "such as task_time_p90=40s"),
    ],
)
def test_arguments_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    """What was given, what is allowed, and no figure."""
    assert said in refused(capsys, folder(tmp_path), *arguments)


def test_a_run_without_objectives_asks_for_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Agents per server need a service level; with --slo the same run is sized."""
    path = folder(tmp_path, None, workload_entry(concurrency=LOADS))
    assert "--slo task_time_p90=40s" in refused(capsys, path, "--agents", "9")
    assert sized(path, "--agents", "16", "--slo", "task_time_p50=2s")[ARM]["agents"] == 4


def test_one_task_is_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A percentile of one task is no percentile: no arm gets a figure."""
    records = at_loads({(arm, load): 1000.0 for arm in (BASELINE, ARM) for load in LOADS}, tasks=1)
    said = refused(capsys, folder(tmp_path, records), "--agents", "9", "--slo", "task_time_p90=2s")
    assert "there are 1 distinct tasks, at least 10 are needed" in said


def test_a_level_that_no_arm_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where not even one agent is served well enough no number of servers helps."""
    said = refused(capsys, folder(tmp_path), "--agents", "9", "--slo", "task_time_p50=10ms")
    assert "missed at the lowest measured concurrency (1) already" in said
    assert "1.00 s was measured" in said


def test_where_every_task_failed_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells were finished, yet no task succeeded: that is the reason, not a service level that was missed."""
    failing = [replace(record, error_kind="timeout", error_message="x", output_sha256=None) for record in times()]
    said = refused(capsys, folder(tmp_path, failing), "--agents", "9")
    assert "all 6 failed at the lowest measured concurrency (1)" in said
    assert "missed" not in said


def test_a_percentile_of_few_tasks_is_doubted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six tasks bound a median on both sides, but 11 are needed to rely on it."""
    sized(folder(tmp_path), "--agents", "16", "--lang", "en")
    assert "task_time_p50 rests on 6 tasks, 11 are needed" in capsys.readouterr().out.strip().splitlines()[-1]


def test_all_steps_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run in which nothing succeeded is told as such, with the place to look."""
    key = cell_key(BASELINE)
    run = run_folder(tmp_path / "run", [step(key, error_kind="timeout")], [cell(key, "failed")])
    said = refused(capsys, run.path, "--agents", "9")
    assert "no cell was finished" in said
    assert "failed steps: 1" in said


def test_a_folder_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps of finished cells are gone: no figure would be one of this run."""
    path = folder(tmp_path)
    steps = path / "steps.jsonl"
    lines = steps.read_bytes().splitlines(keepends=True)
    steps.write_bytes(b"".join(lines[: len(lines) // 2]))
    assert "steps of finished cells are missing or doubled" in refused(capsys, path, "--agents", "9")


def test_a_run_of_another_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that another version wrote is refused with both formats."""
    path = folder(tmp_path)
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": 99}), encoding="utf-8")
    assert "format 99, this version reads format 1" in refused(capsys, path, "--agents", "9")


def test_a_run_continued_with_another_version_is_doubted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells of two versions of an engine are sized, and the doubt is said with the answer."""
    path = folder(tmp_path)
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    manifest |= {"versions": {"torch": "2.12"}, "continued": [{"at": "…", "versions": {"torch": "2.13"}}]}
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    sized(path, "--agents", "16")
    assert "measured with two versions of a package" in capsys.readouterr().out.strip().splitlines()[-1]


def test_an_arm_that_fails_half_of_its_tasks_carries_none(tmp_path: Path) -> None:
    """The drafter's tasks fail at every load: it gets no servers, the baseline does."""
    records = [
        replace(record, error_kind="timeout", error_message="x", output_sha256=None)
        if record.cell.arm == ARM and record.instance % 2
        else record
        for record in times()
    ]
    found = sized(folder(tmp_path, records), "--agents", "16")
    assert (found[ARM]["servers"], found[ARM]["capacity"]) == (None, "none")
    assert found[BASELINE]["servers"] == 8


def test_without_an_upper_end_nothing_is_said_to_be_at_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve tasks do not bound p90 from above: the highest load is kept, yet how many servers it takes at most is not known."""
    records = at_loads({(BASELINE, load): 1000.0 for load in LOADS}, tasks=12)
    entry = workload_entry(methods={BASELINE: "none"}, concurrency=LOADS, slo={"task_time_p90": "2s"})
    found = sized(folder(tmp_path, records, entry), "--agents", "16", "--lang", "en")[BASELINE]
    assert (found["capacity"], found["servers_high"]) == ("at_least", None)
    said = capsys.readouterr().out
    assert "at most" not in said
    assert "or fewer" not in said
    assert (
        "(no interval: too few tasks, or it reaches beyond the measured range; the highest load tried was kept too"
        in said
    )


@pytest.mark.parametrize(("years", "headroom"), [("0.5", "97%"), ("1.5", "90%"), ("4", "0")])
def test_what_is_tried_encloses_the_value(tmp_path: Path, years: str, headroom: str) -> None:
    """Half a year and little room included: each value lies between the two that are tried."""
    path = folder(tmp_path)
    sized(path, "--agents", "16", "--price", "8000", "--years", years, "--headroom", headroom)
    stated = pl.read_csv(path / "tornado.csv").filter(source="stated")
    assert {"years", "headroom"} <= set(stated["assumption"])
    assert stated.filter(~pl.col("value").is_between("value_low", "value_high")).is_empty()


def test_what_the_costs_leave_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A price of power without a power, a power without its price, power without a price: each names the option that is missing."""
    path = folder(tmp_path)
    for given, said in (
        ((*PRICES, "--kwh-price", "1"), "electricity is left out of the costs; give --power-watts too"),
        ((*PRICES, "--power-watts", "9"), "electricity is left out of the costs; give --kwh-price too"),
        (("--power-watts", "9"), "Costs are left out; give --price, --years and --kwh-price too"),
    ):
        sized(path, "--agents", "16", "--lang", "en", *given)
        assert said in capsys.readouterr().out.strip().splitlines()[-1]
        assert said in (path / "sizing.html").read_text(encoding="utf-8")
    sized(path, "--agents", "16", "--lang", "en", *PRICES, "--power-watts", "9", "--kwh-price", "1")
    said = capsys.readouterr().out.strip().splitlines()[-1]
    assert "left out" not in said
    assert "at best, with the busiest load in every hour in use" in said


def test_inputs_without_an_interval_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three tasks bound neither the median nor the task time: both stand in the tornado without a swing, and the sentence names them."""
    records = at_loads({(arm, load): 1000.0 * load for arm in (BASELINE, ARM) for load in LOADS}, tasks=3)
    path = folder(tmp_path, records)
    found = sized(path, "--agents", "16", "--lang", "en")
    frame = pl.read_csv(path / "tornado.csv").filter(pl.col("swing").is_null())
    assert set(frame["assumption"]) == {"agents_per_server", "task_time"}
    said = capsys.readouterr().out
    assert "how far they move the answer is not known: agents per server, time per finished task" in said
    assert found[ARM]["servers_saved"] == 0


def test_servers_are_saved_only_where_the_paired_difference_bears_it_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """4 servers, or as many as 12, with a drafter, 8 without a drafter: fewer at first sight, yet nothing is shown."""
    records = times(arms={BASELINE: 1.0})
    for load in LOADS:
        sizes = (0.25, 0.5, 0.5, 0.5, 0.5, 1.5)
        wave = waves(cell_key(ARM, load), [1000.0 * load * size for size in sizes for _ in range(load)])
        records += [replace(record, task_id=f"t{i // load}") for i, record in enumerate(wave)]
    row = sized(folder(tmp_path, records), "--agents", "16", "--lang", "en")[ARM]
    assert (row["servers_saved"], row["servers_saved_low"]) == (4, -4)
    assert "No difference in servers is shown" in capsys.readouterr().out


def test_arms_are_compared_in_the_same_draws_of_the_same_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks differ more than the arms do, so that the servers of both overlap; yet each task takes half as long with the drafter."""
    records = []
    sizes = (0.55, 1, 1, 1, 1, 1.8)
    for arm, factor in ((BASELINE, 1.0), (ARM, 0.5)):
        for load in LOADS:
            wave = waves(cell_key(arm, load), [1000.0 * load * size * factor for size in sizes for _ in range(load)])
            records += [replace(record, task_id=f"t{i // load}") for i, record in enumerate(wave)]
    found = sized(folder(tmp_path, records), "--agents", "16", "--lang", "en")
    assert found[ARM]["servers_high"] > found[BASELINE]["servers_low"]
    # a median of 0.55 carries 3.6 and 7.3 agents (5 and 3 servers), one of 1.8 carries 1.1 and 2.2 (15 and 8 servers)
    assert [found[ARM][f"servers_saved{end}"] for end in ("", "_low", "_high")] == [4, 2, 7]
    assert (
        "That is 4 fewer than without a drafter (baseline; 95 % interval of the difference 2–7"
        in capsys.readouterr().out
    )


def test_a_difference_of_percentiles_that_nothing_bounds_has_no_interval(tmp_path: Path) -> None:
    """Nothing of twelve tasks bounds a p90 from above: 4 servers fewer at first sight, and nobody can say how sure that is."""
    grown = {(arm, load): 1000.0 * load * factor for arm, factor in ((BASELINE, 1.0), (ARM, 0.5)) for load in LOADS}
    path = folder(tmp_path, at_loads(grown, tasks=12), workload_entry(concurrency=LOADS, slo={"task_time_p90": "2s"}))
    found = sized(path, "--agents", "16")[ARM]
    assert [found[f"servers_saved{end}"] for end in ("", "_low", "_high")] == [4, None, None]


def test_the_table_that_is_signed_says_what_the_sizing_says(tmp_path: Path) -> None:
    """Below 2.8 s the baseline carries 2.8 agents, the drafter 5.6: for 100 agents 36 and 18 servers in both, not 50 and 20."""
    entry = workload_entry(concurrency=LOADS, slo={"task_time_p50": "2.8s"})
    path = folder(tmp_path, None, entry)
    run = analyse(RunFolder.open(path))
    offered = {row["arm"]: row for row in offer(run.agents, run.summary, {"office": BASELINE}).iter_rows(named=True)}
    found = sized(path, "--agents", "100")
    for arm, servers in ((BASELINE, 36), (ARM, 18)):
        for end in ("", "_low", "_high"):
            assert offered[arm][f"servers_per_100{end}"] == found[arm][f"servers{end}"] == servers


def test_only_servers_are_rounded(tmp_path: Path) -> None:
    """Below 2.8 s the drafter carries 5.6 agents: at 20 % headroom 4.48, so 22 agents take 4.9 servers, rounded up."""
    found = sized(folder(tmp_path), "--agents", "22", "--headroom", "20%", "--slo", "task_time_p50=2.8s")[ARM]
    assert (found["agents"], found["servers"]) == (5, 5)  # whole agents would have asked for 6


def test_failed_tasks_cost_and_finish_nothing(tmp_path: Path) -> None:
    """A third of the tasks fail, all take as long: 16 agents finish two thirds of 28,800 an hour, each at half as much again."""
    records = [
        replace(record, error_kind="timeout", error_message="x", output_sha256=None)
        if record.task_id in ("t0", "t3")
        else record
        for record in times()
    ]
    found = sized(folder(tmp_path, records), "--agents", "16", "--slo", "task_time_p50=2s", *PRICES)[BASELINE]
    assert found["fleet_tasks_per_hour"] == pytest.approx(19_200)
    assert found["cost_per_1000_tasks"] == pytest.approx(8 / 19.2)
    assert found["task_time_mean_s"] == pytest.approx(2)
