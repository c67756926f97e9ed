"""The figures of one run as polars frames: what analysis hands to reports, column by column.

Times are seconds (suffix ``_s``) or milliseconds (``_ms``); unknown is null, never 0. Every name stands in ``harness/columns.py``.
A frame with no rows still has its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

CELL = ("workload", "arm", "concurrency", "repeat")

STEPS = (
    *CELL, "attempt", "phase", "instance", "task_id", "step_index", "kind", "language", "genre", "steady",
    "due_s", "sent_s", "first_token_s", "end_s",  # since the first step of the cell was due
    "late_ms", "ttft_s", "tpot_ms", "step_latency_s", "tool_wait_s", "max_tokens", "prompt_tokens", "cached_tokens", "output_tokens",
    "decode_passes", "num_drafts", "num_draft_tokens", "num_accepted_tokens", "acceptance_length", "acceptance_rate",
    "tokens_per_pass", "spec_source", "finish_reason", "chunks", "repetitive", "output_sha256", "error_kind", "error_message",
)  # fmt: skip
TASKS = (
    *CELL, "phase", "instance", "task_id", "language", "genre", "steady", "ok", "steps", "task_time_s", "task_time_no_wait_s",
    "slot_s", "output_tokens",
)  # fmt: skip
CELLS = (
    *CELL, "attempt", "order", "status", "duration_s", "steady_s", "n_tasks", "n_tasks_failed", "n_steps", "n_steps_failed",
    "output_tokens_per_s", "output_tokens_per_s_whole", "tasks_per_hour", "tasks_per_hour_whole", "requests_in_flight",
    "late_p99_ms", "cache_policy", "cached_share", "num_drafts", "num_draft_tokens", "num_accepted_tokens", "server_num_drafts",
    "server_num_draft_tokens", "server_num_accepted_tokens", "counters_match", "foreign_requests", "power_watts",
)  # fmt: skip
SUMMARY = (  # n_tasks: runs of tasks, each instance and repeat by itself
    "workload", "arm", "concurrency", "n_tasks", "n_steps", "n_steps_failed", "ttft_p50_s", "ttft_p90_s", "tpot_p50_ms", "tpot_p90_ms",
    "step_latency_p50_s", "step_latency_p90_s", "task_time_mean_s", "task_time_mean_s_low", "task_time_mean_s_high",
    "task_time_p50_s", "task_time_p90_s", "task_time_no_wait_mean_s", "output_tokens_per_s",
    "tasks_per_hour", "tasks_per_hour_low", "tasks_per_hour_high", "acceptance_length", "acceptance_length_macro", "acceptance_rate",
    "tokens_per_pass", "speed_up", "speed_up_low", "speed_up_high", "identical_share", "identical_share_low", "identical_share_high",
    "slo_attainment", "slo_attainment_low", "slo_attainment_high",
    "good_tasks_per_hour", "good_tasks_per_hour_low", "good_tasks_per_hour_high", "cautions",
)  # fmt: skip
# kind, language and concurrency are null in rows that pool over them; cautions: the codes of findings that bear on the row, null: none
ACCEPTANCE = (
    "workload", "arm", "concurrency", "kind", "language", "n_steps", "n_steps_with_rounds", "num_drafts", "num_accepted_in_rounds",
    "num_draft_tokens", "num_accepted_tokens", "acceptance_length", "acceptance_length_low", "acceptance_length_high",
    "acceptance_length_macro", "acceptance_rate", "tokens_per_pass", "output_tokens", "ttft_p50_s",
    "tpot_p50_ms", "step_latency_p50_s", "repetitive_share", "cut_share", "identical_share", "cautions",
)  # fmt: skip
SURVIVAL = (  # position from 1; workload, kind, language, genre null: all
    "workload", "arm", "kind", "language", "genre", "position", "num_drafts", "survival", "cautions",
)  # fmt: skip
DRAFTERS = (  # workload, language, genre, concurrency null: all; speed-ups only at one concurrency; n_tasks: distinct tasks
    "workload", "arm", "language", "genre", "concurrency", "n_tasks", "n_steps", "num_drafts",
    "acceptance_length", "acceptance_length_low", "acceptance_length_high",
    "tokens_per_pass", "tokens_per_pass_low", "tokens_per_pass_high",
    "speed_up", "speed_up_low", "speed_up_high",  # null where one language is told apart: a task mixes them
    "step_speed_up", "step_speed_up_low", "step_speed_up_high", "cautions",
)  # fmt: skip
SPEED_UP = (  # of task time, arm against baseline, paired by task; window is "steady" or "whole"; n_tasks: distinct tasks
    "workload", "arm", "concurrency", "window", "n_tasks", "speed_up", "speed_up_low", "speed_up_high",
    "speed_up_no_wait", "speed_up_no_wait_low", "speed_up_no_wait_high",
)  # fmt: skip
# side: crossed | above | below | unknown; break_even null unless crossed; interval: both | open_low | open_high | open_both | none,
# which tells a limit beyond the measured range from one that nobody could compute (both are null); n_tasks: distinct tasks, the fewest
# of any load
BREAK_EVEN = (
    "workload", "arm", "break_even", "break_even_low", "break_even_high", "interval", "side", "lowest_concurrency",
    "highest_concurrency", "n_tasks",
)  # fmt: skip
LOSSLESS = (  # against the baseline's output of the same step, temperature 0
    "workload", "arm", "concurrency", "n_steps", "n_identical", "identical_share", "first_difference_token_min",
    "first_difference_token_p50", "example_step",
)  # fmt: skip
SLO = ("workload", "arm", "concurrency", "objective", "limit", "observed", "n", "attained_share", "met")
# n: values, n_tasks: distinct tasks; observed null below the tasks that a percentile needs to be shown at all; from n_needed on it can
# be relied on; the limits are order statistics, null where the sample does not hold one
PERCENTILES = (
    "workload", "arm", "concurrency", "metric", "percent", "n", "n_tasks", "n_needed", "observed", "observed_low", "observed_high",
)  # fmt: skip
# capacity: found (the objectives are first missed inside the range) | at_least (kept at the highest load: agents is that load) | none
# (missed at the lowest: agents is 0 where that is 1, else null) | unknown; workload null: equal shares of agents, modelled; interval
# as in BREAK_EVEN; limited_by: the objective that gives way first; servers_per_100 from agents per server before rounding
AGENTS = (
    "workload", "arm", "slo", "agents", "agents_low", "agents_high", "interval", "capacity", "limited_by", "lowest_concurrency",
    "highest_concurrency", "n_tasks", "servers_per_100", "servers_per_100_low", "servers_per_100_high",
)  # fmt: skip
# repeats_more: 0 where it is decided, null where no number of repeats decides; tasks_needed likewise
REPEATS = ("workload", "arm", "concurrency", "n_tasks", "repeats", "decided", "repeats_more", "tasks_needed")
# Of a sizing (harness size): one row an arm; costs null where no price was stated
SIZING = (
    "arm", "agents", "agents_low", "agents_high", "capacity", "limited_by", "servers", "servers_low", "servers_high",
    "agents_per_server", "task_time_mean_s", "task_time_mean_s_low", "task_time_mean_s_high", "fleet_tasks_per_hour", "power_watts",
    "power_source", "kwh_per_1000_tasks", "cost_per_1000_tasks", "cost_per_1000_tasks_low", "cost_per_1000_tasks_high",
    "cost_per_year", "servers_saved", "servers_saved_low", "servers_saved_high",
)  # fmt: skip
TORNADO = (  # swing: of cost or servers, whichever moves more, relative to the sizing itself
    "arm", "assumption", "source", "value", "value_low", "value_high", "servers_at_low", "servers_at_high", "cost_at_low", "cost_at_high",
    "swing",
)  # fmt: skip
# Modelled: what follows from measured rounds, beside what was measured where that exists.
COSTS = (  # part: verify (the target's forward) | draft | host (the rest) | pass (all of it); arm null: all; cost_source: rounds | cells
    "part", "arm", "batch_size", "round_tokens", "context_tokens", "n_rounds", "measured_ms", "modelled_ms", "residual_share",
    "cost_source",
)  # fmt: skip
PREDICTED = (  # of decoding; workload null: all; hardware null: the machine that was measured; num_tokens 0: no drafts
    "workload", "arm", "hardware", "batch_size", "num_tokens", "tokens_per_pass", "plain_ms", "draft_ms", "verify_ms", "host_ms",
    "decode_speed_up", "best", "source",
)  # fmt: skip
PREDICTED_BREAK_EVEN = (  # the measured one stands beside the draft length with which it was measured
    "workload", "arm", "num_tokens", "side", "batch_break_even", "break_even_modelled",
    "break_even", "break_even_low", "break_even_high", "highest_batch", "source",
)  # fmt: skip
HARDWARE = (  # single_tokens_per_s: of one request without drafting, at most; saturation_tokens: from here products outlast
# reading; both null where the memory does not hold the weights
    "hardware", "bandwidth", "dense_flops", "memory", "single_tokens_per_s", "saturation_tokens", "source", "cited",
)  # fmt: skip
HARDWARE_BREAK_EVEN = (
    "workload",
    "arm",
    "hardware",
    "num_tokens",
    "side",
    "batch_break_even",
    "highest_batch",
    "source",
)
# What a group of languages loses against another; workload null: all; concurrency null: all loads, then without seconds. n_kinds: kinds of
# steps that both have, weighed alike (0: they have none in common, and are compared as they are)
LANGUAGE_LOSS = (
    "workload", "arm", "language_group", "reference_group", "concurrency", "n_tasks", "n_tasks_reference", "n_steps", "n_kinds",
    "acceptance_length", "acceptance_length_reference",
    "acceptance_length_loss", "acceptance_length_loss_low", "acceptance_length_loss_high",
    "tokens_per_pass", "tokens_per_pass_reference",
    "decode_s", "time_loss_s", "time_loss_share", "time_loss_share_low", "time_loss_share_high", "win_back",
)  # fmt: skip
# Of a comparison: "before" and "after" are two runs, or two arms of one. Everything rests on what both sides have.
_ARMS = ("workload", "arm_before", "arm_after")
COMPARED_TIMES = (
    *_ARMS, "concurrency", "window", "n_tasks", "task_time_mean_before", "task_time_mean_after",
    "task_time_ratio", "task_time_ratio_low", "task_time_ratio_high",
    "speed_up_before", "speed_up_after", "speed_up_ratio", "speed_up_ratio_low", "speed_up_ratio_high",
)  # fmt: skip
COMPARED_ACCEPTANCE = (  # workload, concurrency, kind, language, language_group, genre null: all
    *_ARMS, "concurrency", "kind", "language", "language_group", "genre", "window", "n_tasks", "n_steps",
    "acceptance_length_before", "acceptance_length_after", "acceptance_length_change",
    "acceptance_length_change_low", "acceptance_length_change_high",
    "tokens_per_pass_before", "tokens_per_pass_after", "tokens_per_pass_change",
    "tokens_per_pass_change_low", "tokens_per_pass_change_high", "cautions_before", "cautions_after",
)  # fmt: skip
COMPARED_SURVIVAL = (  # workload, language null: all
    *_ARMS, "language", "position", "n_steps", "survival_before", "survival_after", "cautions_before", "cautions_after",
)  # fmt: skip
COMPARED_OUTPUTS = (  # example_step: one with the earliest character that differs
    *_ARMS, "concurrency", "n_steps", "n_identical", "identical_share", "first_difference_token_min", "first_difference_token_p50",
    "first_difference_character_min", "example_step",
)  # fmt: skip
COMPARED_STEPS = (  # n_steps: that succeeded on both sides
    *_ARMS, "concurrency", "n_steps", "n_steps_only_before", "n_steps_only_after", "n_steps_failed_before", "n_steps_failed_after",
    "example_step",
)  # fmt: skip
COMPARED_LANGUAGE_LOSS = ("when", *LANGUAGE_LOSS)  # when: before | after; each as in the report of its own run
DIFFERENCES = ("severity", "workload", "setting", "value_before", "value_after")
THRESHOLDS = ("workload", "arm", "threshold", "observed", "met", "reason")  # reason: null, or why met is null

PERCENTILES_SCHEMA: Mapping[str, type[pl.DataType]] = (
    dict.fromkeys(PERCENTILES, pl.Float64)
    | dict.fromkeys(("workload", "arm", "metric"), pl.String)
    | dict.fromkeys(("concurrency", "percent", "n", "n_tasks", "n_needed"), pl.Int64)
)
AGENTS_SCHEMA: Mapping[str, type[pl.DataType]] = dict.fromkeys(AGENTS, pl.Int64) | dict.fromkeys(
    ("workload", "arm", "slo", "interval", "capacity", "limited_by"), pl.String
)
REPEATS_SCHEMA: Mapping[str, type[pl.DataType]] = (
    dict.fromkeys(REPEATS, pl.Int64) | dict.fromkeys(("workload", "arm"), pl.String) | {"decided": pl.Boolean}
)
COSTS_SCHEMA: Mapping[str, type[pl.DataType]] = (
    dict.fromkeys(COSTS, pl.Float64) | dict.fromkeys(("part", "arm", "cost_source"), pl.String) | {"n_rounds": pl.Int64}
)
PREDICTED_SCHEMA: Mapping[str, type[pl.DataType]] = (
    dict.fromkeys(PREDICTED, pl.Float64)
    | dict.fromkeys(("workload", "arm", "hardware", "source"), pl.String)
    | {"batch_size": pl.Int64, "num_tokens": pl.Int64, "best": pl.Boolean}
)
PREDICTED_BREAK_EVEN_SCHEMA: Mapping[str, type[pl.DataType]] = (
    dict.fromkeys(PREDICTED_BREAK_EVEN, pl.Float64)
    | dict.fromkeys(("workload", "arm", "side", "source"), pl.String)
    | {"num_tokens": pl.Int64, "highest_batch": pl.Int64}
)
HARDWARE_SCHEMA: Mapping[str, type[pl.DataType]] = dict.fromkeys(HARDWARE, pl.Float64) | dict.fromkeys(
    ("hardware", "source", "cited"), pl.String
)
HARDWARE_BREAK_EVEN_SCHEMA: Mapping[str, type[pl.DataType]] = {
    name: PREDICTED_BREAK_EVEN_SCHEMA.get(name, pl.String) for name in HARDWARE_BREAK_EVEN
}
LANGUAGE_LOSS_SCHEMA: Mapping[str, type[pl.DataType]] = (
    dict.fromkeys(LANGUAGE_LOSS, pl.Float64)
    | dict.fromkeys(("workload", "arm", "language_group", "reference_group"), pl.String)
    | dict.fromkeys(("concurrency", "n_tasks", "n_tasks_reference", "n_steps", "n_kinds"), pl.Int64)
)

Severity = Literal["note", "warning", "invalid"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason to trust a figure less; ``code`` selects the text in ``reports/texts``, ``values`` fills it."""

    code: str
    severity: Severity
    workload: str | None
    arm: str | None
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the run says of one arm on one workload (``workload`` is ``None`` for all workloads pooled).

    ``side`` is crossed (break-even inside the measured range), above (still faster at the highest concurrency), below (slower
    already at the lowest) or unknown. ``speed_up_first`` and ``speed_up_last`` are (estimate, low, high) at the lowest and
    highest measured concurrency, ``None`` where there is no interval. ``n_tasks`` are distinct tasks behind the estimates, the fewest of
    any load. ``unmeasured`` are planned concurrencies without an estimate. ``consistent``: at the lowest and at the highest load every
    repeat by itself lies on the same side of 1 as the others, and their number is even, so that drift within a run cancels.
    """

    workload: str | None
    arm: str
    side: Literal["crossed", "above", "below", "unknown"]
    break_even: float | None
    break_even_low: float | None
    break_even_high: float | None
    lowest_concurrency: int | None
    highest_concurrency: int | None
    speed_up_first: tuple[float, float, float] | None
    speed_up_last: tuple[float, float, float] | None
    identical_share: float | None
    acceptance_length: float | None
    n_tasks: int | None = None
    unmeasured: tuple[int, ...] = ()
    consistent: bool = False


@dataclass(frozen=True, slots=True)
class HandOver:
    """What other tools take from one arm, all workloads of the run taken together.

    ``vllm_table`` has entries (first batch, last batch, drafted tokens), is modelled, ends where draft lengths can no longer be compared,
    and is ``None`` without a cost model or where they never can.
    ``accepted_tokens`` are accepted drafted tokens a pass under each limit from 1 on, the bonus token left out; ``nextn`` is the limit
    that is handed to aiconfigurator.
    """

    arm: str
    vllm_table: tuple[tuple[int, int, int], ...] | None
    accepted_tokens: tuple[float, ...]
    nextn: int


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """All figures of a run. Arms whose method is synthetic appear in the frames but never in ``break_even`` or ``verdicts``."""

    manifest: Mapping[str, Any]
    steps: pl.DataFrame
    tasks: pl.DataFrame
    cells: pl.DataFrame
    summary: pl.DataFrame
    acceptance: pl.DataFrame
    survival: pl.DataFrame
    drafters: pl.DataFrame
    speed_up: pl.DataFrame
    break_even: pl.DataFrame
    lossless: pl.DataFrame
    slo: pl.DataFrame
    thresholds: pl.DataFrame
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    percentiles: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PERCENTILES_SCHEMA))
    agents: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=AGENTS_SCHEMA))
    repeats: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=REPEATS_SCHEMA))
    costs: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COSTS_SCHEMA))
    predicted: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PREDICTED_SCHEMA))
    predicted_break_even: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PREDICTED_BREAK_EVEN_SCHEMA))
    language_loss: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LANGUAGE_LOSS_SCHEMA))
    hand_overs: tuple[HandOver, ...] = ()
