"""The check of a workload's arms and engine options for the builtin engine, and its configuration made of them.

Drafters, their options and the engine's settings are those of `drafters.specs` and `drafters.engine.config`; nothing about them is
repeated here. ``lengths`` among an arm's options is how draft lengths are chosen, all others belong to the drafter.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drafters.engine.config import EngineConfig, ServedDrafter
from drafters.specs import SPECS, SpecError, parse_spec
from harness.addresses import address_fault
from harness.errors import ModelError, WorkloadError
from harness.models import drafter_name, drafter_path, is_drafter, resolve_folder
from harness.workload import Arm, EngineSpec, LoadedWorkload

OPTIONS = ("dtype", "weights", "device", "prefix_reuse", "prefill_tokens", "verification")
"""The keys of ``engine.options``: those settings of the engine that neither the workload nor the harness decides otherwise."""
OWNER = "the builtin engine"
METHODS = ("none", *SPECS)
_FILES = ("model", "corpus")  # the options that name a file or folder


def served(method: str, options: Mapping[str, Any]) -> ServedDrafter:
    """Return the drafter that a method with its options describes.

    Raises:
        SpecError: if the method or an option is unknown, or a value is not allowed.
    """
    own = {key: value for key, value in options.items() if key != "lengths"}
    spec = parse_spec({**own, "method": method})
    lengths = options.get("lengths", "fixed")
    try:
        return ServedDrafter(spec=spec, lengths=lengths)
    except ValidationError as error:
        close = difflib.get_close_matches(str(lengths), ("fixed", "goodput"), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise SpecError(
            f"lengths is {lengths!r:.80}; {hint}allowed: fixed, goodput, or a table from the smallest number of sequences to the "
            "draft length from there on, such as {1: 8, 4: 3, 16: 0}"
        ) from error


def engine_config(
    spec: EngineSpec, arms: Sequence[Arm], model: Path, *, concurrency: int, served_name: str
) -> EngineConfig:
    """Return the configuration of the one server that carries all arms of a run; its arms and options were checked before."""
    return EngineConfig(
        model=model,
        served_name=served_name,
        threads=spec.threads,
        drafters={arm.name: _absolute(served(arm.method, arm.options)) for arm in arms if arm.method != "none"},
        max_sequences=concurrency,
        context_tokens=spec.context_tokens,
        **spec.options,
    )


def differences(wanted: ServedDrafter, found: Any) -> list[str]:
    """Return in which settings a running server's drafter, as it describes it, is not the wanted one; empty if it is.

    Paths are compared as they are written: they are the server's own.
    """
    try:
        there = ServedDrafter.model_validate(found).model_dump(mode="json")
    except ValidationError:
        return [f"the server describes it as {found!r:.120}"]
    here = wanted.model_dump(mode="json")
    if here["spec"]["method"] != there["spec"]["method"]:
        return [f"method {there['spec']['method']} instead of {here['spec']['method']}"]
    pairs = [(key, here["spec"][key], there["spec"][key]) for key in here["spec"]]
    pairs.append(("lengths", here["lengths"], there["lengths"]))
    return [f"{key} {is_there!r} instead of {want!r}" for key, want, is_there in pairs if want != is_there]


def check_arms(loaded: LoadedWorkload) -> None:
    """Check methods, options, addresses, engine options and the model of a workload; nothing is started.

    Raises:
        WorkloadError: one line a fault, each with file and line.
    """
    faults = [fault for index in range(len(loaded.workload.arms)) for fault in _arm_faults(loaded, index)]
    faults += _option_faults(loaded) + _address_faults(loaded)
    if loaded.workload.engine.base_url is None:
        faults += _model_faults(loaded)
    if faults:
        raise WorkloadError("\n".join(dict.fromkeys(faults)))


def check_engine_options(loaded: LoadedWorkload) -> None:
    """Check the engine options of a workload alone.

    Raises:
        WorkloadError: one line a fault, each with file and line.
    """
    if faults := _option_faults(loaded):
        raise WorkloadError("\n".join(dict.fromkeys(faults)))


def file_faults(drafter: ServedDrafter) -> Iterator[tuple[str, str]]:
    """Yield option and complaint of every file or folder that a drafter names and that cannot be what it needs."""
    for key in _FILES:
        path = getattr(drafter.spec, key, None)
        if not isinstance(path, Path):
            continue
        given = repr(str(path))
        try:
            there = _located(path)
        except ModelError as error:
            yield key, str(error)
            continue
        if key == "model" and not there.is_dir():
            yield key, f"no folder {given}; give the path of one that is there"
        elif key == "model" and not ((there / "config.json").is_file() and any(there.glob("*.safetensors"))):
            yield key, f"{given} holds no model: it needs config.json and *.safetensors; name the folder that has them"
        elif key != "model" and not there.is_file():
            yield key, f"no file {given}; give the path of one that is there"


def expanded(drafter: ServedDrafter) -> ServedDrafter:
    """Return the drafter with ``~`` and ``ref:…`` in its paths replaced; relative ones stay as they are written."""
    return _with_paths(drafter, _located)


def shipped_by_name(drafter: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a drafter, as a server tells it, with the names of those that come with the package in place of their paths."""
    if drafter is None:
        return None
    names = {key: drafter_name(Path(drafter[key])) for key in _FILES if isinstance(drafter.get(key), str)}
    return {**drafter, **{key: name for key, name in names.items() if name is not None}}


def explain(error: ValidationError, owner: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return key and complaint of every fault; ``owner`` is what has the keys, ``names`` are those that it has."""
    found = []
    for item in error.errors():
        key = str(item["loc"][0]) if item["loc"] else ""
        # pydantic adds the name of a union's member to the place; it is no key of the file
        where = ".".join(
            str(part) for part in item["loc"] if not str(part).startswith(("tuple[", "float", "literal[", "[key]"))
        )
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden" and len(item["loc"]) > 1:
            found.append((key, f"unknown key {where!r}; remove it"))
        elif item["type"] == "extra_forbidden":
            found.append((key, unknown(key, owner, names)))
        elif item["type"] == "missing":
            found.append((key, f"{owner} needs {where}; give it"))
        else:
            given = f"{where} is {item['input']!r:.80}: " if where else f"{owner}: "
            found.append((key, f"{given}{message[:1].lower()}{message[1:]}"))
    return found


def unknown(key: str, owner: str, names: Sequence[str]) -> str:
    """Return the complaint about a key that there is not."""
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{owner} has no option {key!r}; {hint}it has {', '.join(names)}"


def _arm_faults(loaded: LoadedWorkload, index: int) -> list[str]:
    arm = loaded.workload.arms[index]
    faults = []
    if arm.draft_model is not None:
        faults.append(
            f"{loaded.where('arms', index, 'draft_model')}: arms of the builtin engine take no draft_model; the method draft_model "
            "takes the folder of a model as options: {model: FOLDER}"
        )
    if arm.method == "none":
        at = loaded.where("arms", index, "options")
        return [*faults, f"{at}: none has no options; it drafts nothing"] if arm.options else faults
    if arm.method not in SPECS:
        close = difflib.get_close_matches(arm.method, METHODS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return [
            *faults,
            f"{loaded.where('arms', index, 'method')}: the builtin engine has no method {arm.method!r}; {hint}"
            f"known: {', '.join(METHODS)}; an arm for another engine says so, as in engine: llamacpp",
        ]
    if "method" in arm.options:
        at = loaded.where("arms", index, "options", "method")
        return [*faults, f"{at}: the method stands beside the options, not in them; remove it"]
    found = list(_spec_faults(loaded, index, arm))
    if not found and loaded.workload.engine.base_url is None:
        found = list(_file_faults(loaded, index, arm))
    return faults + found


def _spec_faults(loaded: LoadedWorkload, index: int, arm: Arm) -> Iterator[str]:
    own = {key: value for key, value in arm.options.items() if key != "lengths"}
    try:
        parse_spec({**own, "method": arm.method})
    except SpecError as error:
        names = [name for name in SPECS[arm.method].model_fields if name != "method"]
        cause = error.__cause__
        found = (
            explain(cause, arm.method, [*names, "lengths"])
            if isinstance(cause, ValidationError)
            else [("", str(error))]
        )
        for key, text in found:
            yield f"{loaded.where('arms', index, 'options', key)}: {text}"
        return
    try:
        served(arm.method, arm.options)
    except SpecError as error:
        yield f"{loaded.where('arms', index, 'options', 'lengths')}: {error}"


def _file_faults(loaded: LoadedWorkload, index: int, arm: Arm) -> Iterator[str]:
    for key, text in file_faults(served(arm.method, arm.options)):
        yield f"{loaded.where('arms', index, 'options', key)}: {text}"


def _option_faults(loaded: LoadedWorkload) -> list[str]:
    options = loaded.workload.engine.options
    faults = [
        f"{loaded.where('engine', 'options', key)}: {unknown(key, OWNER, OPTIONS)}"
        for key in options
        if key not in OPTIONS
    ]
    try:
        EngineConfig(model=Path("model"), **{key: value for key, value in options.items() if key in OPTIONS})
    except ValidationError as error:
        faults += [f"{loaded.where('engine', 'options', key)}: {text}" for key, text in explain(error, OWNER, OPTIONS)]
    return faults


def _address_faults(loaded: LoadedWorkload) -> list[str]:
    address = loaded.workload.engine.base_url
    faults = []
    if address is not None and (fault := address_fault(address)) is not None:
        faults.append(f"{loaded.where('engine', 'base_url')}: base_url is {fault}")
    for index, arm in enumerate(loaded.workload.arms):
        if arm.base_url is not None and arm.base_url != address:
            faults.append(
                f"{loaded.where('arms', index, 'base_url')}: one builtin server carries all arms; give its address once, as "
                f"engine.base_url, and none for the arm {arm.name!r}"
            )
    return faults


def _model_faults(loaded: LoadedWorkload) -> list[str]:
    engine = loaded.workload.engine
    try:
        folder = resolve_folder(engine.model, fetch=False).path
    except ModelError as error:
        return [f"{loaded.where('engine', 'model')}: {error}"]
    longest = _positions(folder)
    if longest is not None and longest < engine.context_tokens:
        return [
            f"{loaded.where('engine', 'context_tokens')}: context_tokens is {engine.context_tokens}, but {engine.model} reads "
            f"at most {longest} tokens; give no more than that (--context-tokens {longest})"
        ]
    return []


def _positions(folder: Path) -> int | None:
    """How many tokens a model reads, ``None`` where its configuration does not say or is not there yet."""
    try:
        found = json.loads((folder / "config.json").read_text("utf-8")).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None


def _absolute(drafter: ServedDrafter) -> ServedDrafter:
    return _with_paths(drafter, lambda path: _located(path).resolve())


def _located(path: Path) -> Path:
    """Return where a path leads that may name a drafter of the package."""
    return drafter_path(str(path)) if is_drafter(str(path)) else path.expanduser()


def _with_paths(drafter: ServedDrafter, change: Callable[[Path], Path]) -> ServedDrafter:
    paths = {key: getattr(drafter.spec, key, None) for key in _FILES}
    found = {key: change(path) for key, path in paths.items() if isinstance(path, Path)}
    return drafter.model_copy(update={"spec": drafter.spec.model_copy(update=found)}) if found else drafter
