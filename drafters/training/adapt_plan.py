"""The chain as command lines: which stages a site's file asks for, each with its folder. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafters.training.adapt_defaults import PASSES
from drafters.training.site import LoadedSite, drafter_spec

__all__ = ["Link", "links"]

CHECKPOINT, RUN = "checkpoint", "run"
SHARES = {"corpus": 1, "regenerate": 30, "capture": 8, "train": 45, "quantize": 1, "evaluate": 20, "compare": 1}
"""How long stages take against one another: a first estimate, until the stages of this very chain tell better."""


@dataclass(frozen=True, slots=True)
class Link:
    """One stage of the chain. ``options`` are its command line behind the stage's name, ``--out`` left out."""

    name: str
    stage: str
    folder: Path
    options: tuple[tuple[str, ...], ...]

    @property
    def share(self) -> int:
        """Time against that of the other stages."""
        return SHARES[self.stage]

    def argv(self) -> list[str]:
        """Command line behind ``python -m drafters.cli``, of ``compare`` behind ``python -m harness``."""
        return [self.stage, *(word for option in self.options for word in option), "--out", str(self.folder)]

    def asked(self, out: Path) -> list[list[str]]:
        """The options as they are remembered, paths within ``out`` told from it, so that the folder may be moved."""
        return [[word.replace(str(out), "OUT") for word in option] for option in self.options]


def links(loaded: LoadedSite, out: Path) -> list[Link]:
    """Return the chain in order. Checkpoints to be measured are those of ``quantize`` where the drafter is 4-bit."""
    made: list[Link] = []

    def add(name: str, stage: str, options: Iterator[tuple[str, ...]]) -> Path:
        folder = out / f"{len(made) + 1:02}-{name}"
        made.append(Link(folder.name, stage, folder, tuple(options)))
        return folder

    corpus = add("corpus", "corpus", _corpus(loaded))
    answers = add("regenerate", "regenerate", _regenerate(loaded, corpus))
    features = None
    if loaded.site.capture is not None and loaded.site.drafter.method != "ngram":
        features = add("capture", "capture", _capture(loaded, answers))
    trained = add("train", "train", _train(loaded, answers, features)) / CHECKPOINT
    before, plain, after = loaded.start, None, trained
    if (scheme := loaded.site.drafter.weights) != "plain":
        plain, after = trained, add("quantize", "quantize", _quantize(trained, scheme, loaded.start)) / CHECKPOINT
        if loaded.start is not None:
            before = add("quantize-start", "quantize", _quantize(loaded.start, scheme, None)) / CHECKPOINT
    arms = _arms(loaded, before, plain if loaded.site.evaluate.plain_too else None, after)
    run = add("evaluate", "evaluate", _evaluate(loaded, arms)) / RUN
    if "before" in arms:
        add("compare", "compare", _compare(run))
        if loaded.site.evaluate.two_runs:
            runs = [
                add(f"evaluate-{name}", "evaluate", _evaluate(loaded, {name: arms[name]})) / RUN
                for name in ("before", "after")
            ]
            add("compare-runs", "compare", _compare(*runs))
    return made


def _corpus(loaded: LoadedSite) -> Iterator[tuple[str, ...]]:
    corpus = loaded.site.corpus
    for key in ("documents", "conversations", "tasks"):
        for source in getattr(corpus, key):
            tags = "/".join(tag for tag in (source.language, source.text_type) if tag is not None)
            yield f"--{key}", f"{loaded.file(source.path)}{'=' + tags if tags else ''}"
    yield "--mask", corpus.masking
    if corpus.key_file is not None:
        yield "--key-file", str(loaded.file(corpus.key_file))
    yield from _given({"held-out": corpus.held_out, "seed": corpus.seed})
    yield from _given({"max-characters": corpus.max_characters, "limit": corpus.limit})


def _regenerate(loaded: LoadedSite, corpus: Path) -> Iterator[tuple[str, ...]]:
    asked = loaded.site.regenerate
    yield "--corpus", str(corpus)
    if asked.server is None:
        yield from _target(loaded)
    else:
        yield "--base-url", asked.server.base_url
        yield "--model", asked.server.model
        yield "--tokenizer", str(loaded.file(asked.server.tokenizer))
    yield "--temperature", *map(str, asked.temperatures)
    yield from _given({"max-tokens": asked.max_tokens, "concurrency": asked.concurrency, "threads": asked.threads})
    yield from _given({"context-tokens": asked.context_tokens, "limit-tokens": asked.limit_tokens} | asked.options)


def _capture(loaded: LoadedSite, answers: Path) -> Iterator[tuple[str, ...]]:
    asked = loaded.site.capture
    if asked is None:
        return
    yield "--examples", str(answers)
    yield from _target(loaded)
    yield "--layers", ",".join(map(str, asked.layers))
    yield from _given({"limit-gib": asked.limit_gib, "threads": loaded.site.train.threads})
    yield from _given(asked.options)
    if asked.yes:
        yield ("--yes",)


def _train(loaded: LoadedSite, answers: Path, features: Path | None) -> Iterator[tuple[str, ...]]:
    drafter, train = loaded.site.drafter, loaded.site.train
    yield "--method", drafter.method
    yield from _target(loaded)
    yield "--examples", str(answers)
    if features is not None:
        yield "--features", str(features)
    if loaded.start is not None:
        yield "--start", str(loaded.start)
    settings = dict(drafter.settings)
    if (length := loaded.site.draft_tokens) is not None and drafter.method != "ngram":
        settings.setdefault("num_tokens", length)
    for key, value in settings.items():
        yield "--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"
    if mix := loaded.site.mix:
        yield "--mix", ",".join(f"{group}={share}" for group, share in mix.items())
    passes = train.passes or (PASSES if train.tokens is None else None)
    yield from _given(
        {
            "tokens": train.tokens,
            "passes": passes,
            "row-tokens": train.row_tokens,
            "rows": train.rows,
            "rate": train.rate,
        }
    )
    yield from _given({"precision": train.precision, "patience": train.patience, "seed": train.seed})
    yield from _given({"threads": train.threads} | train.options)


def _quantize(checkpoint: Path, scheme: str, base: Path | None) -> Iterator[tuple[str, ...]]:
    yield "--model", str(checkpoint)
    yield "--scheme", scheme
    if base is not None:
        yield "--base", str(base)


def _arms(loaded: LoadedSite, before: Path | None, plain: Path | None, after: Path) -> dict[str, str]:
    arms = {}
    if before is not None or loaded.site.drafter.method == "ngram":
        arms["before"] = _spec(loaded, before)  # an ngram drafter without a corpus counts the sequence alone
    arms["after"] = _spec(loaded, after)
    if plain is not None:
        arms["after-plain"] = _spec(loaded, plain)
    return arms | loaded.site.evaluate.arms


def _spec(loaded: LoadedSite, checkpoint: Path | None) -> str:
    """``METHOD,key=value…``, as ``drafters evaluate`` and ``harness serve`` take a drafter."""
    spec = drafter_spec(loaded.site, checkpoint)
    method = spec.pop("method")
    return ",".join(
        [method, *(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in spec.items())]
    )


def _evaluate(loaded: LoadedSite, arms: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    asked = loaded.site.evaluate
    yield from _target(loaded)
    for name, spec in arms.items():
        yield "--drafter", f"{name}={spec}"
    for given in asked.workloads:
        yield "--workload", str(loaded.file(given))
    yield "--concurrency", ",".join(map(str, asked.concurrency))
    yield from _given({"limit-tasks": asked.limit_tasks, "limit-steps": asked.limit_steps})
    yield from _given({"max-tokens": asked.max_tokens, "repeats": asked.repeats} | asked.options)


def _compare(*runs: Path) -> Iterator[tuple[str, ...]]:
    """Of ``harness compare``: one run's two arms, or two runs."""
    yield tuple(map(str, runs))
    yield "--arms", "before=after"


def _target(loaded: LoadedSite) -> Iterator[tuple[str, ...]]:
    yield "--target", str(loaded.target)
    if loaded.site.target.weights != "plain":
        yield "--weights", loaded.site.target.weights


def _given(options: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in options.items():
        if value is True:
            yield (f"--{name}",)
        elif value is not None and value is not False:
            yield f"--{name}", str(value)
