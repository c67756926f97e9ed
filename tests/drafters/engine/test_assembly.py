"""From a configuration to an engine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from drafters.engine import assembly
from drafters.engine.assembly import assemble, weights_digest
from drafters.engine.config import EngineConfig
from drafters.engine.goodput import Goodput
from drafters.engine.lengths import BatchTable
from drafters.engine.sequence import Request
from drafters.engine.target import TargetError
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


@pytest.mark.parametrize("device", ["nonsense", "meta", "cuda:99", "hpu", "cpu:x"])
def test_a_device_that_cannot_be_used_is_refused_before_anything_is_loaded(babble_folder: Path, device: str) -> None:
    """One line that names what there is."""
    with pytest.raises(TargetError, match=rf"^device '{device}' cannot be used \(.+\); there is cpu") as caught:
        assemble(EngineConfig(model=babble_folder, device=device), progress=pytest.fail)
    assert "\n" not in str(caught.value)


def test_more_memory_than_the_machine_has_is_refused(babble_folder: Path) -> None:
    """K/V of 2 layers, 2 heads of 8 in float32 take 256 bytes a token: 256,000 GB for a trillion."""
    with pytest.raises(TargetError, match=r"1000000000000 tokens take 256000\.0 GB, cpu has .*smaller cache_tokens"):
        assemble(EngineConfig(model=babble_folder, cache_tokens=10**12))


def test_an_allocation_that_fails_is_told_in_one_line(babble_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the machine has the memory, but will not give it; other errors stay what they are."""
    config = EngineConfig(model=babble_folder)
    monkeypatch.setattr(assembly, "_facts", lambda *_: torch.empty(1 << 60))
    with pytest.raises(
        TargetError, match=r"^the memory of cpu does not hold .*K/V of 69632 tokens .*cache_tokens"
    ) as caught:
        assemble(config)
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(assembly, "_facts", lambda *_: torch.empty(2) @ torch.empty(3))
    with pytest.raises(RuntimeError, match="size"):
        assemble(config)


def test_a_drafter_that_does_not_fit_is_refused_before_anything_runs(babble_folder: Path) -> None:
    """Its checkpoint is not there."""
    config = EngineConfig.model_validate(
        {"model": babble_folder, "drafters": {"x": {"spec": {"method": "medusa", "model": babble_folder / "none"}}}}
    )
    with pytest.raises(SpecError, match=r"config\.json"):
        assemble(config)
