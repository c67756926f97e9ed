"""What ``drafters adapt`` looks at before the first stage: whatever a later one would refuse after hours. Imports no torch."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from drafters.specs import SpecError
from drafters.training.adapt_plan import Link
from drafters.training.evaluate_input import BASELINE, input_files, read_arms, read_workloads, target_folder
from drafters.training.site import LoadedSite
from drafters.training.stage import StageError, check_apart

__all__ = ["check"]

OWN: Mapping[str, str] = {
    "regenerate": "corpus target weights base-url model tokenizer temperature max-tokens concurrency threads context-tokens "
    "limit-tokens out",
    "capture": "examples target weights layers limit-gib threads yes out",
    "train": "method target weights examples features start set mix tokens passes row-tokens rows rate precision patience seed "
    "threads out",
    "evaluate": "target weights drafter workload concurrency limit-tasks limit-steps max-tokens repeats lang out",
}
"""Stage → options that the chain sets, from the keys of the file: given once more they would win, and the record be wrong."""
OF_THE_DRAFTER = ("method", "model", "corpus")


def check(loaded: LoadedSite, chain: Sequence[Link], out: Path) -> None:
    """Raise StageError for what a stage would refuse, all of it at once, each line with file and line."""
    faults = [*_further(loaded), *_folders(loaded, out), *_method(loaded), *_start(loaded), *_layers(loaded)]
    if not faults:
        parsed = {link.stage: _parsed(link, loaded) for link in chain if link.stage != "compare"}
        faults = [*_arms(loaded), *_workloads(loaded, parsed["evaluate"])]
    if faults:
        raise StageError("\n".join(faults))


def _further(loaded: LoadedSite) -> Iterator[str]:
    """Options that would take the place of what the chain sets itself."""
    for stage, own in OWN.items():
        section = getattr(loaded.site, stage)
        for name in sorted(() if section is None else section.options.keys() & set(own.split())):
            place = loaded.lines.where(stage, "options", name)
            yield f"{place}: {stage}.options has {name!r}, which the chain sets itself; use the file's own keys, or leave it out"
    drafter = loaded.site.drafter
    for name in OF_THE_DRAFTER:
        if name in drafter.options:
            place = loaded.lines.where("drafter", "options", name)
            yield f"{place}: drafter.options has {name!r}, which the chain sets itself: what was trained is measured; leave it out"
    if "num_tokens" in drafter.options and drafter.num_tokens is not None:
        place = loaded.lines.where("drafter", "options", "num_tokens")
        yield f"{place}: num_tokens stands in drafter and in drafter.options; keep the first"


def _folders(loaded: LoadedSite, out: Path) -> Iterator[str]:
    """What is written lies apart from what is read, and the key apart from both."""
    corpus = loaded.site.corpus
    sources = [
        (("corpus", kind, index, "path"), loaded.file(source.path))
        for kind in ("documents", "conversations", "tasks")
        for index, source in enumerate(getattr(corpus, kind))
    ]
    models = [(("target", "model"), loaded.target)]
    if loaded.start is not None:
        models.append((("drafter", "start"), loaded.start))
    for location, path in (*sources, *models):
        try:
            check_apart(out, [path])
        except StageError as error:
            yield f"{loaded.lines.where(*location)}: {error}"
    if corpus.key_file is None:
        return
    key, place = loaded.file(corpus.key_file), loaded.lines.where("corpus", "key_file")
    if not key.parent.is_dir():
        yield f"{place}: {key.parent} does not exist, so no key can be made there; give a folder that does"
    if key.is_dir():
        yield f"{place}: {key} is a folder; give a file, which is made if it is not there"
    if key.is_relative_to(out):
        yield f"{place}: {key} lies in the output folder; keep the key apart from what it protects"
    for _, path in sources:
        if key.is_relative_to(path):
            yield f"{place}: {key} lies in {path}, which is learnt from; keep the key elsewhere"


def _method(loaded: LoadedSite) -> Iterator[str]:
    """Settings that the method does not have."""
    from pydantic import ValidationError

    from drafters.training.methods import METHODS, method_class

    drafter = loaded.site.drafter
    if drafter.method not in METHODS:
        return
    own = {"num_tokens": drafter.num_tokens} if drafter.num_tokens is not None else {}
    model = method_class(drafter.method).settings
    try:
        model.model_validate(own | drafter.settings)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        yield (
            f"{loaded.lines.where('drafter', 'settings', key)}: {key} is {first['input']!r:.80}: {first['msg']}; "
            f"settings of {drafter.method}: {', '.join(model.model_fields)}"
        )


def _start(loaded: LoadedSite) -> Iterator[str]:
    """A whole model where a drafter is to go on from; of a drafter's own kind the training tells more."""
    from drafters.convert import ARCHITECTURES

    if loaded.start is None or loaded.site.drafter.method == "draft_model":
        return
    named = _config(loaded.start).get("architectures") or []
    if loaded.start == loaded.target or set(map(str, named)) & set(ARCHITECTURES.values()):
        yield (
            f"{loaded.lines.where('drafter', 'start')}: drafter.start is {loaded.site.drafter.start!r}, a whole model and no "
            f"{loaded.site.drafter.method} drafter; give a checkpoint of that method, or leave it out for fresh weights"
        )


def _layers(loaded: LoadedSite) -> Iterator[str]:
    capture, last = loaded.site.capture, _config(loaded.target).get("num_hidden_layers")
    if capture is not None and isinstance(last, int) and max(capture.layers) > last:
        place = loaded.lines.where("capture", "layers")
        yield f"{place}: capture.layers has {max(capture.layers)}; the target allows 0 to {last}"


def _config(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}  # whoever loads the model says what is wrong with it
    return value if isinstance(value, dict) else {}


def _parsed(link: Link, loaded: LoadedSite) -> argparse.Namespace:
    """The stage's own reading of its command line. Raises StageError for what it does not take."""
    parser = argparse.ArgumentParser(prog=f"drafters {link.stage}", add_help=False, allow_abbrev=False)
    parser.error = partial(_refuse, loaded, link)  # type: ignore[method-assign]  # it would end the program
    importlib.import_module(f"drafters.training.{link.stage}_stage").add_arguments(parser)
    return parser.parse_args(link.argv()[1:])


def _refuse(loaded: LoadedSite, link: Link, message: str) -> NoReturn:
    section = "drafter" if link.stage == "quantize" else link.stage
    raise StageError(f"{loaded.lines.where(section)}: 'drafters {link.stage}' says: {message}")


def _arms(loaded: LoadedSite) -> Iterator[str]:
    for name, text in loaded.site.evaluate.arms.items():
        try:
            read_arms([f"{name}={text}"])
        except (StageError, SpecError) as error:
            yield f"{loaded.lines.where('evaluate', 'arms', name)}: {str(error).removeprefix('--drafter ')}"


def _workloads(loaded: LoadedSite, options: argparse.Namespace) -> Iterator[str]:
    """What the evaluation reads: workloads of its form, each once, with tasks that are there."""
    target = target_folder(options.target)
    paths = [path for group in options.workload for path in group]
    read: list[Path] = []
    for index, path in enumerate(paths):
        place = loaded.lines.where("evaluate", "workloads", index)
        try:
            contents = read_workloads([*read, path], options, target, [{"name": BASELINE, "method": "none"}])
        except StageError as error:
            yield f"{place}: {error}"
            continue
        read.append(path)
        for file in input_files(target, {path: contents[path]}, []).values():
            if not os.path.exists(file):  # noqa: PTH110  # Path.exists raises for a name that is too long
                yield f"{place}: {path} needs {file}, which does not exist"
