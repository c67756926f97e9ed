"""Trainable drafters by the names of `drafters.specs`; a method's module is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from drafters.training.stage import StageError

if TYPE_CHECKING:
    from drafters.training.method import MethodClass

__all__ = ["METHODS", "method_class"]

METHODS: Mapping[str, str] = {
    "dflash": "drafters.training.methods.dflash:DFlashMethod",
    "dflash2": "drafters.training.methods.dflash2:DFlash2Method",
    "draft_model": "drafters.training.methods.draft_model:DraftModelMethod",
    "eagle3": "drafters.training.methods.eagle3:Eagle3Method",
    "medusa": "drafters.training.methods.medusa:MedusaMethod",
    "mtp": "drafters.training.methods.mtp:MtpMethod",
}
"""Method → ``module:class``."""


def method_class(name: str) -> MethodClass:
    """Import and return the class that trains ``name``. Raises StageError for one that is not known."""
    if name not in METHODS:
        raise StageError(f"unknown method {name!r}; allowed: {', '.join(sorted(METHODS))}, ngram")
    module, _, attribute = METHODS[name].partition(":")
    return cast("MethodClass", getattr(importlib.import_module(module), attribute))
