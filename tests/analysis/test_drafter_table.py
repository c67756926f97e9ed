"""The table of drafters: arm by workload, language and genre."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness.analysis import cautions
from harness.analysis.frames import Finding, RunAnalysis
from harness.analysis.run import analyse
from tests.builders import BASELINE
from tests.comparing import THREE, TWO, run


@pytest.fixture
def analysis(tmp_path: Path) -> RunAnalysis:
    """One arm with 3 tokens a round in Korean and 2 in English, twice as fast as the baseline."""
    return analyse(run(tmp_path / "run", {"d2": {"ko": THREE, "en": TWO}}, milliseconds={"d2": 500}, tasks=10))


def row(frame: pl.DataFrame, **keys: Any) -> dict[str, Any]:
    """Return the row with these keys, pooled over those that are not named."""
    wanted = {"workload": "office", **dict.fromkeys(("language", "genre", "concurrency")), **keys}
    found = frame.filter(pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in wanted.items()))
    assert found.height == 1
    return dict(found.row(0, named=True))


def test_each_language_and_genre_has_its_acceptance_length(analysis: RunAnalysis) -> None:
    """3 in Korean, 2 in English, 2.5 over both; five tasks a genre are enough for an interval."""
    assert row(analysis.drafters, language="ko")["acceptance_length"] == 3
    mail = row(analysis.drafters, language="en", genre="mail")
    assert (mail["acceptance_length"], mail["acceptance_length_low"], mail["acceptance_length_high"]) == (2, 2, 2)
    assert (mail["n_tasks"], mail["n_steps"], mail["num_drafts"]) == (5, 10, 100)
    assert row(analysis.drafters)["acceptance_length"] == 2.5


def test_tokens_per_pass_rest_on_all_passes(analysis: RunAnalysis) -> None:
    """In Korean 20 tokens were accepted in 20 passes: 2 a pass."""
    assert row(analysis.drafters, language="ko")["tokens_per_pass"] == 2


def test_speed_up_stands_at_one_concurrency(analysis: RunAnalysis) -> None:
    """Half the time: 2, for tasks where languages are pooled, for steps everywhere; pooled over loads there is none."""
    pooled, at_one = row(analysis.drafters, genre="mail"), row(analysis.drafters, genre="mail", concurrency=1)
    korean = row(analysis.drafters, language="ko", concurrency=1)
    assert (pooled["speed_up"], pooled["step_speed_up"]) == (None, None)
    assert (at_one["speed_up"], at_one["step_speed_up"]) == (2, 2)
    assert (korean["speed_up"], korean["step_speed_up"], korean["step_speed_up_low"]) == (None, 2, 2)


def test_survival_is_told_by_genre(analysis: RunAnalysis) -> None:
    """In Korean mail all ten rounds keep the first token, 6 the second and 4 the third."""
    wanted = {"workload": "office", "kind": None, "language": "ko", "genre": "mail"}
    found = analysis.survival.filter(
        pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in wanted.items())
    )
    assert found["survival"].to_list() == [1.0, 0.6, 0.4]


def test_a_figure_has_one_interval_wherever_it_stands(tmp_path: Path) -> None:
    """Acceptance and its table by language, speed-up and the table of drafters: the same limits."""
    arm = {"d2": {"ko": THREE, "en": TWO}}
    analysis = analyse(run(tmp_path / "run", arm, milliseconds={BASELINE: 900}))
    there = analysis.acceptance.filter(
        (pl.col("arm") == "d2") & pl.all_horizontal(pl.col("kind", "language", "concurrency").is_null())
    )
    here = row(analysis.drafters)
    ends = ("acceptance_length_low", "acceptance_length_high")
    assert [there[end][0] for end in ends] == [here[end] for end in ends]
    speed_up = analysis.speed_up.filter(pl.col("window") == "steady").row(0, named=True)
    at_one = row(analysis.drafters, concurrency=1)
    assert [speed_up[f"speed_up{end}"] for end in ("", "_low")] == [at_one[f"speed_up{end}"] for end in ("", "_low")]


def test_a_run_that_tells_no_genre_has_none(tmp_path: Path) -> None:
    """An older run whose task files are gone pools over genres, and nothing is made up."""
    analysis = analyse(run(tmp_path / "run", {"d2": {"ko": TWO, "en": TWO}}, genres={}))
    assert set(analysis.drafters["genre"].to_list()) == {None}
    for frame in (analysis.drafters, analysis.survival):
        keys = [
            name
            for name in ("workload", "arm", "kind", "language", "genre", "concurrency", "position")
            if name in frame.columns
        ]
        assert not frame.select(keys).is_duplicated().any()


def test_a_row_over_all_workloads_carries_no_caution_of_one_that_has_none_of_its_genre() -> None:
    """Korean mail in one workload, English incidents in the other, whose English is cut: nothing is cut of mail, nor of Korean."""
    keys = {"arm": "d2", "concurrency": None, "acceptance_length": 2.0}
    places = [("office", "ko", "mail"), ("coding", "en", "incident")]
    rows = []
    for workload, language, genre in places:
        for where, said, about in product((workload, None), (language, None), (genre, None)):
            rows.append({**keys, "workload": where, "language": said, "genre": about})
    schema = {"workload": pl.String, "language": pl.String, "genre": pl.String, "concurrency": pl.Int64}
    frame = pl.DataFrame(rows, schema_overrides=schema).unique(maintain_order=True)
    findings = [
        Finding("cut_by_max_tokens", "note", "coding", "d2", {}),
        Finding("repetitive_output", "invalid", "office", "d2", {"language": "ko"}),
    ]
    marked = cautions.add(frame, findings)

    def told(**wanted: str | None) -> str | None:
        own = row(marked, workload=None, **wanted)["cautions"]
        return None if own is None else str(own)

    assert told(genre="mail") == "repetitive_output"
    assert told(genre="incident") == "cut_by_max_tokens"
    assert told(language="en") == "cut_by_max_tokens"
    assert told() == "repetitive_output cut_by_max_tokens"
