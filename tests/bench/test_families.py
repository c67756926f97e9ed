"""Tables of the drafter families, from a run whose figures are known."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from bench.families import main, read
from bench.families_figures import Figures, figures, text_class
from bench.families_input import ShippedDrafter, available, chosen_files, content, known, load_settings, write_workloads
from bench.families_page import headlines, words_of, write_all
from bench.families_readme import readme
from bench.families_tables import tables
from harness.errors import UsageError
from harness.workload import load
from tests.bench.families_run import DRAFTERS, run

WORKLOADS = Path("workloads")
SETTINGS: dict[str, Any] = {
    "families": {"public": {}, "adapted": {}},
    "methods": {"mtp": {"set": {"num_tokens": 3}}, "medusa": {}},
    "shared": {"ngram": {"method": "ngram"}},
}
OPTIONS: dict[str, Any] = {"concurrency": (1, 16), "repeats": 1, "threads": 1, "lengths": "fixed", "tool_wait": "none"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """The figures of the known run."""
    return figures(run(tmp_path_factory.mktemp("families") / "run"), DRAFTERS)


def row(frame: pl.DataFrame, arm: str, language: str | None = None, text: str | None = None) -> dict[str, Any]:
    """Return the row of an arm, over all languages and texts unless one is named."""
    wanted = {"arm": arm, "language_group": language, "text_type": text}
    rows = frame.filter(pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in wanted.items()))
    assert rows.height == 1
    return rows.row(0, named=True)


def test_every_drafter_of_the_settings_has_a_name_and_an_arm() -> None:
    """Families first, each method in it, then what stands outside; a table is a corpus, all else a model."""
    names = [one.name for one in known(SETTINGS)]
    assert names == ["public-mtp", "public-medusa", "adapted-mtp", "adapted-medusa", "ngram"]
    mtp, *_, table = known(SETTINGS)
    assert mtp.arm("fixed") == {
        "name": "public-mtp",
        "method": "mtp",
        "options": {"model": "ref:public-mtp", "num_tokens": 3},
    }
    assert table.arm("goodput")["options"] == {"corpus": "ref:ngram", "num_tokens": 4, "lengths": "goodput"}


def test_only_drafters_that_are_there_are_measured() -> None:
    """In the order of the settings; a name that is not there, or none at all, is an error that says what is."""
    assert [one.name for one in available(["ngram", "public-mtp", "mine"], SETTINGS)] == ["public-mtp", "ngram"]
    assert [one.name for one in available(["ngram", "public-mtp"], SETTINGS, ["ngram"])] == ["ngram"]
    with pytest.raises(UsageError, match="no drafter adapted-mtp comes with the package; there: ngram"):
        available(["ngram"], SETTINGS, ["adapted-mtp"])
    with pytest.raises(UsageError, match=r"no trained drafter .* expected beside ref-koen: public-mtp"):
        available([], SETTINGS)


def test_the_settings_of_the_training_name_methods_that_there_are() -> None:
    """Every drafter that is trained can be an arm of the builtin engine."""
    from harness.engines.builtin_options import served

    for one in known(load_settings()):
        assert served(one.method, one.arm("fixed")["options"]).spec.num_tokens == one.num_tokens


def test_workloads_that_mix_others_are_left_out() -> None:
    """No task is measured twice; those with tasks of their own stay."""
    kept = [path.stem for path in chosen_files(sorted(WORKLOADS.glob("*.yaml")))]
    assert kept == ["coding-en", "dev-ko", "essay-ko", "office-ko", "support-en"]


def test_a_workload_is_written_for_the_engine_and_finds_its_tasks(tmp_path: Path) -> None:
    """Float32, no tool waits, temperature 0, same prompts at every load; it loads, tasks included."""
    arms = [one for one in DRAFTERS if one.method == "mtp"]
    folder = tmp_path / "workloads"
    (path,) = write_workloads([WORKLOADS / "essay-ko.yaml"], folder, arms, OPTIONS | {"limit_tasks": 3}, begun=False)
    loaded = load(path)
    made = loaded.workload
    assert [arm.name for arm in made.arms] == ["baseline", "public-mtp", "adapted-mtp"]
    assert (made.engine.kind, made.engine.model, made.engine.options) == ("builtin", "ref-koen", {"dtype": "float32"})
    assert (made.replay.tool_wait, made.replay.prompt_cache, made.sampling.temperature) == ("none", "reset", 0)
    assert (made.concurrency, made.repeats, made.tasks_per_cell, made.steps_per_task) == ([1, 16], 1, 3, None)
    assert loaded.tasks == load(WORKLOADS / "essay-ko.yaml").tasks


def test_a_begun_run_keeps_its_settings(tmp_path: Path) -> None:
    """The same settings go on; others are refused before anything is measured."""
    source, folder = [WORKLOADS / "essay-ko.yaml"], tmp_path / "workloads"
    write_workloads(source, folder, DRAFTERS, OPTIONS, begun=False)
    assert write_workloads(source, folder, DRAFTERS, OPTIONS, begun=True) == [folder / "essay-ko.yaml"]
    with pytest.raises(UsageError, match="other drafters or settings"):
        write_workloads(source, folder, DRAFTERS[:1], OPTIONS, begun=True)
    assert len(yaml.safe_load((folder / "essay-ko.yaml").read_text("utf-8"))["arms"]) == 4


def test_a_text_belongs_to_one_language_and_type() -> None:
    """Korean with code is Korean; chats and essays are free prose; what is unknown belongs nowhere."""
    assert text_class("ko+code", "report") == "ko/office"
    assert text_class("ko", "messenger") == "ko/essay"
    assert text_class("code", "bugfix") == "code/office"
    assert text_class("ko", None) is None
    assert text_class("de", "report") is None


def test_acceptance_is_told_by_language_and_text(found: Figures) -> None:
    """2 accepted of ten rounds in Korean: 1.2; 20 in code: 3; six tasks with equal counts leave no width."""
    office = row(found.table, "public-mtp", "ko", "office")
    assert [office[f"acceptance_length{end}"] for end in ("", "_low", "_high")] == pytest.approx([1.2, 1.2, 1.2])
    assert (office["n_tasks"], office["n_steps"], office["num_drafts"]) == (6, 24, 240)
    assert row(found.table, "public-mtp", "code", "office")["acceptance_length"] == pytest.approx(3)
    assert row(found.table, "adapted-mtp", "ko", "essay")["tokens_per_pass"] == pytest.approx(2)
    assert [office[f"survival_{place}"] for place in (1, 2, 3)] == pytest.approx([0.2, 0, 0])
    assert (office["family"], office["method"]) == ("public", "mtp")
    assert row(found.table, "draft-model")["family"] is None


def test_speed_ups_are_those_of_tasks_at_each_load(found: Figures) -> None:
    """Half the time at one in progress: 2; the same time at four: 1. A task of code steps in part is a Korean one."""
    adapted = row(found.table, "adapted-mtp", "ko", "office")
    assert (adapted["speed_up_1"], adapted["n_tasks_1"]) == (pytest.approx(2), 6)
    assert row(found.table, "adapted-mtp")["speed_up_4"] == pytest.approx(1)
    assert row(found.table, "draft-model", "ko", "essay")["speed_up_1"] == pytest.approx(0.5)
    code = row(found.table, "adapted-mtp", "code", "office")
    assert (code["speed_up_1"], code["n_tasks_1"]) == (None, None)


def test_rows_stand_in_order(found: Figures) -> None:
    """All first, then Korean before code; what no step has makes no row, and is named below the table."""
    own = found.table.filter(pl.col("arm") == "public-mtp").select("language_group", "text_type").rows()
    assert own == [(None, None), ("ko", "office"), ("ko", "essay"), ("code", "office")]
    assert found.table["arm"].unique(maintain_order=True).to_list() == ["public-mtp", "adapted-mtp", "draft-model"]


def test_the_later_family_is_held_against_the_first(found: Figures) -> None:
    """From 1.2 to 3 in Korean: +1.8; code stays as it was; the drafter outside the families is not compared."""
    office = found.change.filter(pl.col("language_group").eq_missing("ko") & (pl.col("text_type") == "office"))
    (told,) = office.to_dicts()
    assert (told["arm_before"], told["arm_after"], told["n_tasks"]) == ("public-mtp", "adapted-mtp", 6)
    changes = [told[f"acceptance_length_change{end}"] for end in ("", "_low", "_high")]
    assert changes == pytest.approx([1.8, 1.8, 1.8])
    code = found.change.filter(pl.col("language_group") == "code")
    assert code["acceptance_length_change"].to_list() == pytest.approx([0])
    assert set(found.change["method"]) == {"mtp"}


def test_every_output_is_counted(found: Figures) -> None:
    """36 steps, each compared with the baseline's at the same load, and with that of the lowest load."""
    assert found.unchanged
    for told in found.lossless.to_dicts():
        counts = [
            told[name] for name in ("n_planned", "n_distinct", "n_steps", "n_identical", "n_alone", "n_identical_alone")
        ]
        assert counts == [36] * 6


def test_one_arm_that_writes_another_text_is_found(tmp_path: Path) -> None:
    """All 36 texts of it differ at four in progress; the sentence says how many do not."""
    found = figures(run(tmp_path / "run", other_text="another"), DRAFTERS)
    assert not found.unchanged
    told = row(found.lossless.with_columns(language_group=None, text_type=None).filter(concurrency=4), "adapted-mtp")
    assert (told["n_identical"], told["n_identical_alone"]) == (0, 0)
    assert "Of 216 pairs of steps 180 have the baseline's output" in headlines(found, words_of("en"))[-1].text


def test_steps_that_were_not_compared_are_missed(tmp_path: Path) -> None:
    """A workload of 40 steps of which 36 ran is not shown to be unchanged."""
    folder = run(tmp_path / "run")
    folder.manifest["workloads"][0]["n_steps"] = 40
    assert not figures(folder, DRAFTERS).unchanged


@pytest.mark.parametrize(("lang", "word"), [("en", "office"), ("ko", "사무")])
def test_tables_are_in_both_languages(found: Figures, lang: str, word: str) -> None:
    """The same rows and as many cells a row as headers."""
    made = tables(found, words_of(lang))
    assert any(word in cells for cells in made["families"].rows)
    for shown in made.values():
        assert shown.rows
        assert {len(cells) for cells in shown.rows} == {len(shown.headers)} == {len(shown.numeric)}


def test_both_languages_have_the_same_texts() -> None:
    """No text of one language is missing in the other."""
    paths = [Path("bench") / f"families.{lang}.yaml" for lang in ("ko", "en")]
    keys = [set(yaml.safe_load(path.read_text("utf-8"))) for path in paths]
    assert keys[0] == keys[1]


def test_files_are_written_as_the_reports_are(found: Figures, tmp_path: Path) -> None:
    """CSV with byte order mark and (all), one page and one Markdown file a language, no script in any."""
    names = {path.name for path in write_all(found, tmp_path)}
    assert {
        "families.csv",
        "families_change.csv",
        "families_lossless.csv",
        "families.ko.html",
        "families.en.md",
    } <= names
    raw = (tmp_path / "families.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    first = next(csv.DictReader(raw.decode("utf-8-sig").splitlines()))
    assert (first["arm"], first["language_group"], first["acceptance_length"]) == ("public-mtp", "(all)", "1.5")
    page = (tmp_path / "families.ko.html").read_text("utf-8")
    assert "<script" not in page
    assert "수락 길이" in page
    assert "essay" in (tmp_path / "families.en.md").read_text("utf-8")


def test_the_page_of_plain_words_has_the_figures_of_the_run(found: Figures) -> None:
    """Sentences name arms and figures, and say what is not in the workloads."""
    text = readme(found)
    assert "adapted-mtp yields 3.00 tokens a round, public-mtp 1.20: +1.80 [+1.80, +1.80] over 6 tasks." in text
    assert (
        "At 1 in progress the fastest arm is adapted-mtp, 2.00 [2.00–2.00] times the baseline, the slowest draft-model"
        in text
    )
    assert (
        "At 1 in progress, of 3 arms: shown faster than the baseline 1 (adapted-mtp), shown slower 1 (draft-model)."
        in text
    )
    assert "Korean, office, the later family is accepted more than the first: mtp." in text
    assert "No steps of this kind in the workloads: English/office, English/essay, code/essay" in text


def test_a_finished_run_is_reported_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is measured; the tables are written and the sentences printed. Outputs that differ end it with 3."""
    run(tmp_path / "same" / "run")
    assert main(["--out", str(tmp_path / "same"), "--report-only"]) == 0
    assert "Every output equals the baseline's" in capsys.readouterr().out
    run(tmp_path / "other" / "run", other_text="another")
    assert main(["--out", str(tmp_path / "other"), "--report-only"]) == 3


def test_bad_input_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No folder, or one that holds no run: exit code 2 and what to do."""
    assert main([]) == 2
    assert "give a folder with --out" in capsys.readouterr().err
    assert main(["--out", str(tmp_path), "--report-only"]) == 2


def test_names_of_a_run_are_read_by_the_settings(tmp_path: Path) -> None:
    """An arm named after a drafter of the package has its family."""
    run(tmp_path / "run")
    assert read(tmp_path / "run").table["family"].drop_nulls().unique().sort().to_list() == ["adapted", "public"]


def test_the_content_names_its_tasks_from_where_it_lies(tmp_path: Path) -> None:
    """No path of this machine stands in a file that lies beside the workloads."""
    made = content(WORKLOADS / "essay-ko.yaml", WORKLOADS, [ShippedDrafter("ngram", None, "ngram", 4)], OPTIONS)
    assert made["tasks"] == "data/essay-ko.jsonl"
