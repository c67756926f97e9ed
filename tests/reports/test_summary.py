"""The summary for programs and its published schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from harness.analysis.run import analyse
from reports import summary
from reports.files import write_all
from reports.wording import LANGUAGES
from tests.analysis.test_predicted import run_of
from tests.reports import sample

SCHEMA = Path(summary.__file__).parent / summary.SCHEMA_FILE


def test_the_published_schema_is_that_of_the_program() -> None:
    """``python -m reports.summary > reports/summary.schema.json`` was called after the last change."""
    assert SCHEMA.read_text(encoding="utf-8") == summary.schema()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("make", [sample.small, sample.with_failures, sample.one_cell, sample.empty])
def test_the_summary_of_any_run_fits_the_schema(tmp_path: Path, make: object, lang: str) -> None:
    """A good run, one with failures, one cell, none."""
    path = summary.write_summary(make(), tmp_path, lang)  # type: ignore[operator]
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_every_run_folder_gets_its_summary_with_the_hand_overs(tmp_path: Path) -> None:
    """What the report writes; the known engine's table for vLLM and accepted tokens for aiconfigurator are in it."""
    folder = run_of(tmp_path / "run")
    write_all(analyse(folder), folder.path, "en")
    found = json.loads((folder.path / "summary.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, json.loads(SCHEMA.read_text(encoding="utf-8")))
    (item,) = found["hand_overs"]
    assert item["vllm"]["num_speculative_tokens_per_batch_size"][0] == [1, 2, 3]
    assert item["aiconfigurator"] == {"nextn": 3, "nextn_accepted": 1.0}
    assert {row["source"] for row in found["predicted"]} == {"modelled"}
    assert found["break_even"][0]["source"] == "measured"
    assert found["costs"][0]["measured_ms"] > 0
