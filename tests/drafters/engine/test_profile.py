"""What is measured at start-up, and that it leaves no trace. Nothing here looks at how long anything took."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drafters.base import Draft, Drafter, DraftRequest
from drafters.draft_model import DraftModel
from drafters.eagle3 import Eagle3
from drafters.engine.kv_cache import KvCache
from drafters.engine.profile import measure_costs
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request
from drafters.engine.target import DecoderModel, Output, Span
from drafters.prompt_lookup import PromptLookup
from drafters.specs import Eagle3Spec
from tests.drafters.models import VOCAB, greedy, lean, prompt, reference


class Watched(PromptLookup):
    """Knows which sequences are open, and what was asked of it."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__(num_tokens)
        self.open_now: set[int] = set()
        self.asked: set[tuple[int, int]] = set()
        self.found: set[int] = set()

    def open(self, sequence_id: int, max_length: int) -> None:
        """Note it."""
        self.open_now.add(sequence_id)
        super().open(sequence_id, max_length)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Note what was asked and how much was found."""
        self.asked.add((len(requests), requests[0].num_tokens))
        drafts = super().propose(requests)
        self.found |= {len(draft) for draft in drafts}
        return drafts

    def release(self, sequence_id: int) -> None:
        """Note it; releasing twice is an error here."""
        self.open_now.remove(sequence_id)
        super().release(sequence_id)


def test_everything_in_reach_is_measured_and_forgotten() -> None:
    """Up to three sequences and lengths of up to five: each is tried, lookup finds what it is asked for, and nobody stays
    open."""
    drafter, told = Watched(5), list[str]()
    costs = measure_costs(lean("llama"), {"it": drafter}, max_batch=3, budget_s=60, progress=told.append)
    assert drafter.asked == {(batch, length) for batch in (1, 2, 3) for length in (1, 2, 4, 5)}
    assert drafter.found == {1, 2, 4, 5}
    assert not drafter.open_now
    rows = [(entry["batch"], entry["rows_per_sequence"]) for entry in costs.as_table()]
    assert rows == [(batch, each) for batch in (1, 2, 3) for each in (1, 2, 3, 5, 6)]
    assert 0 < costs.forward_ns(1, 1) <= costs.forward_ns(1, 6) <= costs.forward_ns(3, 18)
    assert any("'it'" in text for text in told)
    assert any("target" in text for text in told)


def test_drafters_with_memory_and_features_can_be_measured() -> None:
    """A draft model with room for few of the sequences, and heads that read the target's hidden states."""
    target = lean("llama")
    drafters: dict[str, Drafter] = {
        "model": DraftModel(lean("llama", seed=1), VOCAB, 400, 3),
        "eagle3": Eagle3.from_spec(Eagle3Spec(num_tokens=3, draft_vocab_size=40), target, 400),
    }
    costs = measure_costs(target, drafters, max_batch=4, budget_s=60)
    for name in drafters:
        assert 0 < costs.drafts_ns(name, [1]) <= costs.drafts_ns(name, [3])


def test_the_smallest_cells_are_measured_even_without_time() -> None:
    """A budget of nothing still gives a table to start from."""
    costs = measure_costs(lean("llama"), {"it": PromptLookup(4)}, budget_s=0.0)
    assert {entry["batch"] for entry in costs.as_table()} == {1}
    assert costs.forward_ns(1, 5) > 0
    assert costs.draft_ns("it", 1, 4) > 0


def test_without_drafters_the_target_alone_is_measured() -> None:
    """Rows of one and two, for who wants to know."""
    costs = measure_costs(lean("llama"), {}, max_batch=2, budget_s=60)
    assert costs.drafters == ()
    assert [(e["batch"], e["rows_per_sequence"]) for e in costs.as_table()] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_what_is_measured_is_no_single_text() -> None:
    """Neighbours in a forward are fed different tokens, all in all most of the vocabulary; neighbours in a draft too; and
    another start feeds the same."""

    class Listening(DecoderModel):
        def __init__(self) -> None:
            super().__init__(reference("llama"))
            self.fed: dict[tuple[int, int], tuple[tuple[int, ...], ...]] = {}

        def forward(self, spans: Sequence[Span], cache: KvCache, feature_layers: Sequence[int] = ()) -> Output:
            self.fed[len(spans), len(spans[0].token_ids)] = tuple(tuple(span.token_ids) for span in spans)
            return super().forward(spans, cache, feature_layers)

    class Reading(Watched):
        texts: tuple[tuple[int, ...], ...] = ()

        def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
            self.texts = tuple(tuple(request.token_ids[:7]) for request in requests)
            return super().propose(requests)

    targets, drafters = [Listening(), Listening()], [Reading(7), Reading(7)]
    for target, drafter in zip(targets, drafters, strict=True):
        measure_costs(target, {"it": drafter}, max_batch=8, budget_s=60)
    assert targets[0].fed == targets[1].fed
    assert drafters[0].texts == drafters[1].texts
    texts = targets[0].fed[8, 8]
    assert len(set(texts)) == 8
    assert len({token for text in texts for token in text}) > VOCAB // 2
    assert len(set(drafters[0].texts)) == 8


@pytest.mark.parametrize("name", ["lookup", "model"])
def test_measuring_between_requests_changes_nothing(name: str) -> None:
    """What an engine keeps for reuse is still there afterwards, and its texts are the same."""
    drafters: dict[str, Drafter] = {
        "lookup": PromptLookup(4),
        "model": DraftModel(lean("llama", seed=1), VOCAB, 400, 4),
    }
    runner = Runner(lean("llama"), 300, drafters)
    texts = [prompt(5, 20), prompt(5, 20) + prompt(6, 5)]
    for number, text in enumerate(texts):
        sequence = runner.add(Request(tuple(text), 10, drafter=name))
        while runner.busy:
            runner.step()
        assert sequence.output == greedy("llama", text, 10)
        assert (sequence.cached_tokens > 0) == (number > 0)
        measure_costs(lean("llama"), drafters, max_batch=2, budget_s=0.2)
