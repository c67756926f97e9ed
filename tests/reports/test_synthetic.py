"""Arms with made-up acceptance are marked everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.analysis.frames import Finding, RunAnalysis
from reports import charts
from reports.page import render
from reports.synthetic import marked
from reports.tables import console, write_csv
from reports.wording import wording
from tests.reports import sample


def with_synthetic_arm() -> RunAnalysis:
    """Return the small run in which ngram-mod is declared synthetic, so that it has no verdict."""
    run = sample.small()
    manifest = sample.manifest()
    for workload in manifest["workloads"]:
        for arm in workload["arms"]:
            arm["method"] = "synthetic" if arm["name"] == "ngram-mod" else arm["method"]
    found = (Finding("synthetic_arm", "note", "office-ko", "ngram-mod", {}),)
    verdicts = tuple(verdict for verdict in run.verdicts if verdict.arm != "ngram-mod")
    return replace(run, manifest=manifest, findings=found, verdicts=verdicts)


def test_a_run_without_synthetic_arms_is_left_alone() -> None:
    """Nothing is renamed."""
    run = sample.small()
    assert marked(run, "synthetic") is run


def test_the_mark_stands_in_frames_findings_and_manifest() -> None:
    """The same name everywhere, so that rows still belong together; the other arms keep theirs."""
    run = marked(with_synthetic_arm(), "synthetic")
    assert set(run.speed_up["arm"]) == {"ngram-map-k", "ngram-mod (synthetic)"}
    assert run.findings[0].arm == "ngram-mod (synthetic)"
    assert [arm["name"] for arm in run.manifest["workloads"][0]["arms"]][2] == "ngram-mod (synthetic)"
    assert list(run.manifest["engine"]["arms"]) == ["baseline", "ngram-map-k", "ngram-mod (synthetic)"]


def test_console_page_and_files_carry_the_mark(tmp_path: Path) -> None:
    """Whoever reads one output only is told."""
    run = with_synthetic_arm()
    assert "ngram-mod (synthetic)" in console(run, "en", 200)
    assert "ngram-mod (합성)" in render(run, "ko")
    write_csv(run, tmp_path)
    assert "ngram-mod (synthetic)" in (tmp_path / "speed_up.csv").read_text(encoding="utf-8-sig")
    assert "ngram-mod," not in (tmp_path / "summary.csv").read_text(encoding="utf-8-sig")


def test_the_legend_of_a_chart_carries_the_mark() -> None:
    """A line in a drawing is what people copy."""
    found = charts.speed_up(marked(with_synthetic_arm(), "합성"), wording("ko"))
    assert found is not None
    assert "ngram-mod (합성)" in found[0].svg
