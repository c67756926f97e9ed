"""What a waiting person sees while a run or a download goes on: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from harness.records import CellKey, CellRecord, StepRecord

PLAIN_EVERY_S = 15.0


class RunProgress:
    """Shows cell, tasks done, tokens per second and an estimate of the time left.

    The estimate takes, for each concurrency, the seconds a counted step took in the cells already run there (over all cells where
    there is none yet), times the counted steps still to come.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = LiveBar(console)
        self._planned: dict[CellKey, int] = {}
        self._left: dict[CellKey, int] = {}
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._steps: defaultdict[int, int] = defaultdict(int)
        self._cell: CellKey | None = None
        self._cell_began = time.monotonic()
        self._begun: set[CellKey] = set()
        self._cell_tokens = self._failed_steps = 0
        self._tasks: set[int] = set()

    def __enter__(self) -> RunProgress:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def starting(self, what: str, fraction: float) -> None:
        """Show how far the engine's start is."""
        self._bar.update(what, fraction)

    def run_started(self, cells: Sequence[tuple[CellKey, int]], already_done: int) -> None:
        """Take the cells still to run with their counted steps."""
        self._planned = dict(cells)
        self._left = dict(cells)
        done = f" ({already_done} cells are already done)" if already_done else ""
        self.note(f"{len(cells)} cells with {sum(self._left.values())} counted steps to run{done}")

    def cell_started(self, key: CellKey) -> None:
        """Begin a cell."""
        self._cell = key
        self._begun.add(key)
        self._cell_began = time.monotonic()
        self._cell_tokens = 0
        self._tasks = set()
        self._show(force=True)

    def step_ended(self, record: StepRecord) -> None:
        """Count one step."""
        self._cell_tokens += record.output_tokens or 0
        if record.phase == "counted":
            self._failed_steps += record.error_kind is not None
            self._tasks.add(record.instance)
            self._left[record.cell] = max(0, self._left.get(record.cell, 0) - 1)
        self._show()

    def cell_ended(self, record: CellRecord) -> None:
        """End a cell and learn how long a step took in it."""
        key = record.cell
        self._seconds[key.concurrency] += (record.end_ns - record.start_ns) / 1e9
        self._steps[key.concurrency] += self._planned.get(key, 0)
        self._left.pop(key, None)  # run again or not, its steps are not waited for any more
        if record.status == "failed":
            self.note(f"cell failed ({cell_name(key)}): {record.error_message}")
        self._show()

    def note(self, text: str) -> None:
        """Say something at once."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def seconds_left(self) -> float | None:
        """Return the estimate, ``None`` before the first cell has ended."""
        steps = sum(self._steps.values())
        if not steps:
            return None
        pooled = sum(self._seconds.values()) / steps
        return sum(
            left
            * (
                self._seconds[key.concurrency] / self._steps[key.concurrency]
                if self._steps[key.concurrency]
                else pooled
            )
            for key, left in self._left.items()
        )

    def _show(self, *, force: bool = False) -> None:
        if self._cell is None:
            return
        total, left = sum(self._planned.values()), sum(self._left.values())
        spent = time.monotonic() - self._cell_began
        rate = f"{self._cell_tokens / spent:.1f} tokens/s" if self._cell_tokens else "– tokens/s"
        cell = self._cell
        title = f"{len(self._begun)}/{len(self._planned)} {cell.workload} {cell.arm} c{cell.concurrency} r{cell.repeat}"
        failed = f" · {self._failed_steps} failed" if self._failed_steps else ""
        state = f"left {duration(self.seconds_left())} · steps {total - left}/{total} · tasks {len(self._tasks)} · {rate}{failed}"
        self._bar.update(title, (total - left) / max(total, 1), state, force=force)


class LiveBar:
    """A bar that redraws itself on a terminal and prints a plain line every quarter of a minute elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._last_plain = 0.0

    def __enter__(self) -> LiveBar:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, title: str, fraction: float, state: str = "", *, force: bool = False) -> None:
        """Show ``title``, the bar at ``fraction`` (0 to 1) and ``state``; ``force`` asks for a plain line at once."""
        if self._console.is_terminal:
            if self._task is None:
                self._task = self._progress.add_task(title, total=1.0, state=state)
            self._progress.update(self._task, description=title, completed=fraction, state=state)
        elif force or time.monotonic() - self._last_plain >= PLAIN_EVERY_S:
            self._last_plain = time.monotonic()
            self._console.print(f"{title} · {fraction:.0%} · {state}".rstrip(" ·"), highlight=False, soft_wrap=True)


def cell_name(key: CellKey) -> str:
    """Return how a cell is called in front of people."""
    return f"{key.workload} · {key.arm} · concurrency {key.concurrency} · repeat {key.repeat}"


def duration(seconds: float | None) -> str:
    """Return seconds as ``m:ss`` or ``h:mm:ss``, ``–`` for unknown."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
