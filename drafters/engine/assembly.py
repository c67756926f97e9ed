"""From a configuration to a ready engine: target, tokenizer, drafters and the costs that a controller needs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from drafters.base import Drafter
from drafters.catalog import build
from drafters.engine.config import EngineConfig
from drafters.engine.costs import CostModel
from drafters.engine.goodput import Goodput
from drafters.engine.lengths import BatchTable, LengthPolicy
from drafters.engine.profile import measure_costs
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Runner
from drafters.engine.target import DecoderModel, TargetError
from drafters.engine.text import Text

__all__ = ["Assembled", "assemble", "check_device", "weights_digest"]

PACKAGES = ("spec-harness", "torch", "transformers", "tokenizers")


@dataclass(frozen=True, slots=True)
class Assembled:
    """A ready engine. ``config`` is what was given, with the context that the model really has; ``costs`` are there
    where a drafter's lengths are ``goodput``, and change with every round."""

    config: EngineConfig
    runner: Runner
    text: Text
    facts: Mapping[str, Any]
    costs: CostModel | None

    @property
    def name(self) -> str:
        """The model's name for clients."""
        return self.config.served_name or self.config.model.resolve().name

    @property
    def description(self) -> dict[str, Any]:
        """Configuration, versions, the model's facts and, where there is a controller, what it knows of costs now.

        Rounds change the costs: while the engine runs, only its own thread may ask.
        """
        return {
            "config": self.config.model_dump(mode="json"),
            **self.facts,
            "costs": None if self.costs is None else self.costs.to_json(),
        }


def assemble(
    config: EngineConfig,
    on_round: Callable[[RoundRecord], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Assembled:
    """Load everything and return the engine. ``progress`` is told of each stage.

    Sets torch's threads for the calling thread. Raises TargetError, TextError or SpecError for what does not fit, the
    device and its memory included.
    """
    tell = progress or (lambda stage: None)
    check_device(config.device)
    torch.set_num_threads(config.threads)
    with _memory(config), ThreadPoolExecutor(1, "digest") as pool:
        digest = pool.submit(weights_digest, config.model)
        tell(f"loading {config.model}")
        text = Text.load(config.model)
        dtype = getattr(torch, config.dtype)
        target = DecoderModel.load(config.model, dtype, config.device, config.context_tokens, weights=config.weights)
        if target.max_positions < config.context_tokens:
            tell(f"the model reads {target.max_positions} tokens, fewer than context_tokens {config.context_tokens}")
            config = config.model_copy(update={"context_tokens": target.max_positions})
        cache_tokens = config.total_cache_tokens
        _check_cache(target, cache_tokens)
        drafters: dict[str, Drafter] = {}
        for name, served in config.drafters.items():
            tell(f"building drafter {name} ({served.spec.method})")
            drafters[name] = build(served.spec, target, cache_tokens)
        costs = _costs(config, target, drafters, tell)
        runner = Runner(
            target,
            cache_tokens,
            drafters,
            max_sequences=config.max_sequences,
            prefill_tokens=config.prefill_tokens,
            prefix_reuse=config.prefix_reuse,
            lengths=_lengths(config, drafters, costs),
            verification=config.verification,
            decode=text.settled,
            on_round=on_round,
        )
        return Assembled(config, runner, text, _facts(config, target, digest.result()), costs)


def check_device(name: str) -> None:
    """Raise TargetError unless this torch can use the device."""
    try:
        torch.zeros(1, device=name).item()
    except (AssertionError, ImportError, RuntimeError) as error:  # each kind of device fails in its own way
        devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        raise TargetError(
            f"device {name!r} cannot be used ({_first_line(error)}); there is {', '.join(devices)}"
        ) from error


def _check_cache(target: DecoderModel, cache_tokens: int) -> None:
    """Raise TargetError for K/V that the device could never hold: asked for it, the system may end processes."""
    needed = 2 * target.num_layers * target.kv_heads * target.head_dim * target.dtype.itemsize * cache_tokens
    if target.device.type == "cuda":
        there = torch.cuda.get_device_properties(target.device).total_memory
    else:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise TargetError(
            f"K/V of {cache_tokens} tokens take {needed / 1e9:.1f} GB, {target.device} has {there / 1e9:.1f}; {_LESS}"
        )


_LESS = "give a smaller cache_tokens, or smaller context_tokens and max_sequences"


@contextmanager
def _memory(config: EngineConfig) -> Iterator[None]:
    """Turn an allocation that fails into a TargetError."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise TargetError(
            f"the memory of {config.device} does not hold the model and K/V of {config.total_cache_tokens} tokens "
            f"({_first_line(error)[:200]}); {_LESS}"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def weights_digest(folder: Path) -> tuple[str, int]:
    """SHA-256 over the weight files in order of their names, and how many numbers they hold (a tied one once)."""
    digest = hashlib.sha256()
    parameters = 0
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
            parameters += sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
            stream.seek(0)
            while block := stream.read(1 << 22):
                digest.update(block)
    return digest.hexdigest(), parameters


def _costs(
    config: EngineConfig, target: DecoderModel, drafters: Mapping[str, Drafter], tell: Callable[[str], None]
) -> CostModel | None:
    controlled = {name: drafters[name] for name, served in config.drafters.items() if served.lengths == "goodput"}
    if not controlled:
        return None
    tell("measuring what forwards and drafts cost")
    return measure_costs(target, controlled, max_batch=config.max_sequences, progress=tell)


def _lengths(config: EngineConfig, drafters: Mapping[str, Drafter], costs: CostModel | None) -> dict[str, LengthPolicy]:
    policies: dict[str, LengthPolicy] = {}
    for name, served in config.drafters.items():
        if served.lengths == "goodput" and costs is not None:
            policies[name] = Goodput(costs, name, tree=drafters[name].tree)
        elif isinstance(served.lengths, dict):
            policies[name] = BatchTable(served.lengths)
    return policies


def _facts(config: EngineConfig, target: DecoderModel, digest: tuple[str, int]) -> dict[str, Any]:
    sha256, parameters = digest
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "threads": config.threads,
        "model": {
            "architecture": next(iter(target.config.architectures or ()), target.config.model_type),
            "model_type": target.config.model_type,
            "parameters": parameters,
            "layers": target.num_layers,
            "hidden_size": target.hidden_size,
            "vocab": target.vocab_size,
            "sha256": sha256,
            "storage": target.storage,
            "weight_bytes": target.weight_bytes,
        },
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
