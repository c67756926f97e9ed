"""Predictions and the language loss in words and tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from harness.analysis.frames import LANGUAGE_LOSS, LANGUAGE_LOSS_SCHEMA, Finding, RunAnalysis
from harness.analysis.run import analyse
from harness.cli import run
from reports import forecast, languages, predictions
from reports.wording import LANGUAGES, wording
from tests.analysis.test_predicted import run_of
from tests.builders import cell_key, run_folder, step


def loss_row(load: int | None = None, **values: object) -> dict[str, object]:
    """Return a row of the language loss: Korean 1.5, English 2.0, 0.4 to 0.6 lost."""
    plain = {
        "workload": None, "arm": "eagle", "language_group": "ko", "reference_group": "en", "concurrency": load, "n_tasks": 12,
        "n_tasks_reference": 16, "n_steps": 40, "n_kinds": 3, "acceptance_length": 1.5, "acceptance_length_reference": 2.0,
        "acceptance_length_loss": 0.5, "acceptance_length_loss_low": 0.4, "acceptance_length_loss_high": 0.6, "time_loss_share": 0.25,
        "time_loss_share_low": 0.2, "time_loss_share_high": 0.3,
    }  # fmt: skip
    timed = {} if load is None else {"decode_s": 8.0, "time_loss_s": 2.0, "win_back": 7.0}
    return dict.fromkeys(LANGUAGE_LOSS) | plain | timed | values


def said(*rows: dict[str, object], lang: str = "en") -> list[str]:
    """Return the sentences on some rows."""
    return list(languages.sentences(pl.DataFrame(list(rows), schema=dict(LANGUAGE_LOSS_SCHEMA)), wording(lang)))


def test_a_shown_loss_is_told_in_tokens_in_time_and_in_hours() -> None:
    """Of the loads the highest is told."""
    (sentence,) = said(loss_row(), loss_row(1), loss_row(8))
    assert (
        "accepts 0.50 tokens a round fewer on Korean than on English (1.50 against 2.00, 95 % interval 0.40 to 0.60, 12 and 16 tasks)"
        in sentence
    )
    assert (
        "At concurrency 8 that costs 2.00 s of decoding a task, 25.0 % of it (modelled; 95 % interval 20.0–30.0 %)"
        in sentence
    )
    assert "win back each hour of training on this server in 7 h" in sentence


def test_a_loss_that_is_not_shown_promises_nothing() -> None:
    """An interval around 0, too few tasks, a gain."""
    unshown: dict[str, Any] = {"acceptance_length_loss_low": -0.1}
    assert "no difference shown" in said(loss_row(**unshown), loss_row(8, win_back=None, **unshown))[0]
    assert "is not shown to win time back" in said(loss_row(**unshown), loss_row(8, win_back=None, **unshown))[0]
    few: dict[str, Any] = {"acceptance_length_loss_low": None, "acceptance_length_loss_high": None}
    assert "too few tasks for an interval (12 and 16)" in said(loss_row(**few))[0]
    gain: dict[str, Any] = {
        "acceptance_length_loss": -0.5,
        "acceptance_length_loss_low": -0.6,
        "acceptance_length_loss_high": -0.4,
    }
    assert "loses nothing on Korean" in said(loss_row(**gain))[0]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_without_two_languages_it_is_said_that_nothing_can_be_said(lang: str) -> None:
    """No row, one sentence."""
    assert len(said(lang=lang)) == 1


@pytest.mark.parametrize("lang", LANGUAGES)
def test_predictions_say_that_they_are_modelled_and_what_was_measured(tmp_path: Path, lang: str) -> None:
    """The known engine: three drafts stop paying at 4.3 requests; tables, sentences and what vLLM takes are there in both languages."""
    words = wording(lang)
    section = predictions.section(analyse(run_of(tmp_path / "run")), words)
    assert {"en": "modelled", "ko": "모형"}[lang] in section.notes[0]
    assert "4.3" in section.notes[0]
    assert len(section.tables) == 3
    table = json.loads(section.code[0][1])
    assert table["num_speculative_tokens"] == 3
    assert table["num_speculative_tokens_per_batch_size"][0] == [1, 2, 3]
    assert section.code[1][1] == "--nextn 3 --nextn-accepted 1.0"


def test_a_run_of_which_nothing_can_be_predicted_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One call of an engine that tells no rounds."""
    folder = run_folder(tmp_path / "run", [step(cell_key())]).path
    assert run(["predict", str(folder)]) == 2
    assert "nothing can be predicted" in capsys.readouterr().err


def test_the_command_writes_page_and_files_and_carries_the_run_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """273 GB/s and 16 GB of weights: at most 17.1 tokens a second; files have rows of both machines."""
    folder = run_of(tmp_path / "run").path
    options = ["--hardware", "dgx-spark,h100", "--weights-gb", "16", "--parameters-b", "8"]
    assert run(["predict", str(folder), *options]) == 0
    out = capsys.readouterr().out
    assert "at most 17.1 tokens/s" in out
    assert out.rstrip().splitlines()[-1].startswith("Predictions: eagle (modelled)")
    predicted = pl.read_csv(folder / "predicted.csv")
    assert set(predicted["hardware"].to_list()) == {None, "dgx-spark", "h100"}
    assert set(predicted["source"]) == {"modelled"}
    page = (folder / "predicted.html").read_text(encoding="utf-8")
    assert "NVIDIA DGX Spark" in page
    assert pl.read_csv(folder / "hardware.csv").height == 2
    ends = pl.read_csv(folder / "hardware_break_even.csv")
    assert set(ends["hardware"]) == {"dgx-spark", "h100"}
    of = pl.col("num_tokens") == 3
    crossed = {row["hardware"]: row for row in ends.filter(of).iter_rows(named=True)}
    for name, row in crossed.items():
        # the speed-ups of the other file lie on both sides of 1 there
        curve = predicted.filter((pl.col("hardware") == name) & of)
        assert row["side"] == "crossed"
        before = pl.col("batch_size") <= row["batch_break_even"]
        assert (curve.filter(before)["decode_speed_up"] >= 1).all()
        assert (curve.filter(~before)["decode_speed_up"] < 1).all()
    assert "Where drafting stops paying on that hardware" in page


@pytest.fixture
def known(tmp_path: Path) -> RunAnalysis:
    """The known engine: three drafts stop paying at 4.3 requests; measured at 1, 2, 4 and 8."""
    return analyse(run_of(tmp_path / "run"))


def against(analysis: RunAnalysis) -> list[str]:
    """Return the sentences that speak of a contradiction."""
    return [item for item in predictions.sentences(analysis, wording("en")) if "contradicts" in item]


def test_a_run_that_bears_out_its_model_raises_no_doubt(known: RunAnalysis) -> None:
    """Costs, break-even and speeds come from the same engine."""
    assert against(known) == []
    assert predictions.doubts(known, wording("en")) is None


def test_a_measured_break_even_elsewhere_contradicts_the_model(known: RunAnalysis) -> None:
    """Measured at 2 where 4.3 is modelled, or slower at one task already."""
    lower = known.break_even.with_columns(
        break_even=pl.lit(2.0), break_even_low=pl.lit(1.5), break_even_high=pl.lit(3.0), interval=pl.lit("both")
    )
    (said,) = against(replace(known, break_even=lower))
    assert "The measurement contradicts this: its break-even lies at 2 [1.5–3] tasks in progress." in said
    below = lower.with_columns(
        pl.lit(None, pl.Float64).alias(name) for name in ("break_even", "break_even_low", "break_even_high")
    )
    below = below.with_columns(side=pl.lit("below"), interval=pl.lit("open_both"))
    (said,) = against(replace(known, break_even=below))
    assert "slower with drafting already at the lowest load, 1 tasks in progress" in said


def test_a_measured_interval_that_holds_the_modelled_break_even_contradicts_nothing(known: RunAnalysis) -> None:
    """Measured at 2, but anything from 1.5 to 6: 4.3 is as good."""
    wide = known.break_even.with_columns(
        break_even=pl.lit(2.0), break_even_low=pl.lit(1.5), break_even_high=pl.lit(6.0), interval=pl.lit("both")
    )
    assert against(replace(known, break_even=wide)) == []


def test_a_slower_measured_task_contradicts_a_modelled_gain(known: RunAnalysis) -> None:
    """0.5 measured at 1 and 2 tasks, where at 1 and 2 requests decoding is modelled faster."""
    slower = known.drafters.with_columns(
        pl.when(pl.col("concurrency") <= 2).then(0.5).otherwise("speed_up").alias("speed_up"),
        speed_up_low=pl.lit(None, pl.Float64), speed_up_high=pl.lit(None, pl.Float64),
    )  # fmt: skip
    (said,) = against(replace(known, drafters=slower))
    assert "at concurrency 1 the speed-up of tasks was 0.50, where" in said
    assert "at concurrency 2 the speed-up of tasks was 0.50, where" in said


@pytest.mark.parametrize("lang", LANGUAGES)
def test_invalid_findings_and_a_poor_fit_are_said_with_the_predictions(known: RunAnalysis, lang: str) -> None:
    """The finding in full, the residual of a half as too far off, and both before the first sentence."""
    words = wording(lang)
    finding = Finding("baseline_drafted", "invalid", "office", "baseline", {})
    poor = known.costs.with_columns(residual_share=pl.lit(-0.5))
    doubtful = replace(known, findings=(*known.findings, finding), costs=poor)
    said = list(predictions.sentences(doubtful, words))
    assert words.finding(finding) in said[-1]
    assert words.text("predicted.far_off") in said[-2]
    empty = forecast.Carried(known.predicted.clear(), known.predicted_break_even.clear(), None, (), None)
    first = forecast.headline(doubtful, empty, lang)
    assert words.text("predicted.doubt_invalid") in first
    assert words.text("predicted.doubt_residual", residual="50.0") in first


def test_hardware_that_cannot_hold_the_model_gets_no_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """170 GB of weights need three cards of 80 GB; the machine of 128 GB needs two."""
    folder = run_of(tmp_path / "run").path
    options = ["--hardware", "dgx-spark,h100", "--weights-gb", "170", "--parameters-b", "85"]
    assert run(["predict", str(folder), *options, "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "170 GB of weights do not fit into 80 GB of memory. At least 3 of them are needed" in out
    assert "170 GB of weights do not fit into 128 GB of memory. At least 2 of them are needed" in out
    assert "tokens/s; rounds" not in out
    assert pl.read_csv(folder / "hardware.csv")["single_tokens_per_s"].null_count() == 2
    assert set(pl.read_csv(folder / "predicted.csv")["hardware"].to_list()) == {None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hardware", "h10o"], "did you mean 'h100'"),
        (["--hardware", "h100"], "--weights-gb is missing"),
        (["--hardware", "h100", "--weights-gb", "-3"], "not negative"),
        (["--hardware", "h100", "--weights-gb", "0"], "from 0.001"),
        (["--hardware", "h100", "--weights-gb", "1e-300", "--parameters-b", "8"], "from 0.001"),
        (["--hardware", "h100", "--weights-gb", "1e300", "--parameters-b", "8"], "at most 1,000,000"),
        (["--hardware", "h100", "--weights-gb", "16", "--parameters-b", "many"], "'many' is no number"),
        (["--weights-gb", "16"], "--hardware is missing"),
        (["--kv-bytes-per-token", "1024"], "--hardware is missing"),
        (["--hardware", ","], "--hardware is missing"),
    ],
)
def test_bad_input_is_refused_in_clear_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    """Exit code 2, nothing is written."""
    folder = run_folder(tmp_path / "run", [step(cell_key())]).path
    assert run(["predict", str(folder), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "predicted.html").exists()
