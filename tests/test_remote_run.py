"""Whole runs on servers by address: acceptance by answer, by window or unknown, and equal to the servers' own counters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harness.records import CellRecord, SpecCounters, StepRecord
from harness.store import RunFolder
from tests.fake_server import FakeServer
from tests.fake_vllm import FakeVllm
from tests.test_experiment import measured, written


@asynccontextmanager
async def run(tmp_path: Path, *, concurrency: list[int], **drafted: Any) -> AsyncIterator[RunFolder]:
    """Yield the folder of a run with a baseline and a server that drafts three tokens a round, two of them accepted."""
    async with FakeServer(FakeVllm()) as plain, FakeServer(FakeVllm(draft=(3, 2), **drafted)) as other:
        arms = [
            {"name": "baseline", "method": "none", "base_url": plain.base_url},
            {"name": "drafted", "method": "eagle3", "base_url": other.base_url},
        ]
        path = written(tmp_path, {}, engine={"kind": "vllm"}, arms=arms, concurrency=concurrency)
        folder, stopped = await measured(path, tmp_path / "run")
        assert stopped is None
        yield folder


def drafted(folder: RunFolder, concurrency: int) -> tuple[list[CellRecord], list[StepRecord]]:
    """Return the cells of the drafting arm at a load, and their steps that were answered."""
    steps = [item for item in folder.steps() if item.cell.arm == "drafted" and item.cell.concurrency == concurrency]
    cells = [item for item in folder.cells() if item.cell.arm == "drafted" and item.cell.concurrency == concurrency]
    return cells, [item for item in steps if item.error_kind is None]


def growth(cell: CellRecord) -> SpecCounters:
    """Return what the server's own counters grew by in a cell."""
    assert cell.server_before is not None
    assert cell.server_after is not None
    return cell.server_after - cell.server_before


def total(steps: list[StepRecord]) -> SpecCounters:
    """Return the sum over steps, all of which tell; without positions, which this server's page does not tell."""
    told = [item.spec for item in steps]
    counts = SpecCounters(0, 0, 0)
    for spec in told:
        assert spec is not None
        counts += SpecCounters(spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens)
    return counts


async def test_answers_that_tell_their_rounds_add_up_to_the_servers_counters(tmp_path: Path) -> None:
    """Every step has its rounds; over a cell they are what the server counted, to the token."""
    async with run(tmp_path, concurrency=[1], per_request="detailed") as folder:
        cells, steps = drafted(folder, 1)
        assert {item.spec_source for item in steps} == {"round"}
        assert total(steps) == growth(cells[0]) + growth(cells[1])
        assert {item.foreign_requests for item in folder.cells()} == {0}
        assert folder.manifest["engine"]["probed"]["drafted"]["per_request_acceptance"]["value"] == "round"
        # four tokens are the prompt's own and a round of 1 + 2; eight are 1 + 3 + 3 + 1, the last round cut
        assert {(item.output_tokens, item.decode_passes) for item in steps} == {(4, 1), (8, 3)}


async def test_counters_around_single_steps_stand_in_where_answers_do_not_tell(tmp_path: Path) -> None:
    """One task at a time: each step has a window of its own; two at a time: nobody can tell whose tokens they were."""
    async with run(tmp_path, concurrency=[1, 2]) as folder:
        cells, steps = drafted(folder, 1)
        assert {item.spec_source for item in steps} == {"window"}
        assert total(steps) == growth(cells[0]) + growth(cells[1])
        _, together = drafted(folder, 2)
        assert {item.spec_source for item in together if item.phase == "counted"} == {None}


async def test_somebody_else_on_the_server_ends_all_attribution(tmp_path: Path) -> None:
    """A second request finishes beside each of ours: no step gets counts, and the cell says how many were not ours."""
    async with run(tmp_path, concurrency=[1], foreign=1) as folder:
        cells, steps = drafted(folder, 1)
        assert {item.spec for item in steps} == {None}
        assert [item.foreign_requests for item in cells] == [7, 7]  # a warm-up and three tasks of two steps
