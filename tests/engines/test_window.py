"""Counters around a request are its own only if it was alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.engines.base import ServerState, StreamFacts
from harness.engines.dialects import dialect
from harness.engines.window import ExclusiveWindow, Snapshot, attributed, foreign_requests
from harness.errors import EngineUnreachable
from harness.records import SpecCounters

BEFORE = Snapshot(SpecCounters(10, 40, 20, (12, 8)), ServerState(busy=0, finished=3))
AFTER = Snapshot(SpecCounters(14, 56, 27, (15, 12)), ServerState(busy=0, finished=4))


def test_the_growth_belongs_to_the_one_request_that_finished() -> None:
    """Four rounds drafted 16 tokens, seven were accepted."""
    assert attributed(BEFORE, AFTER) == SpecCounters(4, 16, 7, (3, 4))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BEFORE, replace(AFTER, state=ServerState(0, 5))),
        (BEFORE, replace(AFTER, state=ServerState(0, 3))),
        (BEFORE, replace(AFTER, state=ServerState(1, 4))),
        (replace(BEFORE, state=ServerState(2, 3)), AFTER),
        (replace(BEFORE, counters=None), AFTER),
        (AFTER, BEFORE),
        (replace(BEFORE, state=ServerState()), replace(AFTER, state=ServerState())),
    ],
    ids=[
        "two finished",
        "none finished",
        "busy after",
        "busy before",
        "no counters",
        "restarted",
        "page tells nothing",
    ],
)
def test_nothing_is_attributed_unless_the_request_is_shown_to_have_been_alone(
    before: Snapshot, after: Snapshot
) -> None:
    """Other requests, a server that started again, or a page that does not tell: unknown."""
    assert attributed(before, after) is None


def test_a_page_that_tells_only_who_is_there_suffices() -> None:
    """LMDeploy's older pages count no finished requests: idle before and after is what there is."""
    quiet = ServerState(busy=0)
    assert attributed(replace(BEFORE, state=quiet), replace(AFTER, state=quiet)) is not None


def page(drafts: int, finished: int, running: int = 0) -> str:
    """A metrics page of vLLM."""
    names = {"drafts": drafts, "draft_tokens": 4 * drafts, "accepted_tokens": 2 * drafts}
    counts = "".join(f"vllm:spec_decode_num_{name}_total {count}\n" for name, count in names.items())
    return f"{counts}vllm:num_requests_running {running}\nvllm:request_success_total {finished}\n"


async def test_a_window_waits_until_the_server_has_written_the_request_down() -> None:
    """The page lags: twice it still has the request running, then it has its five rounds; that page begins the next window."""
    pages = [page(1, 1), page(3, 1, running=1), page(6, 2, running=1), page(6, 2), page(9, 3)]

    async def fetch() -> str:
        return pages.pop(0)

    window = ExclusiveWindow(fetch, dialect("vllm"))
    await window.open()
    facts = await window.close(StreamFacts(output_tokens=16))
    assert (facts.output_tokens, facts.spec, facts.spec_source) == (16, SpecCounters(5, 20, 10, None), "window")
    await window.open()
    assert (await window.close(StreamFacts())).spec == SpecCounters(3, 12, 6, None)
    assert not pages


async def test_what_an_answer_tells_itself_stands() -> None:
    """A window never replaces it, and a server that is gone attributes nothing."""
    told = StreamFacts(spec=SpecCounters(1, 4, 2), spec_source="request")
    pages = iter([page(1, 1), page(2, 2)])

    async def fetch() -> str:
        try:
            return next(pages)
        except StopIteration:
            raise EngineUnreachable("gone") from None

    window = ExclusiveWindow(fetch, dialect("vllm"))
    await window.open()
    assert await window.close(told) == told
    assert (await window.close(StreamFacts())).spec is None


@pytest.mark.parametrize(
    ("before", "after", "own", "found"),
    [
        (ServerState(0, 10), ServerState(0, 14), 4, 0),
        (ServerState(0, 10), ServerState(0, 17), 4, 3),
        (ServerState(2, 10), ServerState(0, 14), 4, 2),
        (ServerState(0, 10), ServerState(0, 12), 4, 0),
        (ServerState(1, None), ServerState(0, None), 4, 1),
        (ServerState(None, None), ServerState(None, None), 4, None),
    ],
    ids=["ours alone", "three more", "two before", "two of ours given up", "no count", "unknown"],
)
def test_requests_of_others_show(before: ServerState, after: ServerState, own: int, found: int | None) -> None:
    """More finished than we sent, or some were there before we sent any."""
    assert foreign_requests(before, after, own) == found
