"""Break-evens that the cost model predicts beside those that were measured, over several draft lengths of one method.

``python -m bench.predict RUN …`` reads runs that hold a baseline and arms of one method with three or more draft lengths (any engine);
``python -m bench.predict --measure builtin,llamacpp`` measures such runs first with ``harness run`` (prompt look-up and ngram-simple at
2, 4 and 8 tokens on SmolLM2), keeps them under ``--out`` and leaves out those that are there already.

Of each run only the baseline and the arm with the longest drafts go into the model; the break-evens of the shorter ones are predicted
from those, and only then compared with their own. An error is predicted ÷ measured − 1, of tasks in progress.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from tabulate import tabulate

from harness.analysis.loading import Records, read_records
from harness.analysis.predicted import Predictions, predict
from harness.analysis.run import analyse
from harness.store import MANIFEST, RunFolder

LENGTHS = (2, 4, 8)
LENGTH_OPTIONS = ("num_tokens", "size_m", "n_max", "num_speculative_tokens")
METHODS = {"builtin": ("prompt_lookup", "num_tokens"), "llamacpp": ("ngram-simple", "size_m")}
LEAST = 3  # draft lengths of a method
UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Compared:
    """One draft length of one run: break-evens in tasks in progress, ``None`` beyond what was measured or modelled."""

    engine: str
    method: str
    num_tokens: int
    used: bool  # the arm went into the model
    measured: float | None
    low: float | None
    high: float | None
    measured_side: str
    predicted: float | None
    predicted_side: str
    batch: float | None
    residual: float

    @property
    def error(self) -> float | None:
        """Predicted ÷ measured − 1, ``None`` where either is unknown."""
        return None if self.measured is None or self.predicted is None else self.predicted / self.measured - 1

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        limits = "" if self.low is None and self.high is None else f" [{_shown(self.low)}–{_shown(self.high)}]"
        found = self.measured_side if self.measured is None else f"{self.measured:.1f}{limits}"
        model = self.predicted_side if self.predicted is None else f"{self.predicted:.1f}"
        error = UNKNOWN if self.error is None else f"{self.error:+.0%}"
        used = "yes" if self.used else "no"
        return (
            self.engine,
            self.method,
            str(self.num_tokens),
            used,
            found,
            model,
            _shown(self.batch),
            error,
            f"{self.residual:.1%}",
        )


HEADERS = (
    "engine", "method", "drafted tokens", "in the model", "break-even measured [95 %]", "predicted", "predicted batch", "error",
    "residual of the costs",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for and not there yet, then print the table; 2 if a run cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m bench.predict"
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--measure", default="", help=f"engines to measure first, of {', '.join(METHODS)}")
    parser.add_argument("--workload", type=Path, default=Path("workloads/coding-en.yaml"))
    parser.add_argument("--concurrency", default="1,2,4,8")
    parser.add_argument("--limit-tasks", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("reports/runs/bench-predict"))
    parser.add_argument("--markdown", type=Path, help="also write the table into this file")
    arguments = parser.parse_args(argv)
    engines = [name for name in arguments.measure.split(",") if name]
    unknown = [name for name in engines if name not in METHODS]
    if unknown:
        parser.error(
            f"unknown engines {', '.join(unknown)}; --measure takes {', '.join(METHODS)}; give runs of others as RUN"
        )
    runs = [*(measure(name, arguments) for name in engines), *arguments.runs]
    if not runs:
        parser.error("give run folders, or --measure builtin,llamacpp")
    rows = [item.row() for run in runs for item in compare(RunFolder.open(run))]
    text = tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True)
    print(text)
    if arguments.markdown is not None:
        arguments.markdown.write_text(text + "\n", encoding="utf-8")
    return 0


def measure(engine: str, arguments: argparse.Namespace) -> Path:
    """Run one engine with three draft lengths, unless its complete run is there; return its folder."""
    folder = Path(arguments.out) / engine
    if (folder / MANIFEST).exists() and RunFolder.open(folder).manifest.get("status") == "complete":
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.parent / f"{engine}.yaml"
    file.write_text(yaml.safe_dump(workload(engine, arguments.workload), allow_unicode=True), encoding="utf-8")
    command = [sys.executable, "-m", "harness", "run", str(file), "--out", str(folder)]
    for name in ("concurrency", "limit_tasks", "max_tokens", "repeats"):
        command += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    if (folder / MANIFEST).exists():
        command = [sys.executable, "-m", "harness", "run", "--resume", str(folder)]
    subprocess.run(command, check=True)
    return folder


def workload(engine: str, source: Path) -> dict[str, Any]:
    """Return a workload file's content with a baseline and one arm for each of ``LENGTHS``, of fixed draft lengths."""
    content: dict[str, Any] = yaml.safe_load(source.read_text(encoding="utf-8"))
    method, option = METHODS[engine]
    tasks = content["tasks"]
    if isinstance(tasks, str):
        content["tasks"] = str((source.parent / tasks).resolve())
    else:
        content["tasks"] = [item | {"file": str((source.parent / item["file"]).resolve())} for item in tasks]
    content["engine"] = content.get("engine", {}) | {"kind": engine}
    drafting = [{"name": f"{method}-{length}", "method": method, "options": {option: length}} for length in LENGTHS]
    content["arms"] = [{"name": "baseline", "method": "none"}, *drafting]
    return content


def compare(folder: RunFolder) -> Iterator[Compared]:
    """Yield each draft length of each method of a run that has three or more of them.

    Raises:
        SystemExit: with a message, if the run has no such method or no cost model can be fitted.
    """
    records = read_records(folder)
    measured = analyse(folder).break_even
    found = False
    for method, arms in lengths(folder.manifest, records).items():
        if len(arms) < LEAST:
            continue
        found = True
        longest = arms[max(arms)]
        others = [arm for arm in arms.values() if arm != longest]
        model = predict(folder, records, measured, leave_out=others)
        if model.model is None:
            raise SystemExit(f"{folder.path}: no cost model can be fitted without {', '.join(others)}")
        engine = str((folder.manifest.get("engine") or {}).get("engine") or UNKNOWN)
        for num_tokens, arm in sorted(arms.items()):
            yield _compared((engine, method, num_tokens), arm, longest, model, measured)
    if not found:
        raise SystemExit(
            f"{folder.path}: no method has arms of {LEAST} draft lengths; measure with such arms, see --help"
        )


def lengths(manifest: Mapping[str, Any], records: Records) -> dict[str, dict[int, str]]:
    """Return the arms of each method by their draft length, those whose options tell one."""
    real = {arm for plan in records.plans for arm in plan.drafting}
    found: dict[str, dict[int, str]] = {}
    for item in (arm for entry in manifest["workloads"] for arm in entry["arms"]):
        options = item.get("options") or {}
        length = next((options[name] for name in LENGTH_OPTIONS if isinstance(options.get(name), int)), None)
        if item["name"] in real and length is not None:
            found.setdefault(item["method"], {})[length] = item["name"]
    return found


def _compared(
    key: tuple[str, str, int], arm: str, longest: str, model: Predictions, measured: pl.DataFrame
) -> Compared:
    own = _widest(measured.filter(pl.col("arm") == arm))
    predicted = _widest(model.break_even.filter((pl.col("arm") == longest) & (pl.col("num_tokens") == key[2])))
    assert model.model is not None
    return Compared(
        *key,
        used=arm == longest,
        measured=own.get("break_even"),
        low=own.get("break_even_low"),
        high=own.get("break_even_high"),
        measured_side=own.get("side", "unknown"),
        predicted=predicted.get("break_even_modelled"),
        predicted_side=predicted.get("side", "unknown"),
        batch=predicted.get("batch_break_even"),
        residual=model.model.residual,
    )


def _widest(frame: pl.DataFrame) -> dict[str, Any]:
    rows = list(frame.sort("workload", nulls_last=False).iter_rows(named=True))
    return rows[0] if rows else {}


def _shown(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
