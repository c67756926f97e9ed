"""With which settings each arm's server really runs, and in which the arms differ besides the drafter. Pure.

A comparison of arms is one of drafters only if everything else is the same. Settings come from the command line that starts a server,
from the server itself where it tells them, or from both: then what the server tells counts, which includes what it sets by itself
(some lower the number of requests they work on as soon as a drafter is there).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from harness.redaction import MASK, holds_secret
from harness.workload_launch import Launch

Source = Literal["command", "server", "both"]
GIVEN = "true"  # a flag without a value
_FLAG = re.compile(r"^-{1,2}[A-Za-z]")  # -1 is a value
# vLLM, SGLang, TensorRT-LLM and LMDeploy say speculative-…, vLLM spec-… too; llama.cpp spec-…, draft-…, …-draft and short forms.
# vLLM (0.32) refuses per-request-spec-decode-metrics on a server without a drafter, so a fair pair of arms differs in it.
_DRAFTER = re.compile(
    r"^(?:speculative|spec-|spec$|drafts?(?:$|-)|num-speculative|per-request-spec-decode)|-draft$|^(?:md|ngld|td|tbd|cd|devd|ctkd|ctvd|hfd|hfrd|sc)$"
)
_PER_START = frozenset({"port", "host", "nccl-port", "random-seed", "dist-init-addr", "uds", "log-file"})


@dataclass(frozen=True, slots=True)
class ArmFlags:
    """Settings of one arm's server by name, without leading dashes and with ``-`` for ``_``; ``source`` ``None``: none are known.

    Variables of the environment that the workload gives are called ``env NAME``. Secrets are masked.
    """

    arm: str
    source: Source | None = None
    flags: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it for the manifest, where it stands under the arm."""
        return {"source": self.source, "values": dict(self.flags)}

    @classmethod
    def from_json(cls, arm: str, value: Any) -> ArmFlags:
        """Inverse of :meth:`to_json`; unknown for anything else, such as a run of an older version."""
        if not isinstance(value, Mapping) or not isinstance(value.get("values"), Mapping):
            return cls(arm)
        source = value.get("source")
        flags = {str(name): _text(item) for name, item in value["values"].items()}
        return cls(arm, source if source in get_args(Source) else None, flags)


@dataclass(frozen=True, slots=True)
class FlagDifference:
    """One setting in which arms differ: its value by arm, ``None`` where it is not given; ``drafter``: it belongs to the drafter."""

    name: str
    values: Mapping[str, str | None]
    drafter: bool

    def to_json(self) -> dict[str, Any]:
        """Return it for the manifest."""
        return {"flag": self.name, "drafter": self.drafter, "values": dict(self.values)}


def from_command(launch: Launch) -> ArmFlags:
    """Return the flags of a command line; ``{port}`` and values of the environment stand unfilled."""
    config = "" if launch.speculative_config is None else _canonical(launch.speculative_config)
    command = [argument.replace("{speculative_config}", config) for argument in launch.template]
    flags = dict(_flags(command))
    return ArmFlags(launch.arm, "command", _plain(flags | {f"env {name}": text for name, text in launch.env.items()}))


def from_server(arm: str, told: Mapping[str, Any]) -> ArmFlags:
    """Return the settings that a server tells, what it calls ``None`` left out."""
    given = {_name(name): _text(value) for name, value in told.items() if value is not None}
    return ArmFlags(arm, "server" if given else None, _plain(given))


def combined(command: ArmFlags, told: ArmFlags) -> ArmFlags:
    """Return the effective settings of a server that was started here and tells its own."""
    if told.source is None:
        return command
    return ArmFlags(command.arm, "both", {**command.flags, **told.flags})


def differences(arms: Sequence[ArmFlags]) -> tuple[FlagDifference, ...]:
    """Return every setting in which arms differ, those beyond the drafter first.

    A name that an arm lacks is a setting not given, unless the arm's settings come from elsewhere than those that have it.
    """
    known = [arm for arm in arms if arm.source is not None]
    found = []
    for name in sorted({name for arm in known for name in arm.flags} - _PER_START):
        sources = {arm.source for arm in known if name in arm.flags}
        values = {arm.arm: arm.flags.get(name) for arm in known if arm.source in sources}
        if len(set(values.values())) > 1:
            found.append(FlagDifference(name, values, of_drafter(name)))
    return tuple(sorted(found, key=lambda difference: (difference.drafter, difference.name)))


def of_drafter(name: str) -> bool:
    """Tell whether a setting is one of the drafter, by its name."""
    return _DRAFTER.search(name) is not None


def of_description(engine: Mapping[str, Any] | None) -> list[ArmFlags]:
    """Return the settings of each arm of a manifest's description of the engine."""
    arms = (engine or {}).get("arms")
    if not isinstance(arms, Mapping):
        return []
    return [
        ArmFlags.from_json(name, arm.get("flags") if isinstance(arm, Mapping) else None) for name, arm in arms.items()
    ]


def _flags(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each flag with its value, several joined; what stands before the first is the ``program``."""
    values: dict[str, list[str]] = {}
    name = "program"
    for argument in command:
        if _FLAG.match(argument):
            flag, equals, value = argument.partition("=")
            name = _name(flag)
            values.setdefault(name, []).extend([value] if equals else [])
        else:
            values.setdefault(name, []).append(argument)
    for name, texts in values.items():
        yield name, " ".join(_json(text) for text in texts) or GIVEN


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-")


def _plain(flags: Mapping[str, str]) -> dict[str, str]:
    return {
        name: MASK if holds_secret(name.removeprefix("env ")) and text != GIVEN else text
        for name, text in flags.items()
        if name not in _PER_START
    }


def _json(text: str) -> str:
    """Return JSON in one spelling, so that blanks and the order of keys make no difference; any other text as it is."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return _canonical(json.loads(text))
    except ValueError:
        return text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return _json(value)
    return _canonical(value)


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
