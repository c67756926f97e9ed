"""What a training changed, read from a run of the harness: acceptance before and after on the same steps. Imports no torch.

The harness's ``steps.csv`` holds every step of every arm. Only steps that both arms finished are compared, so that both
answered the same prompts. Acceptance length is 1 + accepted / rounds, sums first; the interval of the difference is a
bootstrap over tasks, since steps of one task are no independent looks at the world. A difference counts as shown when its
95 % interval leaves out zero, and there is no interval below five tasks.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drafters.training.stage import StageError

__all__ = ["Comparison", "Step", "compare", "read_steps", "read_table", "same_outputs"]

DRAWS = 2000
MIN_TASKS = 5
"""As in the instrument: from the smallest to the largest of fewer values is no interval of 95 %."""
GROUPS = {"ko": ("ko", "ko+code"), "en": ("en", "en+code"), "code": ("code",)}
Place = tuple[str, str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """One counted, successful step of one arm. ``place`` is what it shares with the same step of another arm: workload,
    concurrency, repeat, instance, task, step."""

    arm: str
    place: Place
    task: str
    workload: str
    language: str
    rounds: int | None
    accepted: int | None
    output_sha256: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms on the steps of one workload and language; ``None`` pools. Lengths are ``None`` where nothing drafted."""

    workload: str | None
    language: str | None
    tasks: int
    steps: int
    before: float | None
    after: float | None
    difference: float | None
    low: float | None
    high: float | None

    @property
    def shown(self) -> bool:
        """Whether there is a difference that other tasks of this kind would show as well."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def to_json(self) -> dict[str, Any]:
        """All fields, and whether a difference is shown."""
        return asdict(self) | {"shown": self.shown}


def read_table(path: Path) -> list[dict[str, str]]:
    """Read one of the harness's CSV files. Raises StageError where it is missing."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise StageError(
            f"{path} cannot be read: {error.strerror}; it is written when a run ends: 'harness report RUN'"
        ) from error


def read_steps(run: Path) -> list[Step]:
    """Read the counted, successful steps of a run folder."""
    return [
        Step(
            arm=row["arm"],
            place=(
                row["workload"],
                row["concurrency"],
                row["repeat"],
                row["instance"],
                row["task_id"],
                row["step_index"],
            ),
            task=row["task_id"],
            workload=row["workload"],
            language=row["language"],
            rounds=_whole(row["num_drafts"]),
            accepted=_whole(row["num_accepted_tokens"]),
            output_sha256=row["output_sha256"],
        )
        for row in read_table(run / "steps.csv")
        if row["phase"] == "counted" and not row["error_kind"]
    ]


def compare(steps: Sequence[Step], before: str, after: str) -> list[Comparison]:
    """Compare two arms: all steps, by language group, by workload, and by both."""
    pairs = _paired(steps, before, after)
    workloads = [None, *dict.fromkeys(first.workload for first, _ in pairs)]
    languages = [None, *(group for group in GROUPS if any(one.language in GROUPS[group] for one, _ in pairs))]
    return [
        _comparison(
            workload,
            language,
            [
                pair
                for pair in pairs
                if (workload is None or pair[0].workload == workload)
                and (language is None or pair[0].language in GROUPS[language])
            ],
        )
        for workload in workloads
        for language in languages
        if any(
            (workload is None or one.workload == workload) and (language is None or one.language in GROUPS[language])
            for one, _ in pairs
        )
    ]


def same_outputs(steps: Sequence[Step], baseline: str, arms: Iterable[str]) -> dict[str, dict[str, int]]:
    """Count, arm by arm, the steps whose text is that of the baseline, and those that were compared."""
    return {
        arm: {
            "steps": len(pairs),
            "identical": sum(one.output_sha256 == other.output_sha256 for one, other in pairs),
        }
        for arm in arms
        for pairs in [_paired(steps, baseline, arm)]
    }


def _paired(steps: Sequence[Step], first: str, second: str) -> list[tuple[Step, Step]]:
    places: dict[str, dict[Place, Step]] = {first: {}, second: {}}
    for step in steps:
        if step.arm in places:
            places[step.arm][step.place] = step
    return [(step, places[second][place]) for place, step in places[first].items() if place in places[second]]


def _comparison(workload: str | None, language: str | None, pairs: Sequence[tuple[Step, Step]]) -> Comparison:
    known = [pair for pair in pairs if all(step.rounds is not None and step.accepted is not None for step in pair)]
    tasks = list(dict.fromkeys(one.task for one, _ in known))
    place = {task: index for index, task in enumerate(tasks)}
    sums = np.zeros((len(tasks), 4))  # rounds and accepted before, rounds and accepted after
    for one, other in known:
        sums[place[one.task]] += [one.rounds or 0, one.accepted or 0, other.rounds or 0, other.accepted or 0]
    before, after = _lengths(sums.sum(axis=0, keepdims=True))[0] if tasks else (np.nan, np.nan)
    low, high = _interval(sums, f"{workload} {language}")
    difference = after - before
    return Comparison(
        workload,
        language,
        len(tasks),
        len(known),
        *(None if np.isnan(value) else float(value) for value in (before, after, difference, low, high)),
    )


def _lengths(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, 4] → [n, 2]: acceptance length before and after, NaN where nothing was drafted."""
    rounds, accepted = sums[:, (0, 2)], sums[:, (1, 3)]
    return 1 + np.divide(accepted, rounds, out=np.full_like(rounds, np.nan), where=rounds > 0)


def _interval(sums: NDArray[np.float64], key: str) -> tuple[float, float]:
    if len(sums) < MIN_TASKS:
        return float("nan"), float("nan")
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")  # the same records, the same interval
    drawn = np.random.default_rng(seed).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=DRAWS)
    lengths = _lengths(drawn @ sums)
    differences = lengths[:, 1] - lengths[:, 0]
    differences = differences[~np.isnan(differences)]
    if not len(differences):
        return float("nan"), float("nan")
    low, high = np.quantile(differences, [0.025, 0.975])
    return float(low), float(high)


def _whole(text: str) -> int | None:
    return int(text) if text not in ("", "–") else None


def numbers(rows: Iterable[Mapping[str, str]], keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Turn the named columns of CSV rows into numbers, unknown ones into ``None``."""
    for row in rows:
        yield {key: (float(value) if value else None) if key in keys else value for key, value in row.items()}
