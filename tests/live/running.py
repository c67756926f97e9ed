"""Runs the harness as its users do, and holds its figures against what the server counted itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from harness.analysis.frames import RunAnalysis
from harness.analysis.run import analyse
from harness.store import RunFolder

ROOT = Path(__file__).parent.parent.parent
QUICK = ("--limit-tasks", "2", "--limit-steps", "2", "--max-tokens", "32", "--concurrency", "1,2", "--repeats", "1")
WRONG = {
    "baseline_drafted", "cache_contaminated", "chat_template_missing", "counters_mismatch", "counters_went_back", "counts_cumulative",
    "counts_impossible", "foreign_traffic", "no_finished_cell", "nothing_drafted", "prompts_differ", "prompts_truncated",
    "steps_failed", "acceptance_unknown",
}  # fmt: skip
"""Findings that must not be made of a server that only we use, with one model and its own template in all arms."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs go (``reports``), whether they are short, and the language of their reports."""

    reports: Path
    quick: bool
    lang: str

    def run(self, name: str, workloads: list[str], *options: str, resumable: bool = True) -> RunAnalysis:
        """Run workloads into a folder of their own, showing what happens; return the figures.

        A folder that is there is continued, or, where its servers are gone (``resumable`` false), left alone for another one.
        """
        name = f"{name}-quick" if self.quick else name
        folder = self.reports / name
        command = ["run", *workloads, *options, *(QUICK if self.quick else ()), "--lang", self.lang]
        if resumable and folder.exists():
            command = ["run", "--resume", str(folder), "--lang", self.lang]
        else:
            folder = next(path for number in range(1, 1000) if not (path := self._numbered(name, number)).exists())
            command += ["--out", str(folder)]
        assert harness(*command).returncode == 0
        return analyse(RunFolder.open(folder))

    def _numbered(self, name: str, number: int) -> Path:
        return self.reports / (name if number == 1 else f"{name}-{number}")


def harness(*arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run one command of the harness in the repository's folder; without ``capture`` its output is shown as it comes."""
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments], cwd=ROOT, text=True, check=False, capture_output=capture
    )


def check_counts(run: RunAnalysis, *drafting: str) -> None:
    """Check that acceptance is the server's own, to the token.

    In every cell of a drafting arm in which no request was cut off, rounds, drafted and accepted tokens of the requests sum to what the
    server's counters grew by; in the others the server, which counts what was cut off too, counted no less.
    """
    steps = run.steps.filter(pl.col("arm").is_in(drafting) & pl.col("error_kind").is_null())
    assert steps.height
    assert steps["num_draft_tokens"].null_count() == 0, "an answer did not tell its acceptance"
    assert set(steps["spec_source"]) <= {"request", "round"}
    cut = (
        run.steps.filter(pl.col("error_kind").is_not_null()).select("workload", "arm", "concurrency", "repeat").unique()
    )
    cells = run.cells.filter(pl.col("arm").is_in(drafting))
    whole = cells.join(cut, on=cut.columns, how="anti")
    assert whole.height, "no cell without a request that was cut off"
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    for frame in (whole, cells):
        for name in names:
            if frame[name].null_count():  # llama-server does not tell the rounds of every answer
                continue
            ours, theirs = frame[name].to_list(), frame[f"server_{name}"].to_list()
            assert (ours == theirs) if frame is whole else all(a <= b for a, b in zip(ours, theirs, strict=True)), name
    assert whole["counters_match"].all()
    assert whole["num_accepted_tokens"].sum() > 0


def check_figures(run: RunAnalysis, *drafting: str) -> None:
    """Check that every question is answered for every drafting arm, and that nothing was found that a lone server cannot have."""
    found = {item.code: item for item in run.findings if item.code in WRONG}
    assert not found, found
    for arm in drafting:
        for name, frame in (
            ("speed_up", run.speed_up),
            ("break_even", run.break_even),
            ("identical_share", run.lossless),
        ):
            own = frame.filter(pl.col("arm") == arm)
            assert own.height, (arm, name)
        accepted = run.acceptance.filter((pl.col("arm") == arm) & pl.col("acceptance_length").is_not_null())
        assert accepted.height, arm
        assert any(verdict.arm == arm for verdict in run.verdicts)
    assert (run.lossless["identical_share"] > 0.5).all(), "drafting changed most outputs"
