"""Measure at start-up what the target's forwards and the drafters' rounds cost, on the machine that will run them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import torch

from drafters.base import Commit, Drafter, DraftRequest
from drafters.engine.costs import CostModel
from drafters.engine.target import DecoderModel, Span

__all__ = ["measure_costs"]

Cell = TypeVar("Cell", bound=Hashable)

CONTEXT = 64  # tokens before each sequence's rows
LONG_CONTEXT = 1024  # where the cost of context is taken from
MOST_BATCH = 64  # larger batches are extrapolated
MOST_ROWS = 64  # in one forward, but for those of one and two rows a sequence; more are extrapolated
MOST_PASSES = 5  # over all cells; the least time counts, since whatever disturbs makes it longer
PERIOD = 7  # of the made-up text: it repeats, so that lookup finds something
SEED = 1  # of the made-up tokens


def measure_costs(
    target: DecoderModel,
    drafters: Mapping[str, Drafter],
    max_batch: int = 16,
    budget_s: float = 5.0,
    progress: Callable[[str], None] | None = None,
) -> CostModel:
    """Time forwards and drafts for up to ``max_batch`` sequences, in about ``budget_s`` seconds.

    The drafters share half of the time at most, the target has the rest; the smallest cells of each are measured however
    long they take. Everything runs on scratch memory: the engine's cache and what it keeps for reuse are not touched, and
    the drafters have forgotten the made-up sequences afterwards. ``progress`` is told what is being measured.
    """
    tell = progress or (lambda text: None)
    longest = max((drafter.max_nodes for drafter in drafters.values()), default=0)
    batches = _doubling(1, min(max_batch, MOST_BATCH))
    end = time.monotonic() + budget_s
    with torch.inference_mode():
        drafts: dict[str, dict[tuple[int, int], float]] = {}
        for name, drafter in drafters.items():
            tell(f"measuring drafter {name!r}")
            drafts[name] = _drafts(target, drafter, batches, budget_s / 2 / len(drafters))
        tell("measuring the target's forward")
        left = max(0.0, end - time.monotonic())
        forward, context_ns, row_context_ns, context = _forwards(target, batches, longest + 1, left)
    return CostModel(forward, drafts, context_ns, row_context_ns, context)


def _forwards(
    target: DecoderModel, batches: Sequence[int], most_rows: int, budget_s: float
) -> tuple[dict[tuple[int, int], float], float, float, int]:
    """The table, ns per further token of context with one row, what a further row adds to that, and the context."""
    most_rows = min(max(2, most_rows), target.max_positions // 2)
    context = max(0, min(CONTEXT, target.max_positions - most_rows))
    far = max(context, min(LONG_CONTEXT, target.max_positions - most_rows))
    rows = sorted({1, *(each + 1 for each in _doubling(1, most_rows - 1))})
    cells = [(b, r, context) for b in batches for r in rows if r <= 2 or b * r <= MOST_ROWS]
    cells.sort(key=lambda cell: (cell[0] * cell[1], cell))
    needed = [(1, 1, context), (1, 2, context), (1, 1, far), (1, rows[-1], context), (1, rows[-1], far)]
    needed = list(dict.fromkeys(needed))
    cells = [cell for cell in cells if cell not in needed]
    cache = target.new_cache(max(batch * (past + each) for batch, each, past in [*needed, *cells]))
    made = _tokens(target, max(batches), rows[-1])

    def once(cell: tuple[int, int, int]) -> int:
        batch, each, past = cell
        spans = [Span(index * (past + each), past, made[index][:each], each) for index in range(batch)]
        return _timed(target, lambda: target.forward(spans, cache))

    end = time.monotonic() + budget_s
    # Slopes are differences, so their ends are measured best.
    times = _least(needed, once, budget_s / 3, len(needed))
    times |= _least(cells, once, end - time.monotonic(), 0)
    short, long = (1, 1, context), (1, 1, far)
    slope = max(0, times[long] - times[short]) / max(1, far - context)
    short, long = (1, rows[-1], context), (1, rows[-1], far)
    steep = max(0, times[long] - times[short]) / max(1, far - context)
    table = {(batch, each): float(ns) for (batch, each, past), ns in times.items() if past == context}
    return table, slope, max(0.0, steep - slope) / max(1, rows[-1] - 1), context


def _drafts(
    target: DecoderModel, drafter: Drafter, batches: Sequence[int], budget_s: float
) -> dict[tuple[int, int], float]:
    lengths = [0, *_doubling(1, drafter.max_nodes)]
    end = time.monotonic() + budget_s
    table: dict[tuple[int, int], float] = {}
    for number, batch in enumerate(batches):
        left = end - time.monotonic()
        if left <= 0 and table:
            break
        text = _Text(target, drafter, batch, MOST_PASSES * sum(length + 1 for length in lengths))
        try:
            needed = len(lengths) if number == 0 else 0
            times = _least(lengths, text.round, left / (len(batches) - number), needed)
        finally:
            text.release()
        # A drafter with memory for fewer sequences gives some of them nothing: that says nothing of a draft's cost.
        table.update({(batch, k): float(ns) for k, ns in times.items() if k not in text.empty or number == 0})
    return table


class _Text:
    """Made-up sequences that a drafter follows: texts with a period, of which some of each draft is accepted."""

    def __init__(self, target: DecoderModel, drafter: Drafter, batch: int, tokens: int) -> None:
        self.empty: set[int] = set()
        self._target = target
        self._drafter = drafter
        self._ids = [-1 - index for index in range(batch)]  # the engine's are not negative
        self._periods = _tokens(target, batch, min(PERIOD, target.vocab_size))
        # Every pass and the warm-up of the first, with room to spare.
        self._limit = min(target.max_positions, CONTEXT + 2 * tokens)
        self._start = min(CONTEXT, self._limit // 2)
        self._begin()

    def release(self) -> None:
        """End the sequences."""
        for sequence_id in self._ids:
            self._drafter.release(sequence_id)

    def round(self, length: int) -> int:
        """Nanoseconds of one draft of ``length`` tokens each and of the commit that follows; 0 drafts nothing."""
        if self._length + length + 1 > self._limit:
            self.release()
            self._begin()
        texts = [self._made(index, 0, self._length) for index in range(len(self._ids))]

        def both() -> None:
            if length:
                drafts = self._drafter.propose(
                    [DraftRequest(each, tokens, length) for each, tokens in zip(self._ids, texts, strict=True)]
                )
                if not all(len(draft) for draft in drafts):
                    self.empty.add(length)
            self._commit(length // 2 + 1, length // 2 + 1)

        return _timed(self._target, both)

    def _begin(self) -> None:
        for sequence_id in self._ids:
            self._drafter.open(sequence_id, self._limit)
        self._length = 0
        # The first commit has a token more than features.
        self._commit(self._start, self._start - 1)

    def _commit(self, tokens: int, features: int) -> None:
        layers, hidden = len(self._drafter.feature_layers), self._target.hidden_size
        shape = (features, layers, hidden)
        states = torch.zeros(shape, dtype=self._target.dtype, device=self._target.device) if layers else None
        start, end = self._length, self._length + tokens
        self._drafter.commit(
            [Commit(each, start, tuple(self._made(index, start, end)), states) for index, each in enumerate(self._ids)]
        )
        self._length = end

    def _made(self, index: int, start: int, end: int) -> list[int]:
        period = self._periods[index]
        return [period[place % len(period)] for place in range(start, end)]


def _tokens(target: DecoderModel, sequences: int, length: int) -> list[list[int]]:
    """Random token ids for each of ``sequences``, the same at every start: few or equal ones would wake only the experts
    that they are routed to, in a model that has some."""
    generator = torch.Generator().manual_seed(SEED)
    made: list[list[int]] = torch.randint(target.vocab_size, (sequences, length), generator=generator).tolist()
    return made


def _least(cells: Sequence[Cell], once: Callable[[Cell], int], budget_s: float, needed: int) -> dict[Cell, int]:
    """The least time of each cell over several passes; the first ``needed`` are measured even if time is out."""
    end = time.monotonic() + budget_s
    times: dict[Cell, int] = {}
    for number in range(MOST_PASSES):
        for index, cell in enumerate(cells):
            if time.monotonic() >= end and (number > 0 or index >= needed):
                return times
            if number == 0:
                once(cell)  # first touch of memory and of kernels
            ns = once(cell)
            times[cell] = min(ns, times.get(cell, ns))
    return times


def _timed(target: DecoderModel, work: Callable[[], object]) -> int:
    _wait(target)
    start = time.perf_counter_ns()
    work()
    _wait(target)
    return time.perf_counter_ns() - start


def _wait(target: DecoderModel) -> None:
    if target.device.type == "cuda":
        torch.cuda.synchronize(target.device)


def _doubling(first: int, last: int) -> list[int]:
    """``first``, twice that, and so on, and ``last``."""
    made = []
    while first < last:
        made.append(first)
        first *= 2
    return [*made, last] if last > 0 else []
