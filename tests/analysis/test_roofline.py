"""Limits of hardware that is not at hand, and its catalogue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.analysis.costmodel import CostModel, DraftCost, Forward
from harness.analysis.roofline import Roofline, Target, saturation_tokens, single_tokens_per_s
from harness.errors import UsageError
from harness.hardware import Hardware, catalogue, choose

KNOWN = catalogue()
# measured on some machine: a plain forward of 10 ms, a drafter of 1 ms a position
MEASURED = CostModel("rounds", Forward(10, (1, 64), (0,), 0, 0), {"a": DraftCost(0, 0, 1, 0)}, 0, 0, 1, 0)
THREE = np.array([0.0, 0.0, 0.0, 1.0])


def roofline(name: str, target: Target, method: str = "eagle3") -> Roofline:
    """Return one of the catalogue's rows under a model."""
    return Roofline(KNOWN[name], target, MEASURED, {"a": method})


def test_16_gb_of_weights_at_273_gb_s_give_about_17_tokens_a_second() -> None:
    """The reference row: 273 / 16."""
    found = roofline("dgx-spark", Target(16e9, 8e9, 0))
    assert single_tokens_per_s(found.hardware, found.target) == pytest.approx(17.06, abs=0.01)
    forward_ms, rest_ms = found.plain_parts_ms(1, 0)
    assert 1000 / forward_ms == pytest.approx(17.06, abs=0.01)
    assert rest_ms == 0


@pytest.mark.parametrize(
    ("name", "bytes_per_weight", "tokens", "batches"),
    [
        ("h100", 2, 295, (74, 37, 18)),
        ("h200", 2, 206, (52, 26, 13)),
        ("h200", 0.5, 52, (13, 6, 3)),
        ("a100-80gb", 2, 153, (38, 19, 10)),
    ],
)
def test_saturation_is_that_of_published_tables(
    name: str, bytes_per_weight: float, tokens: int, batches: tuple[int, ...]
) -> None:
    """Bytes a weight × FLOP/s ÷ 2 ÷ bandwidth, and over 4, 8 and 16 tokens a request; quantised weights saturate four times as early."""
    found = saturation_tokens(KNOWN[name], Target(8e9 * bytes_per_weight, 8e9, 0))
    assert round(found) == tokens
    assert [round(found / (k + 1)) for k in (3, 7, 15)] == pytest.approx(batches, abs=1)


def test_verification_costs_nothing_more_until_products_take_longer_than_reading() -> None:
    """H100 with 16 GB: 4.78 ms up to 295 tokens, twice that at 590."""
    found = roofline("h100", Target(16e9, 8e9, 0))
    at = found.forward_ms(np.array([1.0, 295.0, 590.4]), 0)
    assert at == pytest.approx([4.776, 4.776, 9.552], rel=0.002)


def test_context_is_read_like_weights() -> None:
    """16 GB of K/V beside 16 GB of weights take twice as long."""
    found = roofline("h100", Target(16e9, 8e9, 160_000))
    assert found.plain_parts_ms(10, 10_000)[0] == pytest.approx(2 * found.plain_parts_ms(10, 0)[0])


def test_a_drafter_keeps_its_share_and_a_look_up_its_time() -> None:
    """3 ms of 10 ms measured are 30 % of a forward of 4.776 ms, or 3 ms still."""
    assert roofline("h100", Target(16e9, 8e9, 0)).parts_ms("a", 1, 0, THREE)[0] == pytest.approx(0.3 * 4.776, rel=0.001)
    assert roofline("h100", Target(16e9, 8e9, 0), "prompt_lookup").parts_ms("a", 1, 0, THREE)[0] == pytest.approx(3)


def test_what_does_not_fit_into_the_memory_is_not_predicted() -> None:
    """80 GB hold 16 GB of weights and 64 GB of context."""
    found = roofline("h100", Target(16e9, 8e9, 100_000))
    assert found.fits(64, 10_000)
    assert not found.fits(65, 10_000)


def test_own_rows_join_the_catalogue_and_replace_those_of_their_name(tmp_path: Path) -> None:
    """A house's own server beside the known ones."""
    file = tmp_path / "own.yaml"
    file.write_text(
        "- {name: house, title: Our server, bandwidth_gb_s: 500, dense_tflops: 100, memory_gb: 64, source: measured}\n"
        "- {name: h100, title: H100 PCIe, bandwidth_gb_s: 2000, dense_tflops: 756, memory_gb: 80, source: data sheet}\n"
    )
    known = catalogue(file)
    assert known["house"].bandwidth_gb_s == 500
    assert known["h100"].title == "H100 PCIe"
    assert len(known) == len(KNOWN) + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "- {name: x, title: X, bandwidth_gb_s: -1, dense_tflops: 1, memory_gb: 1, source: s}",
            r"own.yaml:1: bandwidth_gb_s is -1",
        ),
        ("\n- {name: x, title: X, dense_tflops: 1, memory_gb: 1, source: s}", r"own.yaml:2: bandwidth_gb_s is missing"),
        ("- {name: x, speed: 3}", r"own.yaml:1: unknown key 'speed'"),
        ("name: x", "own.yaml:1: .*list"),
        ("- [", "own.yaml:1: no YAML"),
    ],
)
def test_a_wrong_row_is_named_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    """What was given and what a row has."""
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        catalogue(file)


def test_unknown_hardware_is_refused_with_the_nearest_name() -> None:
    """And how to add a row."""
    with pytest.raises(UsageError, match=r"did you mean 'h200'.*--hardware-file"):
        choose(["h2000"], KNOWN)


def test_every_row_of_the_catalogue_names_its_source() -> None:
    """A figure without a source is nobody's."""
    assert all(isinstance(row, Hardware) and len(row.source) > 20 for row in KNOWN.values())
