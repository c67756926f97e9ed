"""From a configuration to an engine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from drafters.engine.assembly import assemble, weights_digest
from drafters.engine.config import EngineConfig
from drafters.engine.goodput import Goodput
from drafters.engine.lengths import BatchTable
from drafters.engine.sequence import Request
from drafters.specs import SpecError


def test_the_engine_is_what_the_configuration_says(babble_folder: Path) -> None:
    """Bounds, policies of the drafters' lengths, costs where one is controlled, and the facts."""
    stages: list[str] = []
    config = EngineConfig.model_validate_json(
        f'{{"model": "{babble_folder}", "context_tokens": 100000, "max_sequences": 2, "cache_tokens": 5000, '
        '"verification": "block", "drafters": {'
        '"plain": {"spec": {"method": "prompt_lookup"}}, "table": {"spec": {"method": "ngram"}, "lengths": {"2": 0}}, '
        '"free": {"spec": {"method": "prompt_lookup", "num_tokens": 2}, "lengths": "goodput"}}}'
    )
    engine = assemble(config, progress=stages.append)
    runner = engine.runner
    assert engine.config.context_tokens == runner.target.max_positions == 4096  # what the model reads
    assert (runner.scheduler.slots.capacity, runner.scheduler.max_sequences) == (5000, 2)
    assert runner.verification == "block"
    assert {name: type(policy) for name, policy in runner.lengths.items()} == {"table": BatchTable, "free": Goodput}
    assert engine.name == babble_folder.name
    assert engine.description["costs"]["forward"]
    assert list(engine.description["costs"]["drafts"]) == ["free"]
    assert stages[0] == f"loading {babble_folder}"
    sequence = runner.add(Request(tuple(range(3, 20)), 30, drafter="free"))
    while runner.busy:
        runner.step()
    assert sequence.num_output_tokens <= 30


def test_the_digest_covers_the_weight_files(babble_folder: Path) -> None:
    """One file here; its numbers are the model's parameters."""
    sha256, parameters = weights_digest(babble_folder)
    assert sha256 == hashlib.sha256((babble_folder / "model.safetensors").read_bytes()).hexdigest()
    assert parameters == assemble(EngineConfig(model=babble_folder)).facts["model"]["parameters"] > 10_000


def test_a_drafter_that_does_not_fit_is_refused_before_anything_runs(babble_folder: Path) -> None:
    """Its checkpoint is not there."""
    config = EngineConfig.model_validate(
        {"model": babble_folder, "drafters": {"x": {"spec": {"method": "medusa", "model": babble_folder / "none"}}}}
    )
    with pytest.raises(SpecError, match=r"config\.json"):
        assemble(config)
