"""How the builtin engine is set up, as its server and its benchmarks are given it. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from drafters.specs import DrafterSpec

__all__ = ["EngineConfig", "ServedDrafter"]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
DraftTable = Annotated[dict[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=0)]], Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ServedDrafter(_Strict):
    """A drafter that requests may name, and how its draft lengths are chosen.

    ``lengths``: ``fixed`` drafts as many tokens as spec and request allow; ``goodput`` lets the controller choose before
    each round, 0 included; a table maps the smallest number of decoding sequences to the length from there on.
    """

    spec: DrafterSpec
    lengths: Literal["fixed", "goodput"] | DraftTable = "fixed"


class EngineConfig(_Strict):
    """One engine: a target, its drafters and its bounds.

    ``model`` is a local Hugging Face folder. ``weights`` are held as they are, or in 4 bits: group-wise round-to-nearest
    (``rtn4``) or NormalFloat (``nf4``). ``context_tokens`` bounds one sequence, prompt and output; ``cache_tokens`` all of
    them together and what is kept for reuse (``None``: room for one sequence more than may run, since a sequence needs one
    run of slots and what is kept lies between). ``prefill_tokens`` of
    prompts are fed in one round at most. ``verification`` is the rule for requests that sample. ``port`` 0 takes a free one.
    """

    model: Path
    served_name: str | None = None
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    weights: Literal["plain", "rtn4", "nf4"] = "plain"
    device: str = "cpu"
    threads: Annotated[int, Field(ge=1, le=512)] = 1
    drafters: dict[Name, ServedDrafter] = {}
    default_drafter: str | None = None
    max_sequences: Annotated[int, Field(ge=1, le=4096)] = 16
    context_tokens: Annotated[int, Field(ge=16, le=1_048_576)] = 4096
    cache_tokens: Annotated[int, Field(ge=16)] | None = None
    prefill_tokens: Annotated[int, Field(ge=1)] = 512
    prefix_reuse: bool = True
    verification: Literal["standard", "block"] = "standard"
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 0

    @model_validator(mode="after")
    def _known_default(self) -> Self:
        if self.default_drafter is not None and self.default_drafter not in self.drafters:
            known = ", ".join(sorted(self.drafters)) or "none"
            raise ValueError(f"default_drafter is {self.default_drafter!r}; this engine's drafters: {known}")
        return self

    @property
    def total_cache_tokens(self) -> int:
        """The memory bound in tokens."""
        return self.cache_tokens or (self.max_sequences + 1) * self.context_tokens
