"""What a claim is: which stages it needs, and how their outputs become figures and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drafters.claims.bootstrap import Estimate, Sample
from drafters.claims.counts import Row, invalid_findings, read_rows
from drafters.claims.recipes import Recipes
from drafters.claims.scale import Setting
from drafters.claims.stages import Stage
from drafters.claims.store import Store
from drafters.claims.verdicts import Part
from drafters.training.evaluate_input import BASELINE
from drafters.training.evaluate_stage import RUN

__all__ = ["Claim", "Figure", "Found", "Judged", "Plan", "figure", "identical"]

Plan = Mapping[str, Stage]
"""The stages whose outputs are judged, by a name within the claim; what they need comes with them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the table and the chart. ``key`` and ``names`` select its words; ``unit`` as in the instrument's columns."""

    key: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    tasks: int | None
    seeds: int | None
    names: tuple[tuple[str, str], ...] = ()


def figure(key: str, unit: str, estimate: Estimate | float | None, **names: str) -> Figure:
    """A figure from an estimate, or a plain number without an interval."""
    if isinstance(estimate, Estimate):
        low, high = estimate.interval or (None, None)
        return Figure(key, unit, estimate.value, low, high, estimate.tasks, estimate.seeds, tuple(names.items()))
    return Figure(key, unit, estimate, None, None, None, None, tuple(names.items()))


@dataclass(frozen=True, slots=True)
class Judged:
    """What a claim says of what was found: its parts decide, its figures tell."""

    parts: tuple[Part, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The finished stages of a claim."""

    plan: Plan
    store: Store
    setting: Setting
    rows: list[Row] = field(default_factory=list)
    """Every row that was read, in the order of reading: the raw counts of the claim."""
    invalid: list[str] = field(default_factory=list)
    """Codes of what the runs themselves call invalid."""

    def folder(self, name: str) -> Path:
        """A stage's folder."""
        return self.store.place(self.plan[name])

    def sample(self, name: str, form: str = "plain") -> Sample:
        """The counted steps of a measurement. Raises StageError where it is not finished."""
        self.store.manifest(self.plan[name])
        run = self.folder(name) / RUN
        return self.note(read_rows(run, form), invalid_findings(run))

    def note(self, rows: Sequence[Row], invalid: Sequence[str] = ()) -> Sample:
        """Keep rows as raw counts, and return them as a sample."""
        self.rows.extend(rows)
        self.invalid.extend(code for code in invalid if code not in self.invalid)
        return Sample(rows)


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. ``name`` is its id in files; its words stand in ``texts.<lang>.yaml`` under its number."""

    number: int
    name: str
    trained: bool
    """Whether it trains drafters of its own, several times with other seeds."""
    plan: Callable[[Recipes], Plan]
    judge: Callable[[Found], Judged]


def identical(sample: Sample) -> tuple[int, int]:
    """How many steps of drafting arms wrote what the baseline wrote, and how many there are."""
    plain = {_key(row): row.output for row in sample.rows if row.label == BASELINE}
    others = [row for row in sample.rows if row.label != BASELINE]
    return sum(plain.get(_key(row)) == row.output for row in others), len(others)


def _key(row: Row) -> tuple[object, ...]:
    return (row.form, row.workload, row.concurrency, row.repeat, row.instance, row.step)
