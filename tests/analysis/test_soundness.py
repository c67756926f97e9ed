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
        (engine(settings={"dtype": "bfloat16"}), "settings.dtype", "invalid"),
        (engine(settings={"dtype": "float32", "weights": "rtn4"}), "settings.weights", "invalid"),
        (engine(settings={"dtype": "float32", "prefix_reuse": False}), "settings.prefix_reuse", "warning"),
        (engine(engine="llamacpp", settings={}), "engine", "warning"),
        ({"manifest": {"engine": PLAIN, "salt": "run-b"}}, "salt", "warning"),
        ({"step_fields": {"prompt_tokens": None}}, "prompt tokens not known", "warning"),
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


def test_a_file_and_a_folder_of_one_model_are_one_target(tmp_path: Path) -> None:
    """Each has a hash of its own and both that of what they were made of; with another of those they are two targets."""
    settings = {"manifest": {"engine": {**PLAIN, "model": {"sha256": MODEL, "source_sha256": "s"}}}}
    for name, source, other in (("same", "s", False), ("other", "r", True)):
        (tmp_path / name).mkdir()
        file = {"engine": "llamacpp", "model": {"sha256": "c" * 64, "source_sha256": source}}
        found = severities(tmp_path / name, settings, {"manifest": {"engine": file}})
        assert ("target: model.sha256" in found) == other
        assert found["engine"] == "warning"


def test_a_file_and_the_folder_made_of_it_are_one_target(tmp_path: Path) -> None:
    """The file tells what it was written from, the folder that it was made of the file: the file's hash is common."""
    file = {"engine": "llamacpp", "model": {"sha256": "f", "source_sha256": "s"}}
    folder = {**PLAIN, "model": {"sha256": "c", "source_sha256": "f"}}
    found = severities(tmp_path, {"manifest": {"engine": file}}, {"manifest": {"engine": folder}})
    assert "target: model.sha256" not in found


def test_weights_in_four_bits_are_another_target_on_another_engine_too(tmp_path: Path) -> None:
    """The settings of two engines have little in common, but how the weights are held decides what is measured."""
    held = {"manifest": {"engine": {**PLAIN, "settings": {"dtype": "float32", "weights": "nf4"}}}}
    file = {"engine": "llamacpp", "model": {"sha256": MODEL}}
    assert severities(tmp_path, held, {"manifest": {"engine": file}})["settings.weights"] == "invalid"


@pytest.mark.parametrize(("tokens", "severity"), [(55, "warning"), (90, "invalid")])
def test_a_salt_may_account_for_some_prompt_tokens(tmp_path: Path, tokens: int, severity: str) -> None:
    """Names of runs in front of the prompts make a few tokens more; 40 more are another prompt."""
    keys = [{"manifest": {"engine": PLAIN, "salt": name}} for name in ("run-a", "run-bb")]
    found = severities(tmp_path, keys[0], keys[1] | {"step_fields": {"prompt_tokens": tokens}})
    assert found["prompt tokens (24 steps, first t1:0)"] == severity


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, ()),
        (engine(model={}), ("target",)),
        ({"manifest": {"engine": {**PLAIN, "model": {}}, "salt": "run-b"}}, ("prompts", "target")),
        ({"step_fields": {"prompt_tokens": None}}, ("prompts",)),
    ],
)
def test_what_could_not_be_told_to_be_the_same_is_not_called_so(
    tmp_path: Path, keys: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """An unknown hash leaves the target open; a salt or unknown counts leave the prompts open."""
    after = run(tmp_path / "b", ARM, **{"manifest": {"engine": PLAIN}, **keys})
    found = compare_runs(run(tmp_path / "a", ARM, manifest={"engine": PLAIN}), after)
    assert found.sound
    assert found.unproven == expected


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
