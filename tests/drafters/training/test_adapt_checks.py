"""What the plan refuses, so that no stage does after hours: each with the line of the site's file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafters.training.adapt_checks import check
from drafters.training.adapt_plan import links
from drafters.training.site import load_site
from drafters.training.stage import StageError
from tests.drafters.training.sites import write_site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What looks like a target of two layers, and a Medusa drafter of it."""
    for name, config in (
        ("target", {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 2, "max_position_embeddings": 2048}),
        ("drafter", {"medusa_num_heads": 2}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config), "utf-8")
        (tmp_path / name / "model.safetensors").write_bytes(b"")
    return tmp_path


def planned(folder: Path, changes: Mapping[str, Mapping[str, Any]], out: str = "out") -> str:
    """What is said of a site's file with these sections changed; empty where nothing is."""
    path = write_site(folder)
    site = yaml.safe_load(path.read_text("utf-8"))
    for section, keys in changes.items():
        site[section] = {**site.get(section, {}), **keys}
    path.write_text(yaml.safe_dump(site, allow_unicode=True, sort_keys=False), "utf-8")
    try:
        loaded = load_site(path)
        check(loaded, links(loaded, folder / out), folder / out)
    except StageError as error:
        said = str(error)
        assert all(line.startswith(f"{path}:") for line in said.splitlines()), said
        return said
    return ""


def test_a_file_without_faults_passes(folder: Path) -> None:
    """Everything that may be given is."""
    drafter = {"start": "drafter", "options": {"lengths": "goodput"}}
    evaluate = {"arms": {"look": "prompt_lookup,num_tokens=8"}, "options": {"threads": 1}}
    assert planned(folder, {"drafter": drafter, "evaluate": evaluate, "capture": {"layers": [0, 2]}}) == ""


@pytest.mark.parametrize(
    ("section", "keys", "says"),
    [
        ("evaluate", {"workloads": ["documents"]}, "cannot be read as a workload"),
        ("evaluate", {"workloads": ["requests.jsonl"]}, "requests.jsonl"),
        ("evaluate", {"workloads": ["site.yaml"]}, "is no workload: it has no key 'tasks'"),
        ("evaluate", {"workloads": ["workload.yaml", "workload.yaml"]}, "is given twice"),
        ("evaluate", {"arms": {"x": "prompt_lookup,num_tokens=abc"}}, "'num_tokens' is 'abc'"),
        ("evaluate", {"arms": {"x": "eagle3,model=/none"}}, "/none does not exist"),
        ("drafter", {"options": {"lengths": "nonsense"}}, "lengths is 'nonsense'; allowed: fixed, goodput"),
        ("drafter", {"options": {"lengths": {1: 8, 4: "x"}}}, "lengths is {1: 8, 4: 'x'}"),
        ("corpus", {"held_out": 0.8}, "corpus.held_out is 0.8"),
        ("corpus", {"max_characters": 50}, "corpus.max_characters is 50"),
        ("corpus", {"tasks": ["documents"]}, "'documents' is a folder; give the file"),
        ("corpus", {"key_file": "nowhere/key"}, "nowhere does not exist"),
        ("corpus", {"key_file": "documents/key"}, "which is learnt from; keep the key elsewhere"),
        ("corpus", {"documents": ["~nosuchuser/docs"]}, "'~nosuchuser/docs' is no path"),
        ("corpus", {"documents": ["a\0b"]}, "is no path"),
        ("corpus", {"documents": ["a" * 5000]}, "is no path"),
        ("target", {"model": "a" * 5000}, "is no path"),
        ("target", {"model": "/nowhere/model"}, "/nowhere/model does not exist; give a model's folder"),
        ("capture", {"layers": [1, 99]}, "capture.layers has 99; the target allows 0 to 2"),
        ("drafter", {"start": "target"}, "a whole model and no medusa drafter"),
        (
            "regenerate",
            {"server": {"base_url": "localhost:80", "model": "x", "tokenizer": "target"}},
            "regenerate.server.base_url is 'localhost:80'",
        ),
        ("train", {"options": {"method": "mtp"}}, "train.options has 'method', which the chain sets itself"),
        ("train", {"options": {"tokens": 5}}, "train.options has 'tokens'"),
        ("train", {"options": {"pat": 5}}, "unrecognized arguments: --pat 5"),
        ("train", {"options": {"device": "cpu", "start": "drafter"}}, "train.options has 'start'"),
        ("regenerate", {"options": {"corpus": "/other"}}, "regenerate.options has 'corpus'"),
        ("evaluate", {"options": {"out": "/other"}}, "evaluate.options has 'out'"),
        ("capture", {"layers": [1], "options": {"weights": "nf4"}}, "capture.options has 'weights'"),
        ("drafter", {"options": {"method": "eagle3"}}, "drafter.options has 'method'"),
        ("drafter", {"options": {"model": "/elsewhere"}}, "drafter.options has 'model'"),
        ("drafter", {"options": {"num_tokens": 3}}, "num_tokens stands in drafter and in drafter.options"),
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_by_the_plan(
    folder: Path, section: str, keys: dict[str, Any], says: str
) -> None:
    """What was given and what is allowed."""
    assert says in planned(folder, {section: keys})


def test_a_task_file_that_is_missing_is_named(folder: Path) -> None:
    """Of the workload that needs it."""
    write_site(folder)
    (folder / "other").mkdir()
    (folder / "other/w.yaml").write_text("name: w\ntasks: gone.jsonl\n", "utf-8")

    said = planned(folder, {"evaluate": {"workloads": ["other/w.yaml"]}})

    assert "other/gone.jsonl, which does not exist" in said


def test_an_output_within_what_is_learnt_from_is_refused(folder: Path) -> None:
    """The chain's own files would be learnt from."""
    assert "documents/out lies in" in planned(folder, {}, out="documents/out")


def test_the_faults_of_all_sections_are_told_at_once(folder: Path) -> None:
    """One line each."""
    said = planned(folder, {"train": {"options": {"tokens": 5}}, "capture": {"layers": [99]}})
    assert len(said.splitlines()) == 2
