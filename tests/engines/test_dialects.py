"""What each family's pages say, and what of them is left alone."""

from __future__ import annotations

import pytest

from harness.engines.base import ServerState
from harness.engines.dialect import Announced
from harness.engines.dialects import dialect
from harness.errors import EngineProtocolError
from harness.records import SpecCounters
from harness.workload import REMOTE_KINDS


def test_every_remote_kind_has_a_dialect_of_its_name() -> None:
    """The dispatch and the kinds of workload files are the same list."""
    assert [dialect(kind).name for kind in REMOTE_KINDS] == list(REMOTE_KINDS)


def test_vllm_adds_up_its_engines() -> None:
    """Two engines behind one address: 3 + 4 running, 1 waiting, and all that ended, however they did."""
    page = (
        'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4.0\n'
        'vllm:num_requests_waiting{engine="0"} 1.0\n'
        'vllm:request_success_total{finished_reason="stop"} 5.0\nvllm:request_success_total{finished_reason="abort"} 2.0\n'
    )
    assert dialect("vllm").state(page) == ServerState(8, 7)


def test_vllm_says_in_development_mode_what_it_drafts_with() -> None:
    """Of its whole configuration the drafter and a few sizes are kept: the rest holds environment and keys."""
    path = "/server_info?config_format=json"
    config = {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 3, "draft_load_config": {"token": "secret"}},
              "scheduler_config": {"max_num_seqs": 64}, "env": {"API_KEY": "secret"}}  # fmt: skip
    told = dialect("vllm").announced(path, {"vllm_config": config})
    assert told == Announced(None, {"method": "eagle3", "num_speculative_tokens": 3}, None, {"max_num_seqs": 64})
    assert dialect("vllm").announced(path, {"vllm_config": {"speculative_config": None}}).speculative_config == {}
    assert dialect("vllm").announced(path, {"vllm_config": "VllmConfig(…)"}).speculative_config is None


def test_sglang_repeats_its_requests_for_ranks_and_priorities() -> None:
    """Two replicas with 4 and 1 requests, each told by two ranks and for two priorities: five are running, two wait."""
    page = "".join(
        f'sglang:num_running_reqs{{dp_rank="{replica}",tp_rank="{rank}",priority="{priority}"}} {count}\n'
        for replica, count in ((0, 4), (1, 1))
        for rank in (0, 1)
        for priority in ("", "0")
    )
    assert dialect("sglang").state(page + "sglang:num_queue_reqs 2\nsglang:num_requests_total 9\n") == ServerState(7, 9)


def test_trtllm_counts_rounds_at_the_first_place() -> None:
    """Five rounds drafted for the first place, three of them for the second; accepted were four and one."""
    page = "".join(
        f'trtllm_spec_decode_{what}_tokens_total{{token_position="{place}"}} {count}.0\n'
        for what, place, count in (("drafted", 0, 5), ("drafted", 1, 3), ("accepted", 0, 4), ("accepted", 1, 1))
    )
    assert dialect("trtllm").counters(page) == SpecCounters(5, 8, 5, (4, 1))


def test_trtllm_counters_without_places_tell_no_rounds() -> None:
    """Where all tokens stand at place 0 they may be those of all places, so rounds are unknown."""
    page = 'trtllm_spec_decode_drafted_tokens_total{token_position="0"} 8.0\n'
    assert dialect("trtllm").counters(page) == SpecCounters(None, 8, 0, None)
    with pytest.raises(EngineProtocolError, match="token_position 'all'; expected a whole number"):
        dialect("trtllm").counters('trtllm_spec_decode_drafted_tokens_total{token_position="all"} 8.0\n')


def test_trtllm_counters_of_iterations_are_not_read() -> None:
    """They skip iterations, so a request's growth would be too small."""
    page = "trtllm_spec_decode_num_draft_tokens_total 8.0\ntrtllm_spec_decode_num_accepted_tokens_total 3.0\n"
    assert dialect("trtllm").counters(page) is None


def test_trtllm_tells_its_drafter_on_the_metrics_page() -> None:
    """The labels are its settings; a page with a configuration but none of a drafter is that of a server without one."""
    model = 'trtllm_model_config_info{model_name="m",dtype="bfloat16"} 1.0\n'
    drafter = 'trtllm_speculative_config_info{model_name="m",spec_enabled="true",spec_method="Eagle3",spec_num_tokens="3"} 1.0\n'
    made = dialect("trtllm")
    told = made.announced_on_page(model + drafter)
    assert told == Announced(speculative_config={"method": "Eagle3", "num_tokens": 3}, settings={"dtype": "bfloat16"})
    assert made.announced_on_page(model).speculative_config == {}
    assert made.announced_on_page("").speculative_config is None
