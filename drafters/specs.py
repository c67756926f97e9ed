"""How a drafter is described in a file or a request: a union on ``method``. Imports no torch.

Each spec names the class that carries it out (``implementation``, ``module:class``), so that a new drafter is one file
and one spec, and `drafters.catalog` needs no edit.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

__all__ = [
    "SPECS",
    "DFlash2Spec",
    "DFlashSpec",
    "DraftModelSpec",
    "DrafterSpec",
    "Eagle3Spec",
    "MedusaSpec",
    "MtpSpec",
    "NgramSpec",
    "PromptLookupSpec",
    "SpecError",
    "SyntheticSpec",
    "parse_spec",
    "split_spec",
]

MAX_NODES = 256
SPEC_FORM = "NAME=METHOD[,key=value…], for example lookup=prompt_lookup,num_tokens=8,lengths=goodput"


class SpecError(ValueError):
    """A drafter's description is wrong; the message says what was given, what is allowed and what to do."""


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    implementation: ClassVar[str]

    num_tokens: int = Field(default=4, ge=1, le=MAX_NODES)
    """Tokens drafted in a round, at most; a request or the controller may ask for fewer."""


class PromptLookupSpec(_Spec):
    """Copies what followed the longest matching suffix earlier in prompt and output."""

    implementation: ClassVar[str] = "drafters.prompt_lookup:PromptLookup"
    method: Literal["prompt_lookup"] = "prompt_lookup"
    num_tokens: int = Field(default=8, ge=1, le=MAX_NODES)
    min_ngram: int = Field(default=2, ge=1, le=16)
    max_ngram: int = Field(default=4, ge=1, le=16)

    @model_validator(mode="after")
    def _ordered(self) -> PromptLookupSpec:
        if self.min_ngram > self.max_ngram:
            raise ValueError(f"min_ngram {self.min_ngram} is above max_ngram {self.max_ngram}; allowed: min ≤ max")
        return self


class NgramSpec(_Spec):
    """Counts of what follows each run of tokens, in a corpus and in the sequence itself."""

    implementation: ClassVar[str] = "drafters.ngram:Ngram"
    method: Literal["ngram"] = "ngram"
    num_tokens: int = Field(default=4, ge=1, le=MAX_NODES)
    order: int = Field(default=4, ge=2, le=16)
    """Longest run in tokens, the predicted one included: 4 predicts from three tokens."""
    min_order: int = Field(default=2, ge=2, le=16)
    """Shortest run that may still predict."""
    min_share: float = Field(default=0.0, ge=0.0, le=1.0)
    """Drafting stops where the most frequent follower has a smaller share of its run's count."""
    corpus: Path | None = None
    """File of token ids, one document a line, ids separated by spaces; ``None`` counts the sequence alone."""

    @model_validator(mode="after")
    def _ordered(self) -> NgramSpec:
        if self.min_order > self.order:
            raise ValueError(f"min_order {self.min_order} is above order {self.order}; allowed: min_order ≤ order")
        return self


class DraftModelSpec(_Spec):
    """A smaller causal model with the target's tokenizer."""

    implementation: ClassVar[str] = "drafters.draft_model:DraftModel"
    method: Literal["draft_model"] = "draft_model"
    model: Path
    """Local Hugging Face folder."""
    greedy: bool = False
    """Draft the most probable token also for requests that sample (one-hot drafts)."""


class MedusaSpec(_Spec):
    """Extra heads on the target's last hidden state."""

    implementation: ClassVar[str] = "drafters.medusa:Medusa"
    method: Literal["medusa"] = "medusa"
    num_tokens: int = Field(default=5, ge=1, le=MAX_NODES)
    model: Path | None = None
    """Folder of the checkpoint; ``None`` is untrained heads, for tests."""
    tree: tuple[tuple[int, ...], ...] | None = None
    """Tree as paths of ranks, every prefix included: ``[[0], [1], [0, 0]]``; ``None`` drafts a chain."""
    seed: int = 0
    """Of untrained weights."""


class MtpSpec(_Spec):
    """One more decoder layer that predicts the token after next, applied recursively."""

    implementation: ClassVar[str] = "drafters.mtp:Mtp"
    method: Literal["mtp"] = "mtp"
    num_tokens: int = Field(default=3, ge=1, le=7)
    model: Path | None = None
    seed: int = 0


class Eagle3Spec(_Spec):
    """One decoder layer over three fused levels of the target's hidden states."""

    implementation: ClassVar[str] = "drafters.eagle3:Eagle3"
    method: Literal["eagle3"] = "eagle3"
    num_tokens: int = Field(default=4, ge=1, le=MAX_NODES)
    """Depth of the chain, or of the tree."""
    model: Path | None = None
    tree_nodes: int | None = Field(default=None, ge=1, le=MAX_NODES)
    """Nodes of the tree; ``None`` drafts a chain."""
    tree_top_k: int = Field(default=8, ge=1, le=64)
    """Children looked at for each node of the tree."""
    draft_vocab_size: int | None = Field(default=None, ge=1)
    """Of untrained weights; ``None`` is the target's vocabulary."""
    seed: int = 0


class DFlashSpec(_Spec):
    """A block of tokens in one pass, with the target's features in every layer's K/V."""

    implementation: ClassVar[str] = "drafters.dflash:DFlash"
    method: Literal["dflash"] = "dflash"
    num_tokens: int = Field(default=7, ge=1, le=63)
    """At most the block size less one."""
    model: Path | None = None
    block_size: int = Field(default=8, ge=2, le=64)
    """Of untrained weights; a checkpoint brings its own."""
    num_layers: int = Field(default=5, ge=1, le=64)
    """Of untrained weights."""
    mask_token_id: int | None = Field(default=None, ge=0)
    """Of untrained weights: the token that stands where one is to be drafted; ``None`` is the vocabulary's last."""
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _length_of_the_block(cls, data: Any) -> Any:
        """Let a small block alone, without a length, mean all that it can draft."""
        if not isinstance(data, Mapping) or "num_tokens" in data or data.get("model") is not None:
            return data
        block = data.get("block_size")
        whole = cls.model_fields["num_tokens"].default
        return {**data, "num_tokens": block - 1} if isinstance(block, int) and 2 <= block <= whole else data

    @model_validator(mode="after")
    def _within_the_block(self) -> Self:
        if self.model is None and self.num_tokens >= self.block_size:
            raise ValueError(
                f"num_tokens is {self.num_tokens}, but a block of {self.block_size} drafts at most {self.block_size - 1}; "
                f"give num_tokens {self.block_size - 1} or less, or block_size {self.num_tokens + 1} or more"
            )
        return self


class DFlash2Spec(DFlashSpec):
    """DFlash with dynamic causal convolutions and a selector that walks over candidates."""

    implementation: ClassVar[str] = "drafters.dflash2:DFlash2"
    method: Literal["dflash2"] = "dflash2"  # type: ignore[assignment]  # a union member of its own, never used as its base
    selector_top_k: int = Field(default=16, ge=1, le=256)
    selector_rank: int = Field(default=256, ge=1)


class SyntheticSpec(_Spec):
    """Acceptance given by the user, for cost experiments. The output is NOT the target's text."""

    implementation: ClassVar[str] = "drafters.synthetic:Synthetic"
    method: Literal["synthetic"] = "synthetic"
    acceptance: float | tuple[float, ...] = Field(default=0.7)
    """Probability that a token is accepted when all before it were: one number, or one for each position (the last
    one holds for those beyond)."""
    seed: int = 0

    @model_validator(mode="after")
    def _probabilities(self) -> SyntheticSpec:
        rates = self.acceptance if isinstance(self.acceptance, tuple) else (self.acceptance,)
        if not rates or not all(0.0 <= rate <= 1.0 for rate in rates):
            raise ValueError(f"acceptance is {self.acceptance}; allowed: probabilities from 0 to 1, at least one")
        return self


DrafterSpec = Annotated[
    PromptLookupSpec
    | NgramSpec
    | DraftModelSpec
    | MedusaSpec
    | MtpSpec
    | Eagle3Spec
    | DFlashSpec
    | DFlash2Spec
    | SyntheticSpec,
    Field(discriminator="method"),
]
"""Any drafter's description, told apart by ``method``; for use as a field of other pydantic models."""

SPECS: Mapping[str, type[_Spec]] = {
    spec.model_fields["method"].default: spec for spec in get_args(get_args(DrafterSpec)[0])
}
"""Method → class of its spec."""


def parse_spec(data: Mapping[str, Any]) -> DrafterSpec:
    """Read a drafter's description. Raises SpecError for an unknown method, an unknown key or a value out of range."""
    if not isinstance(data, Mapping):
        raise SpecError(f"a drafter is described by keys and values, not by {data!r}; give at least 'method'")
    known = ", ".join(sorted(SPECS))
    if "method" not in data:
        raise SpecError(f"no 'method' among the keys {sorted(map(str, data))}; known methods: {known}")
    method = data["method"]
    if not isinstance(method, str) or method not in SPECS:
        raise SpecError(f"unknown method {method!r}{_close(str(method), SPECS)}; known: {known}")
    spec = SPECS[method]
    try:
        return spec.model_validate(dict(data))  # type: ignore[return-value]  # every value of SPECS is in the union
    except ValidationError as error:
        raise SpecError("; ".join(_explain(method, spec, problem) for problem in error.errors())) from error


def split_spec(text: str) -> tuple[str, str, dict[str, Any]]:
    """Split ``NAME=METHOD[,key=value…]`` into name, method and options; values are YAML, so lists and tables can be given.

    Raises SpecError for text of another form; method and options are not checked here.
    """
    name, equals, rest = text.partition("=")
    method, *pairs = _parts(rest)
    if not equals or not name or not method:
        raise SpecError(f"{text!r}; give {SPEC_FORM}; methods: {', '.join(SPECS)}")
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise SpecError(f"{text!r}: {pair!r} is no key=value; give {SPEC_FORM}")
        try:
            options[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SpecError(f"{text!r}: cannot read the value of {key}: {value!r}; quote it") from error
    return name, method, options


def _parts(text: str) -> list[str]:
    """Split at the commas that stand outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _explain(method: str, spec: type[_Spec], problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        allowed = ", ".join(sorted(spec.model_fields))
        return f"{method}: unknown key {key!r}{_close(key, spec.model_fields)}; allowed: {allowed}"
    if problem["type"] == "missing":
        return f"{method}: {key!r} is missing; give it"
    message = problem["msg"].removeprefix("Value error, ")
    if not key:
        return f"{method}: {message}"
    return f"{method}: {key!r} is {problem['input']!r}: {message[:1].lower()}{message[1:]}"


def _close(word: str, known: Mapping[str, Any]) -> str:
    matches = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
