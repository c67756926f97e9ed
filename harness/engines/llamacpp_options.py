"""Which drafting methods llama.cpp's server has, which options each takes, and the check of a workload's arms against that.

Names, ranges and defaults are those of the binding xllamacpp 2026.10.11549 (llama.cpp b11549), except that the n-gram methods
default to short lookups: the engine's own (n-grams of 12, drafts of 48) draft nothing on prompts of a few hundred tokens.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from harness.addresses import address_fault
from harness.engines.llamacpp_drafts import draft_model_faults
from harness.errors import ModelError, WorkloadError
from harness.models import resolve
from harness.workload import Arm, LoadedWorkload

Kind = Literal["whole", "number", "choice", "rates"]
OptionValue = bool | int | float | str | list[float]
MAX_DRAFT = 256  # a draft beyond this exceeds half the engine's physical batch of 512 tokens


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a method: ``low`` and ``high`` bound it, ``setting`` is its place below the binding's ``speculative``."""

    kind: Kind
    default: OptionValue | None
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    setting: str | None = None

    def complaint(self, value: Any) -> str | None:
        """Return what is wrong with a value, ``None`` if nothing."""
        if self.kind == "choice":
            return None if value in self.choices else f"allowed: {', '.join(self.choices)}"
        if self.kind == "rates":
            good = isinstance(value, list) and value and value[0] <= 1 and value[-1] >= 0
            if good and all(a >= b for a, b in pairwise(value)):
                return None
            return "allowed: a non-empty list of falling numbers from 0 to 1, one a draft position"
        wanted = int if self.kind == "whole" else int | float
        if isinstance(value, bool) or not isinstance(value, wanted) or not self.low <= value <= self.high:
            kind = "whole number" if self.kind == "whole" else "number"
            return f"allowed: a {kind} from {self.low:g}" + (f" to {self.high:g}" if math.isfinite(self.high) else "")
        return None


def _ngram_map(name: str) -> dict[str, Option]:
    return {
        "size_n": Option("whole", 3, 1, 64, setting=f"{name}.size_n"),
        "size_m": Option("whole", 8, 1, MAX_DRAFT, setting=f"{name}.size_m"),
        "min_hits": Option("whole", 1, 1, 1024, setting=f"{name}.min_hits"),
    }


_DRAFT_MODEL = {
    "n_max": Option("whole", 4, 1, MAX_DRAFT, setting="draft.n_max"),
    "n_min": Option("whole", 0, 0, MAX_DRAFT, setting="draft.n_min"),
    "p_min": Option("number", 0.0, 0, 1, setting="draft.p_min"),
    "sampling": Option("choice", "greedy", choices=("greedy", "probabilistic"), setting="draft.probabilistic"),
}

METHODS: Mapping[str, Mapping[str, Option]] = {
    "none": {},
    "ngram-simple": _ngram_map("ngram_simple"),
    "ngram-map-k": _ngram_map("ngram_map_k"),
    "ngram-map-k4v": _ngram_map("ngram_map_k4v"),
    "ngram-mod": {
        "n_match": Option("whole", 3, 1, 64, setting="ngram_mod.n_match"),
        "n_min": Option("whole", 1, 0, MAX_DRAFT, setting="ngram_mod.n_min"),
        "n_max": Option("whole", 8, 1, MAX_DRAFT, setting="ngram_mod.n_max"),
    },
    "ngram-cache": {"n_max": Option("whole", 8, 1, MAX_DRAFT, setting="draft.n_max")},
    "draft-simple": _DRAFT_MODEL,
    # covers DFlash and DFlash 2, which of them the draft model says. The engine's block is n_max + 1 long, not the trained one, and
    # each position sees the whole block: with a smaller n_max it drafts other tokens, and other than the builtin engine, which
    # always runs the whole block. p_min looks at softmax over the 10 best tokens (DFlash 2: over the selector's candidates).
    "draft-dflash": {**_DRAFT_MODEL, "n_max": Option("whole", 7, 1, 63, setting="draft.n_max")},
    "draft-eagle3": _DRAFT_MODEL,
    # known acceptance over any drafter: without a draft model n-grams of one token, which find a draft nearly every round
    "synthetic": {
        "synth_len": Option("number", None, 1, MAX_DRAFT + 1, setting="synth_len"),
        "synth_rates": Option("rates", None, setting="synth_rates"),
        "draft_tokens": Option("whole", 4, 1, MAX_DRAFT),
    },
}

ENGINE_OPTIONS: Mapping[str, Option] = {
    # "engine" keeps K/V in float16 and lets the engine choose its attention, as its own default is. "float32" keeps K/V in float32
    # and turns flash attention off, which on a CPU rounds to float16: the logits are then those of the weights, for comparing
    # texts with another engine's token for token.
    "attention": Option("choice", "engine", choices=("engine", "float32")),
}
"""The keys of ``engine.options``."""

# What these draft depends on the requests before (b11549, seen on a live server): the n-gram tables of a slot outlive its request,
# and a shorter prompt after a longer one may draft nothing (ggml-org/llama.cpp#27852 for ngram-cache); ngram-mod has one table for
# all slots. ngram-simple and draft-simple drafted the same for the same prompt every time.
CARRIES_STATE = frozenset({"ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"})


def settings(arm: Arm) -> dict[str, Any]:
    """Return an arm's options with the defaults filled in; an option without default stays out unless given."""
    options = METHODS[arm.method]
    filled = {name: arm.options.get(name, option.default) for name, option in options.items()}
    return {name: value for name, value in filled.items() if value is not None}


def longest_draft(arm: Arm) -> int | None:
    """Return the most tokens that one round of an arm can draft, ``None`` for an arm that drafts nothing."""
    given = settings(arm)
    for name in ("size_m", "n_max", "draft_tokens"):
        if name in given:
            return int(given[name])
    return None


def engine_config(arm: Arm) -> dict[str, Any]:
    """Return ``{"type", "settings"}`` for the server process: the engine's own drafter name and its settings by path."""
    given = settings(arm)
    if arm.method == "none":
        return {"type": None, "settings": {}}
    found = {
        option.setting: given[name] for name, option in METHODS[arm.method].items() if option.setting and name in given
    }
    if "draft.probabilistic" in found:
        found["draft.probabilistic"] = found["draft.probabilistic"] == "probabilistic"
    if arm.method != "synthetic":
        return {"type": arm.method, "settings": found}
    if arm.draft_model is not None:
        return {"type": "draft-simple", "settings": {**found, "draft.n_max": given["draft_tokens"]}}
    return {
        "type": "ngram-simple",
        "settings": {**found, "ngram_simple.size_n": 1, "ngram_simple.size_m": given["draft_tokens"]},
    }


def check_arms(loaded: LoadedWorkload) -> None:
    """Check methods, options, draft models and addresses of a workload's arms; nothing is started.

    Raises:
        WorkloadError: one line a fault, each with file and line.
    """
    faults = [fault for index in range(len(loaded.workload.arms)) for fault in _faults(loaded, index)]
    faults += _option_faults(loaded)
    faults += _address_faults(loaded) or _model_faults(loaded)
    if faults:
        raise WorkloadError("\n".join(faults))


def check_engine_options(loaded: LoadedWorkload) -> None:
    """Check the engine options of a workload alone.

    Raises:
        WorkloadError: one line a fault, each with file and line.
    """
    if faults := _option_faults(loaded):
        raise WorkloadError("\n".join(faults))


def _option_faults(loaded: LoadedWorkload) -> list[str]:
    faults = []
    for key, value in loaded.workload.engine.options.items():
        at = loaded.where("engine", "options", key)
        option = ENGINE_OPTIONS.get(key)
        if option is None:
            close = difflib.get_close_matches(key, ENGINE_OPTIONS, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            faults.append(f"{at}: llamacpp has no engine option {key!r}; {hint}it has {', '.join(ENGINE_OPTIONS)}")
        elif complaint := option.complaint(value):
            faults.append(f"{at}: {key} is {value!r:.60}; {complaint}")
        elif value != option.default and _attached(loaded):
            faults.append(
                f"{at}: {key} is {value!r}, but servers that are attached were started with their own; start them so and leave it "
                "out, or leave base_url out"
            )
    return faults


def _attached(loaded: LoadedWorkload) -> bool:
    return loaded.workload.engine.base_url is not None or any(arm.base_url for arm in loaded.workload.arms)


def _faults(loaded: LoadedWorkload, index: int) -> list[str]:
    arm = loaded.workload.arms[index]
    options = METHODS.get(arm.method)
    if options is None:
        close = difflib.get_close_matches(arm.method, METHODS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return [
            f"{loaded.where('arms', index, 'method')}: unknown method {arm.method!r}; {hint}known: {', '.join(METHODS)}; an arm "
            "for another engine says so, as in engine: builtin"
        ]
    faults = []
    for name, value in arm.options.items():
        at = loaded.where("arms", index, "options", name)
        option = options.get(name)
        if option is None:
            close = difflib.get_close_matches(name, options, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            faults.append(f"{at}: {arm.method} has no option {name!r}; {hint}it has {', '.join(options) or 'none'}")
        elif complaint := option.complaint(value):
            faults.append(f"{at}: {name} is {value!r:.60}; {complaint}")
    if not faults:
        faults += [f"{loaded.where('arms', index, 'options')}: {text}" for text in _together(arm)]
    faults += draft_model_faults(loaded, index, arm, settings(arm).get("n_max"))
    return faults


def _together(arm: Arm) -> list[str]:
    given = settings(arm)
    if given.get("n_min", 0) > given.get("n_max", MAX_DRAFT):
        return [f"n_min is {given['n_min']} but n_max {given['n_max']}; n_min must not be larger"]
    if arm.method != "synthetic":
        return []
    tokens, length, rates = given["draft_tokens"], given.get("synth_len"), given.get("synth_rates")
    if (length is None) == (rates is None):
        return [
            "synthetic needs either synth_len (a mean acceptance length) or synth_rates (one rate a position), not both"
        ]
    if length is not None and length > tokens + 1:
        return [f"synth_len is {length:g}, but {tokens} drafted tokens give at most {tokens + 1}; raise draft_tokens"]
    if rates is not None and len(rates) != tokens:
        return [f"synth_rates has {len(rates)} rates for {tokens} drafted tokens; give one a token"]
    return []


def _model_faults(loaded: LoadedWorkload) -> list[str]:
    if _attached(loaded):
        return []
    try:
        resolve(loaded.workload.engine.model, fetch=False)
    except ModelError as error:
        return [f"{loaded.where('engine', 'model')}: {error}"]
    return []


def _address_faults(loaded: LoadedWorkload) -> list[str]:
    spec, arms = loaded.workload.engine, loaded.workload.arms
    addresses = [spec.base_url if arm.base_url is None else arm.base_url for arm in arms]
    if all(address is None for address in addresses):
        return []
    faults = []
    for index, (arm, address) in enumerate(zip(arms, addresses, strict=True)):
        at = loaded.where("arms", index, "base_url")
        if address is None:
            faults.append(f"{at}: arm {arm.name!r} has no base_url while others have one; attach all arms or none")
        elif (fault := address_fault(address)) is not None:
            at = at if arm.base_url else loaded.where("engine", "base_url")
            faults.append(f"{at}: base_url is {fault}")
        elif address in addresses[:index]:
            faults.append(
                f"{at}: arm {arm.name!r} has the address of arm {arms[addresses.index(address)].name!r} ({address}); llama.cpp "
                "has no switch per request, so each arm needs a server of its own"
            )
    return faults
