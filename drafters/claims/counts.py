"""What a run of the harness counted, step by step, as rows that claims sum up. Imports no torch.

A drafter trained several times is measured as several arms, ``label-s1``, ``label-s2`` …: rows carry label and seed apart.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from drafters.training.evaluate_input import BASELINE
from drafters.training.run_figures import number, read_table
from drafters.training.stage import StageError, write_whole

__all__ = ["Row", "Where", "in_workloads", "invalid_findings", "read_rows", "write_rows"]

SEEDED = re.compile(r"(.+)-s(\d+)")


@dataclass(frozen=True, slots=True)
class Row:
    """One counted step of one arm. Counts are ``None`` where the arm drafts nothing or the engine does not tell."""

    form: str
    """How the target's weights were held, or what else tells two runs apart."""
    label: str
    seed: int
    """Of the training; 1 for a drafter that was trained once."""
    workload: str
    concurrency: int
    repeat: int
    task: str
    instance: int
    step: int
    kind: str
    language: str
    genre: str
    rounds: int | None
    drafted: int | None
    accepted: int | None
    passes: int | None
    output_tokens: int | None
    seconds: float
    repetitive: bool | None
    output: str
    """SHA-256 of what was written."""


Where = Callable[[Row], bool]


def in_workloads(*names: str, languages: Sequence[str] = (), kinds: Sequence[str] = ()) -> Where:
    """Rows of these workloads, of these languages and kinds of steps where some are named."""
    return lambda row: (
        row.workload in names and (not languages or row.language in languages) and (not kinds or row.kind in kinds)
    )


def read_rows(run: Path, form: str = "plain") -> list[Row]:
    """Read the counted steps of a run, without those that failed in any arm: what is left is paired over the arms.

    Raises StageError for a run that is not finished, or whose table is damaged.
    """
    found: list[Row] = []
    bad: set[tuple[object, ...]] = set()
    arms: set[str] = set()
    for line in read_table(run / "steps.csv"):
        if line["phase"] != "counted":
            continue
        try:
            row = _row(line, form)
        except (KeyError, ValueError) as error:
            raise StageError(
                f"{run / 'steps.csv'} cannot be used ({error!r:.200}); measure again in a new folder"
            ) from error
        arms.add(line["arm"])
        if line["error_kind"] or row is None:
            bad.add(tuple(line[name] for name in ("workload", "concurrency", "repeat", "instance", "step_index")))
        else:
            found.append(row)
    seen: dict[tuple[object, ...], int] = {}
    for row in found:
        seen[_key(row)] = seen.get(_key(row), 0) + 1
    return [row for row in found if _key(row) not in bad and seen[_key(row)] == len(arms)]


def _key(row: Row) -> tuple[object, ...]:
    return (row.workload, str(row.concurrency), str(row.repeat), str(row.instance), str(row.step))


def _row(line: dict[str, str], form: str) -> Row | None:
    if line["error_kind"]:
        return None
    label, seed = line["arm"], 1
    if label != BASELINE and (match := SEEDED.fullmatch(label)):
        label, seed = match.group(1), int(match.group(2))
    latency = number(line["step_latency_s"])
    if latency is None:
        return None
    return Row(
        form=form,
        label=label,
        seed=seed,
        workload=line["workload"],
        concurrency=int(line["concurrency"]),
        repeat=int(line["repeat"]),
        task=line["task_id"],
        instance=int(line["instance"]),
        step=int(line["step_index"]),
        kind=line["kind"],
        language=line["language"],
        genre=line.get("genre", ""),
        rounds=_whole(line["num_drafts"]),
        drafted=_whole(line["num_draft_tokens"]),
        accepted=_whole(line["num_accepted_tokens"]),
        passes=_whole(line["decode_passes"]),
        output_tokens=_whole(line["output_tokens"]),
        seconds=latency,
        repetitive=_truth(line["repetitive"]),
        output=line["output_sha256"],
    )


def _whole(text: str) -> int | None:
    value = number(text)
    return None if value is None else int(value)


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def invalid_findings(run: Path) -> list[str]:
    """Codes of the findings that the run itself calls invalid, each once."""
    rows = read_table(run / "findings.csv")
    return sorted({row["code"] for row in rows if row["severity"] == "invalid"})


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV: UTF-8 with a byte-order mark, unknown an empty field."""
    import io

    names = [field.name for field in fields(Row)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if (value := getattr(row, name)) is None else value for name in names])
    write_whole(path, "\ufeff" + text.getvalue())
