"""From a drafter's description to the drafter: the single dispatch. A drafter's module is imported when it is asked
for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol, cast

from drafters.specs import SPECS, DrafterSpec, SpecError

if TYPE_CHECKING:
    from drafters.base import Drafter, Target

__all__ = ["DrafterClass", "build", "drafter_class", "methods"]


class DrafterClass(Protocol):
    """What the class of every drafter offers: it builds itself from its spec."""

    def from_spec(self, spec: Any, target: Target, cache_tokens: int) -> Drafter:
        """Build the drafter for ``target``; ``cache_tokens`` bounds the tokens of all sequences open at once."""
        ...


def methods() -> tuple[str, ...]:
    """Names of all methods, sorted."""
    return tuple(sorted(SPECS))


def drafter_class(method: str) -> DrafterClass:
    """Import and return the class that carries out ``method``. Raises SpecError for one that is not known."""
    if method not in SPECS:
        raise SpecError(f"unknown method {method!r}; known: {', '.join(methods())}")
    module, _, name = SPECS[method].implementation.partition(":")
    return cast(DrafterClass, getattr(importlib.import_module(module), name))


def build(spec: DrafterSpec, target: Target, cache_tokens: int) -> Drafter:
    """Build the drafter that ``spec`` describes.

    ``cache_tokens`` is the engine's memory bound in tokens: a drafter with K/V of its own needs no more than that, plus
    what it runs ahead. Raises SpecError, which names the checkpoint, when the spec does not fit the target.
    """
    model = getattr(spec, "model", None)
    try:
        return drafter_class(spec.method).from_spec(spec, target, cache_tokens)
    except SpecError as error:
        if model is None or str(model) in str(error):
            raise
        raise SpecError(f"{model}: {error}") from error
