"""The records of a run as step, task and cell rows with their times: what every analysis of it starts from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from harness.analysis.outputs import Signs, StepKey, prompts, signs_of
from harness.analysis.plan import WorkloadPlan, read_plan
from harness.analysis.round_lines import round_lines
from harness.analysis.rows import read_rows
from harness.analysis.steps import add_steady, add_times, task_rows, windows
from harness.analysis.wholeness import Wholeness, wholeness
from harness.errors import WorkloadError
from harness.store import RunFolder
from harness.workload import load

_PLACES = {"output_sha256": pl.String, "output": pl.Int64}


@dataclass(frozen=True)
class Records:
    """Rows of the attempts that count; ``texts`` and ``tokens`` are the outputs by hash, ``signs`` what each text shows by itself, in
    their order, ``cells`` the rows of cells as they were written, ``deaths`` the attempts in which the server died, ``round_lines`` where
    the rounds of steps are. ``output`` of a step is the place of its text among them. Steps and tasks carry ``genre``, null where neither
    the run nor its task files tell it. ``status`` is the manifest's."""

    plans: tuple[WorkloadPlan, ...]
    steps: pl.DataFrame
    tasks: pl.DataFrame
    cells: pl.DataFrame
    deaths: pl.DataFrame
    texts: dict[str, str]
    tokens: dict[str, tuple[int, ...] | None]
    signs: list[Signs]
    prompts: dict[StepKey, str]
    unread: dict[str, str]
    status: str | None
    round_lines: pl.DataFrame

    @cached_property
    def whole(self) -> Wholeness:
        """What the folder lacks."""
        return wholeness(self.steps, self.cells, self.round_lines)


def read_records(folder: RunFolder) -> Records:
    """Read a run folder.

    Raises:
        RunFolderError: if the manifest or a line of the records is damaged.
    """
    plans = read_plan(folder.manifest)
    arms = [(plan.name, arm, arm != plan.baseline) for plan in plans for arm in plan.methods]
    roles = pl.DataFrame(arms, schema={"workload": pl.String, "arm": pl.String, "drafter": pl.Boolean}, orient="row")
    # most of what reads the steps runs outside the interpreter, and what judges texts inside
    with ThreadPoolExecutor(2) as beside:
        outputs = beside.submit(_outputs, folder)
        found_lines = beside.submit(round_lines, folder)
        read_prompts = beside.submit(prompts, plans, folder.path)
        rows, cells, deaths = read_rows(folder, plans)
    texts, tokens, signs = outputs.result()
    known_prompts, unread = read_prompts.result()
    lines = found_lines.result()
    places = pl.DataFrame({"output_sha256": list(texts), "output": range(len(texts))}, _PLACES)
    rows = rows.join(places, on="output_sha256", how="left", maintain_order="left")
    own = _genres(plans, folder.path, unread)
    steps = add_times(rows, roles).join(own, on=["workload", "task_id"], how="left", maintain_order="left")
    tasks = task_rows(steps).join(own, on=["workload", "task_id"], how="left", maintain_order="left")
    window = windows(tasks)
    return Records(
        plans=plans,
        steps=add_steady(steps, window, "due_ns"),
        tasks=add_steady(tasks, window, "start_ns"),
        cells=cells,
        deaths=deaths,
        texts=texts,
        tokens=tokens,
        signs=signs,
        prompts=known_prompts,
        unread=unread,
        status=folder.manifest.get("status"),
        round_lines=lines,
    )


def _outputs(folder: RunFolder) -> tuple[dict[str, str], dict[str, tuple[int, ...] | None], list[Signs]]:
    texts: dict[str, str] = {}
    tokens: dict[str, tuple[int, ...] | None] = {}
    for output in folder.outputs():
        texts[output.sha256] = output.text
        tokens[output.sha256] = output.token_ids or tokens.get(output.sha256)
    return texts, tokens, signs_of(texts.values())


def _genres(plans: tuple[WorkloadPlan, ...], folder: Path, unread: dict[str, str]) -> pl.DataFrame:
    """Return the genre of each task, from the manifest, or for runs that did not write it down from task files that are unchanged."""
    rows: list[tuple[str, str, str]] = []
    for plan in plans:
        genres = plan.genres
        if not genres and plan.name not in unread:
            try:
                path = Path(plan.path) if plan.path_from_run is None else folder / plan.path_from_run
                genres = {task.id: task.genre for task in load(path).tasks}
            except WorkloadError:  # gone since the prompts were read
                continue
        rows += [(plan.name, task, genre) for task, genre in genres.items()]
    return pl.DataFrame(rows, schema=dict.fromkeys(("workload", "task_id", "genre"), pl.String), orient="row")
