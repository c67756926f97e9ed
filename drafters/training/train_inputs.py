"""What a training is given: options read into settings, examples that belong to the target, and their hidden states."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import ValidationError

from drafters.training.examples import Example, read_examples
from drafters.training.stage import Manifest, StageError, digest, read_manifest

if TYPE_CHECKING:
    from torch import Tensor

    from drafters.checkpoint import Checkpoint
    from drafters.training.batches import Features
    from drafters.training.frozen import FrozenTarget
    from drafters.training.method import Method, MethodSettings

__all__ = [
    "Examples",
    "check_target",
    "completed",
    "features_of",
    "load_examples",
    "method_settings",
    "read_finished",
    "vocabulary",
]


def method_settings(method: str, given: Sequence[str], seed: int) -> MethodSettings:
    """Read ``key=value`` settings with the method's own model; values are JSON, or plain words.

    Raises StageError that names the key, what was given and what is allowed.
    """
    from drafters.training.methods import method_class

    model = method_class(method).settings
    values: dict[str, Any] = {"seed": seed}
    for setting in given:
        key, equals, text = setting.partition("=")
        if not equals:
            raise StageError(f"--set {setting!r} has no '='; give key=value")
        values[key.strip()] = _value(text.strip())
    try:
        return model.model_validate(values)
    except ValidationError as error:
        allowed = ", ".join(sorted(model.model_fields))
        problems = []
        for problem in error.errors():
            key = ".".join(map(str, problem["loc"]))
            message = problem["msg"].removeprefix("Value error, ")
            if problem["type"] == "extra_forbidden":
                problems.append(f"unknown key {key!r}; allowed: {allowed}")
            else:
                problems.append(
                    f"{key!r} is {problem['input']!r}: {message[:1].lower()}{message[1:]}" if key else message
                )
        raise StageError(f"--set for {method}: {'; '.join(problems)}") from error


def _value(text: str) -> Any:
    for spelled in (text, f"[{text}]") if "," in text else (text,):
        try:
            return json.loads(spelled)
        except ValueError:
            continue
    return text


def vocabulary(target: Path) -> int:
    """Entries of the target's vocabulary, from its configuration; the model itself says so again when it is loaded."""
    path = target / "config.json"
    try:
        return int(json.loads(path.read_text("utf-8"))["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StageError(f"{path} cannot be used ({error}); give the target's local Hugging Face folder") from error


def check_target(folder: Path, manifest: Manifest, target: Path, target_digest: str) -> None:
    """Raise StageError where the examples say that another target, or another tokenizer, wrote them."""
    said = manifest.inputs.get("target")
    if said is not None and said != target_digest:
        raise StageError(
            f"{folder} was written by another target (files {said[:12]}…, those of {target} are {target_digest[:12]}…); "
            "a drafter learns its own target's answers: regenerate them with this target"
        )
    tokenizer = manifest.inputs.get("tokenizer")  # of a target that a server ran
    own = target / "tokenizer.json"
    if tokenizer is not None and own.is_file() and digest(own) != tokenizer:
        raise StageError(f"{folder} was tokenized with another tokenizer than {own}; regenerate with this target's")


@runtime_checkable
class CountedSettings(Protocol):
    """Settings of a method that must know how often the target writes each token before its weights have a shape."""

    def counted(self, counts: Tensor, start: Checkpoint | None) -> tuple[MethodSettings, str]:
        """The settings completed by ``counts`` [vocab], and what is to be said of it."""
        ...


def completed(
    settings: MethodSettings,
    examples: Sequence[Example],
    mix: Mapping[str, float] | None,
    vocab_size: int,
    start: Checkpoint | None,
    say: Callable[[str], None],
) -> MethodSettings:
    """Give the settings what they need to know of the answers: counts of their tokens, each language group with its
    share of the mix, as training draws them."""
    if not isinstance(settings, CountedSettings):
        return settings
    import torch

    from drafters.training.batches import group_of

    written: dict[str, list[int]] = {}
    for example in examples:
        own = written.setdefault(group_of(example.language), [])
        for begin, end in example.answers:
            own += example.token_ids[begin:end]
    counts = {group: torch.bincount(torch.tensor(ids), minlength=vocab_size).double() for group, ids in written.items()}
    shares = {group: float(own.sum()) for group, own in counts.items()} if mix is None else mix
    weighted = [own * (shares.get(group, 0.0) / own.sum()) for group, own in sorted(counts.items())]
    made, said = settings.counted(torch.stack(weighted).sum(dim=0), start)
    say(said)
    return made


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples of all folders, ids made different; ``origin`` tells each one's folder, its id and its tokens there."""

    train: Sequence[Example]
    held_out: Sequence[Example]
    origin: Mapping[str, tuple[int, str, tuple[int, ...]]]
    cut: int
    dropped: int


def load_examples(
    folders: Sequence[Path], vocab_size: int, longest: int | None, held_out_needed: bool = True
) -> Examples:
    """Read the folders, whole ones alone, and cut what is longer than ``longest`` tokens.

    Raises StageError for a folder that is no finished work, for a line that is no example, and where nothing is left to
    train on or to hold out.
    """
    from drafters.training.batches import cropped

    found: list[Example] = []
    origin: dict[str, tuple[int, str, tuple[int, ...]]] = {}
    for number, folder in enumerate(folders):
        for example in read_examples(folder / "examples.jsonl", vocab_size):
            name = example.id if len(folders) == 1 else f"{number}:{example.id}"
            if name in origin:
                raise StageError(f"{folder} holds two examples of id {example.id!r}; run 'drafters regenerate' again")
            origin[name] = (number, example.id, example.token_ids)
            found.append(replace(example, id=name))
    kept, cut, dropped = (found, 0, 0) if longest is None else cropped(found, longest)
    train = [example for example in kept if example.split == "train"]
    held_out = [example for example in kept if example.split == "heldout"]
    if not train or (held_out_needed and not held_out):
        within = "" if longest is None else f" in their first {longest} tokens"
        raise StageError(
            f"{', '.join(map(str, folders))}: {len(train)} training and {len(held_out)} held-out examples with an answer"
            f"{within}; both are needed. Give more documents (the corpus is split by file), 'drafters corpus --held-out' "
            "above 0, or a larger --row-tokens"
        )
    return Examples(train, held_out, origin, cut, dropped)


def features_of(
    folders: Sequence[Path], examples: Examples, method: Method, target: FrozenTarget, fingerprint: str
) -> Features | None:
    """Captured hidden states, one folder for each folder of examples; ``None`` without any: the target is in the loop.

    Raises StageError for states of another target, of other tokens or without the layers that the method reads.
    """
    if not folders:
        return None
    from drafters.training.batches import Stored, StoredFeatures
    from drafters.training.features import FeatureStore

    stores = [FeatureStore(folder) for folder in folders]
    for store in stores:
        store.check(fingerprint, [*method.feature_layers, target.num_layers])
    places = {}
    for name, (number, own, token_ids) in examples.origin.items():
        if own not in stores[number]:
            raise StageError(f"{folders[number]} has no example {own!r}; capture the examples that training is given")
        places[name] = Stored(stores[number], own, token_ids)
    return StoredFeatures(places, target)


def read_finished(folders: Sequence[Path]) -> list[Manifest]:
    """The manifests of the folders of examples."""
    return [read_manifest(folder, "regenerate") for folder in folders]
