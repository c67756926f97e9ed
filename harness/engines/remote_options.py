"""The check of a workload's arms and options for servers of other makers, before anything is sent.

Methods are called what the server calls them (``eagle3``, ``EAGLE3``, ``ngram``, …) and are compared with what the server says of
itself once it is reached: releases bring new ones. ``none`` is the baseline, ``served`` is a server as it is, whatever it does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.access import AccessError, open_access
from harness.addresses import address_fault, shown_address
from harness.errors import WorkloadError
from harness.workload import Arm, LoadedWorkload
from harness.workload_launch import Launch

SERVED = "served"
OPTIONS = ("extra_body",)
"""The keys of ``engine.options``: ``extra_body`` are fields for every request, such as ``chat_template_kwargs``."""
ARM_OPTIONS = ("model", "extra_body")
"""The keys of an arm's ``options`` for the kind ``openai``, where a gateway tells servers apart by the name of the model."""
_OURS = frozenset(
    {"model", "messages", "max_tokens", "temperature", "top_p", "seed", "stream", "stream_options", "tools", "n"}
)
_METHOD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_arms(loaded: LoadedWorkload) -> None:
    """Check methods, options, addresses, launches and access of a workload; nothing is started and nothing sent.

    Raises:
        WorkloadError: one line a fault, each with file and line.
    """
    faults = [fault for index in range(len(loaded.workload.arms)) for fault in _arm_faults(loaded, index)]
    faults += [*_option_faults(loaded), *_twins(loaded), *_access_faults(loaded)]
    if faults:
        raise WorkloadError("\n".join(dict.fromkeys(faults)))


def check_engine_options(loaded: LoadedWorkload) -> None:
    """Check the engine options of a workload alone.

    Raises:
        WorkloadError: one line a fault, each with file and line.
    """
    if faults := list(_option_faults(loaded)):
        raise WorkloadError("\n".join(faults))


def extra_body(loaded_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that options add to every request."""
    return dict(loaded_options.get("extra_body") or {})


def _option_faults(loaded: LoadedWorkload) -> Iterator[str]:
    kind = loaded.workload.engine.kind
    for key, value in loaded.workload.engine.options.items():
        at = loaded.where("engine", "options", key)
        if key not in OPTIONS:
            yield f"{at}: {kind} has no engine option {key!r}; {_close(key, OPTIONS)}it has {', '.join(OPTIONS)}"
        else:
            yield from _body_faults(at, value)


def _body_faults(at: str, value: Any) -> Iterator[str]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        yield f"{at}: extra_body is {value!r:.60}; give a mapping of request fields, such as {{top_k: 20}}"
    elif taken := sorted(_OURS & set(value)):
        yield f"{at}: extra_body must not hold {', '.join(taken)}: the workload's own keys say that"


def _arm_faults(loaded: LoadedWorkload, index: int) -> Iterator[str]:
    spec, arm = loaded.workload.engine, loaded.workload.arms[index]
    if _METHOD.fullmatch(arm.method) is None:
        at = loaded.where("arms", index, "method")
        yield f"{at}: method is {arm.method!r:.80}; give none, {SERVED}, or what the server calls its drafter, such as eagle3"
    if arm.draft_model is not None:
        at = loaded.where("arms", index, "draft_model")
        yield (
            f"{at}: draft_model is for llamacpp; a {spec.kind} server is told its drafter when it is started, in "
            "launch.speculative_config"
        )
    yield from _arm_option_faults(loaded, index, arm)
    yield from _place_faults(loaded, index, arm, spec.launch_for(arm))


def _arm_option_faults(loaded: LoadedWorkload, index: int, arm: Arm) -> Iterator[str]:
    kind = loaded.workload.engine.kind
    for key, value in arm.options.items():
        at = loaded.where("arms", index, "options", key)
        if kind != "openai" and arm.method in ("none", SERVED):
            yield f"{at}: an arm of method {arm.method} has no options; remove {key!r}, or name the drafter as method"
        elif kind == "openai" and key not in ARM_OPTIONS:
            yield f"{at}: an arm of {kind} has no option {key!r}; {_close(key, ARM_OPTIONS)}it has {', '.join(ARM_OPTIONS)}"
        elif kind == "openai" and key == "model" and not (isinstance(value, str) and value):
            yield f"{at}: model is {value!r:.60}; give the name that this arm's requests carry"
        elif kind == "openai" and key == "extra_body":
            yield from _body_faults(at, value)


def _place_faults(loaded: LoadedWorkload, index: int, arm: Arm, launch: Launch | None) -> Iterator[str]:
    spec = loaded.workload.engine
    address = arm.base_url or spec.base_url
    at = loaded.where("arms", index, "base_url") if launch is None else loaded.where("arms", index, "launch")
    if address is None and launch is None:
        yield (
            f"{at}: arm {arm.name!r} has no server: give base_url (of one that runs) or launch (a command that starts one); on the "
            f"command line --base-url {arm.name}=http://HOST:PORT"
        )
    if address is not None:
        own = ("arms", index, "base_url") if arm.base_url else ("engine", "base_url")
        yield from _address_faults(loaded.where(*own), address)
    if launch is None:
        return
    if not launch.command:
        yield f"{at}: launch of arm {arm.name!r} has no command; give the argument list that starts its server"
    elif launch.takes_port and address is not None:
        yield (
            f"{at}: arm {arm.name!r} has both base_url and a launch with {{port}}; remove base_url, or remove launch to measure what "
            "runs already"
        )
    elif not launch.takes_port and address is None:
        yield f"{at}: the command of arm {arm.name!r} has no {{port}}; write {{port}} where its port belongs, or give base_url"
    if launch.command and arm.method not in ("none", SERVED) and launch.speculative_config is not None:
        told = launch.speculative_config.get("method")
        if isinstance(told, str) and not same_method(arm.method, told):
            yield f"{at}: arm {arm.name!r} is method {arm.method!r}, but its speculative_config says {told!r}; make them equal"


def _address_faults(at: str, address: str) -> Iterator[str]:
    if (fault := address_fault(address)) is not None:
        yield f"{at}: base_url is {fault}"


def _twins(loaded: LoadedWorkload) -> Iterator[str]:
    """Yield a fault for each arm that is sent where another is: a server drafts one way, for everybody."""
    spec, seen = loaded.workload.engine, dict[tuple[Any, ...], str]()
    for index, arm in enumerate(loaded.workload.arms):
        address = arm.base_url or spec.base_url
        if address is None or spec.launch_for(arm) is not None:
            continue
        apart = repr(sorted(arm.options.items())) if spec.kind == "openai" else ""
        twin = seen.setdefault((address.rstrip("/"), apart), arm.name)
        if twin != arm.name:
            yield (
                f"{loaded.where('arms', index, 'base_url')}: arms {twin!r} and {arm.name!r} are sent to the same server "
                f"({shown_address(address)}); "
                f"give each its own, on the command line --base-url {twin}=URL,{arm.name}=URL, or choose one with --arms"
            )


def _access_faults(loaded: LoadedWorkload) -> Iterator[str]:
    try:
        open_access(loaded.workload.engine.access, folder=loaded.path.parent)
    except AccessError as error:
        yield f"{loaded.where('engine', 'access', error.key)}: {error}"


def same_method(one: str, other: str) -> bool:
    """Tell whether two spellings name one method; capitals, dashes and underscores make no difference."""
    return one.lower().replace("-", "_") == other.lower().replace("-", "_")


def _close(key: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}? " if close else ""
