"""`harness serve`: the builtin server in the foreground, its configuration made of the command line and a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from drafters.engine.config import EngineConfig, ServedDrafter
from drafters.specs import SpecError, split_spec
from harness.engines.builtin import require_packages
from harness.engines.builtin_options import expanded, explain, file_faults, served
from harness.errors import UsageError
from harness.models import Progress, resolve_folder


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """What the command line says; ``settings`` are fields of the engine's configuration, those not given left out."""

    model: str | None
    drafters: Sequence[str]
    config_file: Path | None
    settings: Mapping[str, Any]


def configuration(request: ServeRequest, progress: Progress) -> EngineConfig:
    """Return the checked configuration; what the command line says stands over what the file says.

    A model named on the command line is fetched and converted if needed; a file names a Hugging Face folder.

    Raises:
        UsageError: on any bad value, before anything is fetched or started.
        ModelError: if the model is missing or cannot be made.
    """
    data = {} if request.config_file is None else _read(request.config_file)
    data = {**data, **request.settings}
    if named := dict(_drafters(request.drafters)):
        given = data.get("drafters")
        data["drafters"] = {**(given if isinstance(given, dict) else {}), **named}
    model = request.model or data.get("model")
    if not isinstance(model, str):
        raise UsageError("no model given; for example: harness serve smollm2-135m, or a --config file with one")
    found = resolve_folder(model, fetch=False)
    data |= {"model": str(found.path), "served_name": data.get("served_name") or found.name}
    try:
        config = EngineConfig.model_validate(data)
    except ValidationError as error:
        names = list(EngineConfig.model_fields)
        raise UsageError("\n".join(text for _, text in explain(error, "the server", names))) from error
    drafters = {name: expanded(drafter) for name, drafter in config.drafters.items()}
    config = config.model_copy(update={"drafters": drafters})
    if faults := [f"drafter {name}: {key}: {text}" for name in drafters for key, text in file_faults(drafters[name])]:
        raise UsageError("\n".join(faults))
    require_packages()
    resolve_folder(model, progress=progress)
    return config


def become_server(config: EngineConfig) -> NoReturn:
    """Replace this process with the server, so that signals, terminal and exit code are the server's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "drafters.engine.server", "--config", config.model_dump_json()]
    os.execv(sys.executable, command)


def drafter_of(text: str) -> tuple[str, ServedDrafter]:
    """Read one ``NAME=METHOD[,key=value…]``; values are YAML, so that lists and tables can be given.

    Raises:
        UsageError: saying what is wrong with it.
    """
    try:
        name, method, options = split_spec(text)
    except SpecError as error:
        raise UsageError(f"--drafter {error}") from error
    try:
        return name, served(method, options)
    except SpecError as error:
        raise UsageError(f"--drafter {text!r}: {error}") from error


def _drafters(texts: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    seen: set[str] = set()
    for text in texts:
        name, drafter = drafter_of(text)
        if name in seen:
            raise UsageError(f"--drafter names {name!r} twice; each name must be different")
        seen.add(name)
        yield name, drafter.model_dump(mode="json")


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"--config {path}: {error.strerror}; give a JSON file of the server's configuration"
        ) from error
    except ValueError as error:
        raise UsageError(f"--config {path}: not JSON ({error}); correct the file") from error
    if not isinstance(value, dict):
        raise UsageError(f"--config {path}: a configuration is an object of keys, not {type(value).__name__}")
    return value
