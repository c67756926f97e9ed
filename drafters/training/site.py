"""The site's file: what ``drafters adapt`` is to learn from, for which target, and how it is measured. Imports no torch.

Paths are relative to the file. Every complaint names file and line, what was given and what is allowed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from drafters import reference
from drafters.specs import SPECS, SpecError
from drafters.training.adapt_defaults import METHOD, mix_of, num_tokens
from drafters.training.conversations import LANGUAGES
from drafters.training.evaluate_input import check_served
from drafters.training.stage import StageError
from drafters.training.yaml_lines import Lines, explain, read_yaml

__all__ = ["LoadedSite", "Site", "drafter_spec", "load_site"]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Weights = Literal["plain", "rtn4", "nf4"]
Count = Annotated[int, Field(ge=1)]
Further = dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], bool | str | int | float]
"""More options of a stage by their names on its command line, without the dashes; ``true`` for one without a value."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Target(_Strict):
    """``model``: a shipped model by name, or a Hugging Face folder; ``weights``: how the server holds them."""

    model: str
    weights: Weights = "plain"


class Drafter(_Strict):
    """What is trained.

    ``start``: a shipped drafter by name or a checkpoint folder to go on from; absent: fresh weights. ``weights``: as
    deployed; 4-bit ones are measured with the values they then have. ``settings`` are the method's for training,
    ``options`` those of the served drafter (keys of `drafters.specs`, and ``lengths``); ``num_tokens`` is both, and absent
    that of `drafters.training.adapt_defaults`.
    """

    method: Literal["dflash", "dflash2", "draft_model", "eagle3", "medusa", "mtp", "ngram"] = METHOD
    start: str | None = None
    weights: Weights = "plain"
    num_tokens: Count | None = None
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _tables_are_counted(self) -> Self:
        if self.method == "ngram" and (self.start is not None or self.weights != "plain"):
            raise ValueError("an ngram table is counted anew and has no weights; leave out start and weights")
        return self


class Source(_Strict):
    """A file or folder, with what is in it where that is known; the path alone may stand for it."""

    path: str
    language: str | None = None
    text_type: Name | None = None

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, data: Any) -> Any:
        return {"path": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _known_language(self) -> Self:
        if self.language is not None and self.language not in LANGUAGES:
            raise ValueError(f"language is {self.language!r}; allowed: {', '.join(LANGUAGES)}")
        if self.text_type is not None and self.language is None:
            raise ValueError("text_type stands without language; give both, or neither")
        return self


class Corpus(_Strict):
    """What is read, and how it is masked before anything is stored.

    ``max_characters``: of one document's piece. ``key_file``: the secret behind the surrogates, made if it is not there.
    """

    documents: list[Source] = []
    conversations: list[Source] = []
    tasks: list[Source] = []
    masking: Literal["surrogate", "label", "none"] = "surrogate"
    key_file: str | None = None
    held_out: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    seed: Annotated[int, Field(ge=0)] = 1
    max_characters: Annotated[int, Field(ge=200)] | None = None
    limit: Count | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not (self.documents or self.conversations or self.tasks):
            raise ValueError("nothing to learn from; name documents, conversations or tasks")
        return self


class Server(_Strict):
    """A running OpenAI-compatible server of the same target, with the folder of its tokenizer."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^/?#\s]+")]
    model: str
    tokenizer: str


class Regenerate(_Strict):
    """How the target answers. ``server``: another engine than the builtin one. ``limit_tokens``: of all answers."""

    temperatures: Annotated[list[Annotated[float, Field(ge=0, le=2)]], Field(min_length=1)] = [0.0]
    max_tokens: Count = 200
    concurrency: Count | None = None
    context_tokens: Count | None = None
    threads: Count | None = None
    limit_tokens: Count | None = None
    server: Server | None = None
    options: Further = {}


class Capture(_Strict):
    """Hidden states stored before training; where this is absent, the target runs along. ``yes``: beyond the limit too."""

    layers: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    limit_gib: Annotated[float, Field(gt=0)] | None = None
    yes: bool = False
    options: Further = {}


class Train(_Strict):
    """Budget and pace. ``tokens``, or so many ``passes`` over what the target wrote; ``mix``: shares of the tokens by language
    group, so that English and code are not forgotten. What is absent is that of `drafters.training.adapt_defaults`."""

    tokens: Count | None = None
    passes: Annotated[float, Field(gt=0)] | None = None
    row_tokens: Count | None = None
    rows: Count | None = None
    rate: Annotated[float, Field(gt=0)] | None = None
    precision: Literal["bf16", "fp32"] | None = None
    patience: Annotated[int, Field(ge=0)] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    threads: Count | None = None
    options: Further = {}
    mix: dict[Literal["ko", "en", "code"], Annotated[float, Field(ge=0)]] = {}

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if self.tokens is not None and self.passes is not None:
            raise ValueError("tokens and passes both give the budget; keep one")
        return self

    @model_validator(mode="after")
    def _some_share(self) -> Self:
        if self.mix and sum(self.mix.values()) <= 0:
            raise ValueError("mix gives no group a share; give at least one above 0")
        return self


class Evaluate(_Strict):
    """The measurement, before and after on the same prompts in one run of the harness.

    ``arms``: further drafters beside them, described as for ``drafters evaluate`` (``prompt_lookup,num_tokens=8``).
    ``plain_too``: with a 4-bit drafter also the trained one in plain weights. ``two_runs``: before and after each in a
    run of its own as well, put side by side by ``harness compare``.
    """

    workloads: Annotated[list[str], Field(min_length=1)]
    concurrency: Annotated[list[Count], Field(min_length=1)] = [1]
    limit_tasks: Count | None = None
    limit_steps: Count | None = None
    max_tokens: Count | None = None
    repeats: Count | None = None
    arms: dict[Name, str] = {}
    plain_too: bool = True
    two_runs: bool = False
    options: Further = {}

    @model_validator(mode="after")
    def _own_names(self) -> Self:
        taken = sorted(self.arms.keys() & {"baseline", "before", "after", "after-plain"})
        if taken:
            raise ValueError(f"arms has {taken[0]!r}, a name of the chain's own; choose another")
        return self


class Site(_Strict):
    """One site's adaptation."""

    name: Name
    target: Target
    drafter: Drafter = Drafter()
    corpus: Corpus
    regenerate: Regenerate = Regenerate()
    capture: Capture | None = None
    train: Train = Train()
    evaluate: Evaluate

    @property
    def draft_tokens(self) -> int | None:
        """Tokens of a draft, trained for and served; ``None``: told elsewhere in the file, or the method's own default."""
        if (
            self.drafter.num_tokens is not None
            or "num_tokens" in self.drafter.options.keys() | self.drafter.settings.keys()
        ):
            return self.drafter.num_tokens
        return num_tokens(self.drafter.method, (source.text_type for source in self._sources()))

    @property
    def mix(self) -> dict[str, float]:
        """Shares of the language groups in what is learnt from; none: as they come."""
        if self.train.mix or self.drafter.method == "ngram":
            return {str(group): share for group, share in self.train.mix.items()}
        return mix_of(source.language for source in self._sources())

    def _sources(self) -> list[Source]:
        return [*self.corpus.documents, *self.corpus.conversations, *self.corpus.tasks]


@dataclass(frozen=True, slots=True)
class LoadedSite:
    """A checked file. Everything that it names by path is there, when it was read."""

    path: Path
    sha256: str
    site: Site
    lines: Lines

    @property
    def target(self) -> Path:
        """The target's folder."""
        return self.model("target", "model")

    @property
    def start(self) -> Path | None:
        """The checkpoint to go on from."""
        return None if self.site.drafter.start is None else self.model("drafter", "start")

    def file(self, given: str) -> Path:
        """The path behind an entry of the file. Raises StageError for what can be none."""
        try:
            path = (self.path.parent / Path(given).expanduser()).resolve()
            path.exists()
        except (OSError, RuntimeError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise StageError(f"{given!r:.80} is no path ({reason}); give one that is") from error
        return path

    def model(self, *key: str) -> Path:
        """The folder behind a shipped name or a path. Raises StageError where neither is there."""
        given: Any = self.site
        for part in key:
            given = getattr(given, part)
        place = f"{self.lines.where(*key)}: {'.'.join(key)} is {given!r:.80}"
        try:
            folder = self.file(given)
        except StageError as error:
            raise StageError(f"{place}: {error}") from error
        if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
            return folder
        if folder.exists() or ("/" in given and not given.startswith(reference.PREFIX)):
            state = "lacks config.json or *.safetensors" if folder.exists() else "does not exist"
            raise StageError(f"{place}: {folder} {state}; give a model's folder, or the name of a shipped one")
        try:
            return reference.target() if given == reference.TARGET else reference.drafter(given)
        except reference.MissingReference as error:
            raise StageError(
                f"{place}: no model folder (config.json, *.safetensors), and of the shipped ones: {error}"
            ) from error


def load_site(path: Path) -> LoadedSite:
    """Read and check a site's file. Raises StageError, one line a fault, each with file and line."""
    data, lines = read_yaml(path)
    try:
        site = Site.model_validate(data)
    except ValidationError as error:
        raise StageError(explain(error, Site, lines)) from error
    loaded = LoadedSite(path, hashlib.sha256(path.read_bytes()).hexdigest(), site, lines)
    faults = list(_faults(loaded))
    if faults:
        raise StageError("\n".join(faults))
    return loaded


def drafter_spec(site: Site, checkpoint: Path | None) -> dict[str, Any]:
    """The served drafter as keys and values; ``checkpoint``: folder of its weights or counts, ``None`` without."""
    drafter = site.drafter
    made: dict[str, Any] = {"method": drafter.method}
    if checkpoint is not None:
        made |= {"corpus": str(checkpoint / "corpus.txt")} if drafter.method == "ngram" else {"model": str(checkpoint)}
    if (length := site.draft_tokens) is not None:
        made["num_tokens"] = length
    return made | drafter.options


def _faults(loaded: LoadedSite) -> Iterator[str]:
    site, lines = loaded.site, loaded.lines
    named: list[tuple[tuple[str | int, ...], str]] = []
    for key in ("documents", "conversations", "tasks"):
        sources: list[Source] = getattr(site.corpus, key)
        named += [(("corpus", key, index, "path"), source.path) for index, source in enumerate(sources)]
    named += [(("evaluate", "workloads", index), given) for index, given in enumerate(site.evaluate.workloads)]
    if site.regenerate.server is not None:
        named.append((("regenerate", "server", "tokenizer"), site.regenerate.server.tokenizer))
    if site.corpus.key_file is not None:
        named.append((("corpus", "key_file"), site.corpus.key_file))
    for location, given in named:
        try:
            path = loaded.file(given)
        except StageError as error:
            yield f"{lines.where(*location)}: {error}"
            continue
        if not path.exists() and location != ("corpus", "key_file"):  # the key is made where there is none
            yield f"{lines.where(*location)}: no file or folder {given!r}; paths are relative to {loaded.path.parent}"
        elif location[:2] == ("corpus", "tasks") and path.is_dir():
            yield f"{lines.where(*location)}: {given!r} is a folder; give the file, such as tasks.jsonl"
    models = [("target", "model")] + ([("drafter", "start")] if site.drafter.start is not None else [])
    for place in models:
        try:
            loaded.model(*place)
        except StageError as error:
            yield str(error)
    if site.train.mix and site.drafter.method == "ngram":
        yield f"{lines.where('train', 'mix')}: an ngram table counts all text once; leave out mix"
    try:
        check_served(drafter_spec(site, Path("checkpoint")))
    except SpecError as error:
        yield f"{lines.where('drafter', 'options')}: {error}"
    yield from _arm_faults(loaded)


def _arm_faults(loaded: LoadedSite) -> Iterator[str]:
    for name, text in loaded.site.evaluate.arms.items():
        method = text.partition(",")[0].strip()
        if method not in SPECS:
            place = loaded.lines.where("evaluate", "arms", name)
            yield f"{place}: arm {name!r} has method {method!r}; allowed: {', '.join(sorted(SPECS))}"
