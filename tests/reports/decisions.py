"""What a decision rests on in the small run of ``sample``: agents, percentiles, language loss and predictions, built by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from harness.analysis import frames
from harness.analysis.frames import HandOver

SERVICE = "task_time_p90 <= 40s"
# agents, low, high, interval, capacity, limited by
AGENTS: Mapping[tuple[str | None, str], tuple[int | None, int | None, int | None, str, str, str | None]] = {
    ("office-ko", "baseline"): (9, 7, 11, "both", "found", "task_time_p90"),
    ("office-ko", "ngram-map-k"): (14, 12, 15, "both", "found", "task_time_p90"),
    ("office-ko", "ngram-mod"): (0, 0, 2, "both", "none", "task_time_p90"),
    ("coding-en", "baseline"): (10, 8, 12, "both", "found", "task_time_p90"),
    ("coding-en", "ngram-map-k"): (16, 14, None, "open_high", "at_least", None),
    ("coding-en", "ngram-mod"): (None, None, None, "none", "unknown", None),
    (None, "baseline"): (9, 8, 11, "both", "found", "office-ko: task_time_p90"),
    (None, "ngram-map-k"): (14, 13, None, "open_high", "at_least", "office-ko: task_time_p90"),
}


def frames_of_decisions() -> dict[str, Any]:
    """Return the fields of a run's analysis that are about decisions."""
    return {
        "agents": pl.DataFrame(_agents(), schema=frames.AGENTS_SCHEMA),
        "percentiles": pl.DataFrame(_percentiles(), schema=frames.PERCENTILES_SCHEMA),
        "repeats": pl.DataFrame(_repeats(), schema=frames.REPEATS_SCHEMA),
        "language_loss": pl.DataFrame(_losses(), schema=frames.LANGUAGE_LOSS_SCHEMA),
        "costs": pl.DataFrame(_costs(), schema=frames.COSTS_SCHEMA),
        "predicted": pl.DataFrame(_predicted(), schema=frames.PREDICTED_SCHEMA),
        "predicted_break_even": pl.DataFrame([_crossing()], schema=frames.PREDICTED_BREAK_EVEN_SCHEMA),
        "hand_overs": (HandOver("ngram-map-k", ((1, 4, 8), (5, 12, 2), (13, 16, 0)), (0.6, 0.9, 1.1), 3),),
    }


def _agents() -> list[dict[str, Any]]:
    names = ("agents", "agents_low", "agents_high", "interval", "capacity", "limited_by")
    return [
        {"workload": workload, "arm": arm, "slo": SERVICE, "n_tasks": 12}
        | _servers(values)
        | ({} if workload is None else {"lowest_concurrency": 1, "highest_concurrency": 16})
        | dict(zip(names, values, strict=True))
        for (workload, arm), values in AGENTS.items()
    ]


def _servers(values: tuple[Any, ...]) -> dict[str, int | None]:
    """Return the servers for a hundred agents, as if no agent had been rounded away."""
    ends = dict(zip(("", "_high", "_low"), values[:3], strict=True))
    return {f"servers_per_100{end}": -(-100 // agents) if agents else None for end, agents in ends.items()}


def _percentiles() -> list[dict[str, Any]]:
    place = {
        "workload": "office-ko",
        "arm": "baseline",
        "concurrency": 16,
        "metric": "task_time",
        "n": 24,
        "n_tasks": 12,
    }
    return [
        place | {"percent": 50, "n_needed": 11, "observed": 41.0, "observed_low": 33.0, "observed_high": 52.0},
        place | {"percent": 99, "n_needed": 662, "observed_low": 52.0},
    ]


def _repeats() -> list[dict[str, Any]]:
    place = {"workload": "coding-en", "n_tasks": 12, "repeats": 2}
    return [
        place | {"arm": "ngram-map-k", "concurrency": 16, "decided": True, "repeats_more": 0, "tasks_needed": 9},
        place | {"arm": "ngram-mod", "concurrency": 16, "decided": False, "repeats_more": 4, "tasks_needed": 40},
    ]


def _losses() -> list[dict[str, Any]]:
    place = {
        "arm": "ngram-map-k", "language_group": "ko", "reference_group": "en", "n_tasks": 12, "n_tasks_reference": 12, "n_steps": 480,
        "n_kinds": 1, "acceptance_length": 2.1, "acceptance_length_reference": 2.9, "acceptance_length_loss": 0.8,
        "acceptance_length_loss_low": 0.5, "acceptance_length_loss_high": 1.1, "tokens_per_pass": 1.5, "tokens_per_pass_reference": 2.0,
        "time_loss_share": 0.25, "time_loss_share_low": 0.15, "time_loss_share_high": 0.33,
    }  # fmt: skip
    return [place, place | {"concurrency": 16, "decode_s": 20.0, "time_loss_s": 5.0, "win_back": 12.0}]


def _costs() -> list[dict[str, Any]]:
    return [
        {"part": part, "arm": arm, "batch_size": 4.0, "round_tokens": 20.0, "context_tokens": 4000.0, "n_rounds": 300,
         "measured_ms": 20.0, "modelled_ms": 21.0, "residual_share": 0.05, "cost_source": "rounds"}
        for part, arm in (("verify", None), ("draft", "ngram-map-k"), ("host", None))
    ]  # fmt: skip


def _predicted() -> list[dict[str, Any]]:
    speed_ups: Sequence[tuple[int, Sequence[float]]] = (
        (1, (1.0, 1.3, 1.5)),
        (4, (1.0, 1.2, 1.1)),
        (16, (1.0, 0.9, 0.7)),
    )
    return [
        {"arm": "ngram-map-k", "batch_size": batch, "num_tokens": tokens, "tokens_per_pass": 1.0 + 0.2 * tokens, "plain_ms": 18.0,
         "draft_ms": 1.0, "verify_ms": 20.0, "host_ms": 1.0, "decode_speed_up": speed_up, "best": speed_up == max(row),
         "source": "modelled"}
        for batch, row in speed_ups
        for tokens, speed_up in zip((0, 2, 8), row, strict=True)
    ]  # fmt: skip


def _crossing() -> dict[str, Any]:
    return {
        "arm": "ngram-map-k", "num_tokens": 8, "side": "crossed", "batch_break_even": 6.5, "break_even_modelled": 8.0, "break_even": 9.0,
        "break_even_low": 6.0, "break_even_high": 14.0, "highest_batch": 16, "source": "modelled",
    }  # fmt: skip
