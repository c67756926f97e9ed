"""A server whose costs and acceptance are known in closed form, and the records that a run against it leaves.

A pass over ``load`` sequences costs ``a + b·load`` milliseconds; with drafts another a and b. Tasks are drawn from a population: their
tokens are log-normal, half of them are of a kind that yields 2 tokens a round, half of one that yields 4. Every run of a task is a
little faster or slower by chance, every repeat of everything by another chance. So what a measurement should find is known:
speed-up, break-even and the agents at a service level follow from these few numbers, in the functions below.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import polars as pl

from harness.analysis.plan import WorkloadPlan
from harness.analysis.rows import STEP_ROWS
from harness.analysis.steps import add_steady, add_times, task_rows, windows
from tests.builders import ARM, BASELINE

WORKLOAD = "office"
KINDS = {"plan": 2, "write": 4}  # tokens a round yields
TOKENS, SPREAD = 2000.0, 0.35  # median and standard deviation of the logarithm
OF_RUN, OF_REPEAT = 0.05, 0.03  # standard deviations of the logarithms of what is due to chance
PLAIN, DRAFTED = (10.0, 0.2), (12.0, 1.75)  # milliseconds: of a pass, and of each sequence in it
LOADS = (1, 2, 4, 8, 16, 32)
REPEATS = 2
N_TASKS = 72
MS = 1_000_000  # nanoseconds


def cost_ms(arm: str, load: float) -> float:
    """Return what a pass costs at a load."""
    fixed, each = PLAIN if arm == BASELINE else DRAFTED
    return fixed + each * load


def true_acceptance_length() -> float:
    """Return the tokens that a round yields over the population: as many tokens at 2 as at 4 a round make 2·2·4 ÷ (2 + 4)."""
    return 8 / 3


def true_break_even() -> float:
    """Return the load at which tokens ÷ round × cost of a plain pass = cost of a round with drafts."""
    yields = true_acceptance_length()
    return (yields * PLAIN[0] - DRAFTED[0]) / (DRAFTED[1] - yields * PLAIN[1])


def true_agents(arm: str, limit_s: float) -> float:
    """Return the load at which 90 % of the task times are within a limit."""
    spread = math.sqrt(SPREAD**2 + OF_RUN**2 + OF_REPEAT**2)
    passes = [1] if arm == BASELINE else list(KINDS.values())

    def share_within(tokens: float) -> float:
        return sum(NormalDist().cdf(math.log(tokens * per_pass / TOKENS) / spread) for per_pass in passes) / len(passes)

    low, high = 1.0, 1e6  # passes that nine of ten tasks need no more than
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if share_within(middle) < 0.9 else (low, middle)
    fixed, each = PLAIN if arm == BASELINE else DRAFTED
    return (limit_s * 1000 / low - fixed) / each


def plan(**slo: str) -> WorkloadPlan:
    """Return the workload as a manifest would tell it."""
    return WorkloadPlan(
        name=WORKLOAD, path="", path_from_run=None, tasks_sha256="", task_ids=(), methods={BASELINE: "none", ARM: "ngram-map-k"},
        concurrency=LOADS, repeats=REPEATS, temperature=0.0, history="recorded", slo=slo, thresholds=(), max_requests_per_s=None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """Step and task rows of a run, as reading its folder would give them."""

    steps: pl.DataFrame
    tasks: pl.DataFrame


def measure(seed: int) -> Measured:
    """Return the rows of one run: tasks drawn anew, then every arm, load and repeat on them."""
    chance = np.random.default_rng(seed)
    tokens = 4 * np.maximum(1, np.rint(TOKENS * np.exp(SPREAD * chance.standard_normal(N_TASKS)) / 4)).astype(np.int64)
    kinds = chance.choice(list(KINDS), N_TASKS)
    rounds = tokens // np.array([KINDS[kind] for kind in kinds])
    rows: list[tuple[int | str, ...]] = []
    of_repeat = np.exp(OF_REPEAT * chance.standard_normal(REPEATS))
    cells = [(repeat, load, arm) for repeat in range(REPEATS) for load in LOADS for arm in (BASELINE, ARM)]
    for cell, (repeat, load, arm) in enumerate(cells):
        passes = tokens if arm == BASELINE else rounds
        luck = np.exp(OF_RUN * chance.standard_normal(N_TASKS)) * of_repeat[repeat]
        times = (passes * cost_ms(arm, load) * luck * MS).astype(np.int64)
        started = _started(times.tolist(), load)
        until = max(end for _, _, end in started[:N_TASKS])
        rows += [(cell, arm, load, repeat + 1, until, number, *run) for number, run in enumerate(started)]
    names = ["cell", "arm", "concurrency", "repeat", "until", "instance", "place", "begin", "end"]
    told = pl.DataFrame({"place": range(N_TASKS), "kind": kinds, "tokens": tokens, "rounds": rounds})
    return _rows(pl.DataFrame(rows, schema=names, orient="row").join(told, on="place", maintain_order="left"))


def _started(times: list[int], load: int) -> list[tuple[int, int, int]]:
    """Return task, begin and end of all runs of a cell: so many at once, further ones keep the load up until the last counted one ends."""
    free = [0] * load
    started: list[tuple[int, int, int]] = []
    last, n = 0, len(times)
    while len(started) < n or free[0] < last:
        begin, place = heapq.heappop(free), len(started) % n
        end = begin + times[place]
        if len(started) < n:
            last = max(last, end)
        started.append((place, begin, end))
        heapq.heappush(free, end)
    return started


def _rows(tasks: pl.DataFrame) -> Measured:
    cut = (pl.col("instance") >= N_TASKS) & (pl.col("end") > pl.col("until"))
    tasks = tasks.with_columns(cut=cut, end=pl.when(cut).then("until").otherwise("end"))
    half = pl.col("begin") + (pl.col("end") - pl.col("begin")) // 2
    steps = pl.concat(
        [
            tasks.with_columns(step_index=pl.lit(0), due_ns="begin", end_ns=half),
            tasks.with_columns(step_index=pl.lit(1), due_ns=half, end_ns="end"),
        ]
    )
    drafts = pl.col("arm") == ARM
    accepted = pl.col("tokens") - pl.col("rounds")
    steps = steps.with_columns(
        workload=pl.lit(WORKLOAD), attempt=1, language=pl.lit("ko"), genre=pl.lit(None, pl.String), done=pl.lit(True),
        phase=pl.when(pl.col("instance") < N_TASKS).then(pl.lit("counted")).otherwise(pl.lit("cool_down")),
        task_id=pl.format("t{}", "place"), task="place", sent_ns="due_ns", first_token_ns=(pl.col("due_ns") + pl.col("end_ns")) // 2,
        output_tokens="tokens", num_drafts=pl.when(drafts).then("rounds"), num_accepted_tokens=pl.when(drafts).then(accepted),
        error_kind=pl.when("cut").then(pl.lit("cancelled")),
    )  # fmt: skip
    lacking = [pl.lit(None).alias(name) for name in STEP_ROWS if name not in steps.columns]
    schema = STEP_ROWS | {"cell": pl.UInt32, "task": pl.UInt32, "done": pl.Boolean, "genre": pl.String}
    rows = steps.with_columns(lacking).select(pl.col(name).cast(kind) for name, kind in schema.items())
    arms = pl.DataFrame({"workload": [WORKLOAD] * 2, "arm": [BASELINE, ARM], "drafter": [False, True]})
    rows = add_times(rows, arms)
    found = task_rows(rows)
    window = windows(found)
    return Measured(add_steady(rows, window, "due_ns"), add_steady(found, window, "start_ns"))


def covered(low: float | None, high: float | None, truth: float) -> bool:
    """Tell whether an interval holds a value; an end that lies beyond the measured range holds everything there."""
    return (low is None or low <= truth) and (high is None or truth <= high)


def count(found: Sequence[bool]) -> int:
    """Return how many are true."""
    return sum(found)
