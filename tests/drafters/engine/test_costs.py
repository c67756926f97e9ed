"""The table of costs: what it says between its entries, and how rounds correct it. Nothing here needs torch."""

from __future__ import annotations

import json

import pytest

from drafters.engine.costs import CostModel
from drafters.engine.records import RoundRecord


def record(t_ns: int, batch: int, drafted: int, forward_ns: int, prefill: int = 0, host_ns: int = 0) -> RoundRecord:
    """A round of which only the forward, and perhaps the host, took time."""
    return RoundRecord(0, t_ns, batch, prefill, 0, drafted, 0, 0, forward_ns, forward_ns, host_ns)


def table() -> CostModel:
    """One sequence: 10 for one row, 14 for three. Two: 12 for one row each, 20 for three each."""
    return CostModel({(1, 1): 10, (1, 3): 14, (2, 1): 12, (2, 3): 20})


def test_between_rows_it_is_linear_and_beyond_them_the_slope_holds() -> None:
    """10 and 14 make 12 in the middle and 18 two rows on; expected rows need not be whole."""
    assert [table().forward_ns(1, rows) for rows in (1, 2, 2.5, 3, 5)] == [10, 12, 13, 14, 18]


def test_rows_of_a_batch_are_counted_together() -> None:
    """Two sequences with four rows have two each: between 12 and 20."""
    assert table().forward_ns(2, 4) == 16


def test_a_batch_between_two_is_between_them() -> None:
    """Two rows each cost 12 for one sequence and 24 for three, so 18 for two."""
    costs = CostModel({(1, 2): 12, (3, 2): 24})
    assert costs.forward_ns(2, 4) == 18


def test_a_batch_beyond_the_table_goes_by_its_rows() -> None:
    """Four sequences with one row each cost what two with two rows each do."""
    assert table().forward_ns(4, 4) == table().forward_ns(2, 4) == 16


def test_more_never_costs_less() -> None:
    """A disturbed 30 before 14 was really 14 at most; and 11 for two sequences shows that one does not take 13."""
    costs = CostModel({(1, 1): 10, (1, 2): 30, (1, 3): 14})
    assert [costs.forward_ns(1, rows) for rows in (1, 2, 3)] == [10, 14, 14]
    assert CostModel({(1, 1): 13, (2, 1): 11}).forward_ns(1, 1) == 11


def test_context_costs_by_the_token_and_more_for_more_rows() -> None:
    """Measured with 100 tokens before it: 50 more at 2 each, and with three rows at 2 + 2 · 1 each."""
    costs = CostModel({(1, 1): 1000, (1, 3): 1000}, context_ns=2, row_context_ns=1, context_tokens=100)
    assert costs.forward_ns(1, 1, 100) == costs.forward_ns(1, 1) == 1000
    assert costs.forward_ns(1, 1, 150) == 1100
    assert costs.forward_ns(1, 3, 150) == 1200


def test_drafts_cost_position_by_position() -> None:
    """Lengths 2 and 1: 2 to take note, 6 for the first position of both, 4 for the second of one."""
    drafts = {(1, 0): 1, (1, 1): 5, (1, 2): 9, (2, 0): 2, (2, 1): 8, (2, 2): 14}
    costs = CostModel({(1, 1): 10}, {"it": drafts})
    assert costs.drafts_ns("it", [2, 1]) == 2 + 6 + 4
    assert costs.drafts_ns("it", [0, 0]) == 2
    assert costs.drafts_ns("it", []) == 0


def test_a_slower_machine_is_noticed_everywhere() -> None:
    """Rounds of one row take 13 instead of 10: soon 13 are expected, and most of it for three rows too."""
    costs = table()
    for t_ns in range(100):
        costs.observe(record(t_ns, 1, 0, 13))
    assert costs.forward_ns(1, 1) == pytest.approx(13, rel=0.02)
    assert 1.15 * 14 < costs.forward_ns(1, 3) <= 1.3 * 14


def test_rows_that_cost_more_than_measured_are_told_apart() -> None:
    """One row is as predicted, four take twice as long: both are expected so after some rounds of each."""
    costs = CostModel({(1, 1): 100, (1, 4): 120})
    for t_ns in range(0, 400, 2):
        costs.observe(record(t_ns, 1, 0, 100))
        costs.observe(record(t_ns + 1, 1, 3, 240))
    assert costs.forward_ns(1, 1) == pytest.approx(100, rel=0.1)
    assert costs.forward_ns(1, 4) == pytest.approx(240, rel=0.1)


def test_one_disturbed_round_changes_little() -> None:
    """A round of a hundred times the usual length moves what is expected by less than a tenth."""
    costs = CostModel({(1, 1): 100})
    costs.observe(record(1, 1, 0, 10_000))
    assert 100 < costs.forward_ns(1, 1) < 110


def test_a_round_told_twice_counts_once() -> None:
    """Two policies share the table and both pass on the same round."""
    once, twice = CostModel({(1, 1): 100}), CostModel({(1, 1): 100})
    once.observe(record(1, 1, 0, 140))
    for _ in range(2):
        twice.observe(record(1, 1, 0, 140))
    assert twice.forward_ns(1, 1) == once.forward_ns(1, 1) > 100


def test_rounds_that_feed_prompts_say_nothing() -> None:
    """A long forward because of a prompt is not a slow one; neither is one in which nobody decodes."""
    costs = CostModel({(1, 1): 100})
    costs.observe(record(1, 1, 0, 900, prefill=64))
    costs.observe(record(2, 0, 0, 900, prefill=64))
    assert costs.forward_ns(1, 1) == 100


def test_a_drafter_that_got_slower_is_noticed() -> None:
    """Drafts of two take 12 instead of 9."""
    costs = CostModel({(1, 1): 10}, {"it": {(1, 0): 1, (1, 2): 9}})
    for _ in range(60):
        costs.observe_draft("it", [2], 12)
    assert costs.draft_ns("it", 1, 2) == pytest.approx(12, rel=0.02)
    costs.observe_draft("it", [0], 999)  # nothing was drafted
    assert costs.draft_ns("it", 1, 2) == pytest.approx(12, rel=0.02)


def test_what_the_host_takes_is_remembered_by_batch() -> None:
    """3 with one sequence and 8 with six; a batch of five is nearer to six. Before any round it is taken for nothing."""
    costs = CostModel({(1, 1): 10})
    assert costs.host_ns(1) == 0
    costs.observe(record(1, 1, 0, 10, host_ns=3))
    costs.observe(record(2, 6, 0, 10, host_ns=8))
    assert [costs.host_ns(batch) for batch in (1, 5, 9)] == [3, 8, 8]


def test_the_tables_can_be_shown() -> None:
    """Every entry with what was measured and what is expected now, as JSON."""
    costs = CostModel({(1, 1): 2e6, (1, 3): 4e6}, {"it": {(1, 0): 0, (1, 1): 1e6}}, context_ns=5, context_tokens=64)
    told = json.loads(json.dumps(costs.to_json()))
    assert told["forward"] == costs.as_table()
    assert [(row["batch"], row["rows_per_sequence"], row["measured_ms"]) for row in told["forward"]] == [
        (1, 1, 2.0),
        (1, 3, 4.0),
    ]
    assert [(row["tokens"], row["measured_ms"]) for row in told["drafts"]["it"]] == [(0, 0.0), (1, 1.0)]
    assert (told["ns_per_context_token"], told["context_tokens_per_sequence"]) == (5, 64)


@pytest.mark.parametrize("grid", [{}, {(0, 1): 5.0}, {(1, -1): 5.0}, {(1, 1): -5.0}])
def test_an_impossible_table_is_refused(grid: dict[tuple[int, int], float]) -> None:
    """Empty, no sequence, fewer than no rows, less than no time."""
    with pytest.raises(ValueError, match="allowed"):
        CostModel(grid)


def test_after_a_reset_the_table_is_as_it_was_measured() -> None:
    """Slower forwards, drafts and hosts are forgotten; what comes after is learnt again."""
    costs = CostModel({(1, 1): 100, (1, 3): 140}, {"it": {(1, 0): 1, (1, 2): 9}})
    start = costs.to_json()
    for t_ns in range(50):
        costs.observe(record(t_ns, 1, 0, 200, host_ns=30))
        costs.observe_draft("it", [2], 20)
    assert costs.forward_ns(1, 1) > 150
    costs.reset()
    assert costs.to_json() == start
    assert [costs.forward_ns(1, 1), costs.draft_ns("it", 1, 2), costs.host_ns(1)] == [100, 9, 0]
    costs.observe(record(50, 1, 0, 140))
    assert costs.forward_ns(1, 1) > 100
