"""What makes a comparison unsound, what is only said, and what is the drafter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.compare import compare_runs
from tests.comparing import MODEL, TWO, run

ARM = {"d2": {"ko": TWO, "en": TWO}}
PLAIN: dict[str, Any] = {"engine": "builtin", "model": {"sha256": MODEL}, "settings": {"dtype": "float32"}}


def severities(tmp_path: Path, before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """Return the severity of each setting that differs between two runs with these further keys."""
    before_run, after_run = (
        run(tmp_path / name, ARM, **{"manifest": {"engine": PLAIN}, **keys})
        for name, keys in (("a", before), ("b", after))
    )
    frame = compare_runs(before_run, after_run).differences
    return dict(frame.select("setting", "severity").iter_rows())


def sampling(**changes: Any) -> dict[str, Any]:
    """Return the sampling of a workload."""
    return {"sampling": {"temperature": 0.0, "top_p": 1.0, "seed": 1, "max_tokens": 160, **changes}}


def engine(**changes: Any) -> dict[str, Any]:
    """Return a manifest with another engine."""
    return {"manifest": {"engine": {**PLAIN, **changes}}}


def test_equal_runs_differ_in_nothing(tmp_path: Path) -> None:
    """Nothing is listed where nothing differs."""
    assert severities(tmp_path, {}, {}) == {}


@pytest.mark.parametrize(
    ("keys", "setting", "severity"),
    [
        (sampling(max_tokens=40), "sampling.max_tokens", "invalid"),
        (sampling(seed=2), "sampling.seed", "note"),
        ({"tasks_per_cell": 5}, "tasks_per_cell", "note"),
        ({"replay": {"history": "live", "tool_wait": "recorded", "prompt_cache": "salt", "tools": "text"}}, "replay.history", "invalid"),
        ({"replay": {"history": "recorded", "tool_wait": "none", "prompt_cache": "salt", "tools": "text"}}, "replay.tool_wait", "warning"),
        (engine(model={"sha256": "b" * 64}), "target: model.sha256", "invalid"),
        (engine(model={}), "target: hash not known", "warning"),
        (engine(settings={"dtype": "bfloat16"}), "settings.dtype", "warning"),
        (engine(settings={"dtype": "float32", "max_sequences": 8}), "settings.max_sequences", "note"),
        (engine(arms={"d2": {"drafter": {"num_tokens": 7}}}), "arm d2: drafter.num_tokens", "note"),
        (engine(arms={"d2": {"n_slots": 7}}), "arm d2: n_slots", "warning"),
        ({"manifest": {"engine": PLAIN, "machine": {"cores": 4}}}, "machine.cores", "warning"),
        ({"manifest": {"engine": PLAIN, "status": "running"}}, "status", "warning"),
    ],
)  # fmt: skip
def test_each_difference_has_its_weight(tmp_path: Path, keys: dict[str, Any], setting: str, severity: str) -> None:
    """What decides the work makes a comparison unsound, settings beside the drafter are warnings, the rest is noted."""
    assert severities(tmp_path, {}, keys)[setting] == severity


def test_a_converted_target_is_the_one_it_was_made_of(tmp_path: Path) -> None:
    """A folder made of a GGUF file keeps the file's hash: that the two hashes of the folder differ is no other target."""
    converted = {**PLAIN, "model": {"sha256": "c" * 64, "source_sha256": MODEL}}
    assert "target: model.sha256" not in severities(tmp_path, {}, {"manifest": {"engine": converted}})


def test_runs_that_kept_no_hash_of_single_tasks_cannot_be_told_apart_by_task(tmp_path: Path) -> None:
    """The file's hash differs and nothing says which tasks: unsound."""
    keys: dict[str, Any] = {"tasks_sha256": "2" * 64, "task_sha256": {}}
    assert severities(tmp_path, {}, keys)["tasks_sha256"] == "invalid"


def test_the_worst_stands_first(tmp_path: Path) -> None:
    """A reader meets what voids the comparison before what is only noted."""
    after = run(tmp_path / "b", ARM, **sampling(top_p=0.9), tasks_per_cell=5)
    found = compare_runs(run(tmp_path / "a", ARM), after).differences
    assert found["severity"].to_list() == ["invalid", "note"]
    assert found["value_after"].to_list() == ["0.9", "5"]
