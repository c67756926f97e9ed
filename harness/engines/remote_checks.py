"""Whether a server is what its arm says, by what it told when it was asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from harness.engines.facts import Probed
from harness.engines.remote_options import SERVED, same_method
from harness.errors import EngineRefused, EngineUnreachable
from harness.workload import Arm

_PLACES = ("max-num-seqs", "max-running-requests", "max-batch-size")  # vLLM; SGLang; TensorRT-LLM, LMDeploy
_TRY_AGAIN = (408, 425, 429)  # HTTP statuses that say nothing against the request itself


def check_server(where: str, arm: Arm, probed: Probed, *, context_tokens: int) -> None:
    """Check one server; ``where`` is how errors call it.

    Raises:
        EngineUnreachable: if it answers no chat completion for reasons of its own.
        EngineRefused: if it refuses the request or the key, its model is not known, it does not stream, is too small, or drafts
            otherwise than the arm says.
    """
    _check_answers(where, probed)
    length = probed.max_model_len.value
    if length is not None and length < context_tokens:
        raise EngineRefused(
            f"{where} has {length} tokens of context for a request, but engine.context_tokens is {context_tokens}; lower "
            "engine.context_tokens, or start the server with more (vLLM: --max-model-len, SGLang: --context-length)"
        )
    _check_drafter(where, arm, probed)


def _check_answers(where: str, probed: Probed) -> None:
    models = probed.models.value
    name = probed.model.value
    if probed.chat_status in (401, 403):  # whatever else it does not tell follows from that
        raise EngineRefused(f"{where} lets nobody in: {probed.chat.how}")
    if models is not None and len(models) > 1 and probed.model.how != "given":
        raise EngineRefused(f"{where} serves {', '.join(models)}; say which with engine.model or --model")
    if name is None:
        raise EngineRefused(f"{where} names no model ({probed.models.how}); give engine.model or --model")
    if probed.chat.value is None:
        if models is not None and name not in models:
            raise EngineRefused(f"{where} does not know the model {name!r}; it serves {', '.join(models)}")
        refused = 400 <= (probed.chat_status or 0) < 500 and probed.chat_status not in _TRY_AGAIN
        kind = EngineRefused if refused else EngineUnreachable
        raise kind(f"{where} answers no chat completion: {probed.chat.how}")
    if probed.streaming.value is False:
        raise EngineRefused(
            f"{where} does not stream its answers, so nothing but their whole time could be measured; let it stream, or measure "
            "the server behind it"
        )


def _check_drafter(where: str, arm: Arm, probed: Probed) -> None:
    if arm.method == SERVED:
        return
    drafts, config = probed.drafts, probed.speculative_config.value
    if arm.method == "none" and drafts.value is True:
        raise EngineRefused(
            f"arm {arm.name!r} is the baseline (method none), but {where} drafts: {drafts.how}; start it without a drafter, or "
            f"correct the arm (method {SERVED}: whatever the server does)"
        )
    if arm.method != "none" and drafts.value is False:
        raise EngineRefused(
            f"arm {arm.name!r} is method {arm.method!r}, but {where} drafts nothing: {drafts.how}; start it with its drafter, or "
            "correct the arm"
        )
    told = (config or {}).get("method")
    if isinstance(told, str) and arm.method != "none" and not same_method(told, arm.method):
        raise EngineRefused(
            f"arm {arm.name!r} is method {arm.method!r}, but {where} says it drafts with {told!r}; correct one of them"
        )
    for key, claimed in arm.options.items():
        if config and key in config and config[key] != claimed:
            raise EngineRefused(
                f"arm {arm.name!r} says {key} is {claimed!r}, but {where} has {config[key]!r}; correct one of them"
            )


def check_places(where: str, flags: Mapping[str, str], concurrency: int) -> None:
    """Check that a server whose settings are known works on as many requests at once as the run has in progress.

    Raises:
        EngineRefused: if it does not: requests would queue in the server.
    """
    for name in _PLACES:
        given = flags.get(name, "")
        if given.isdecimal() and int(given) < concurrency:
            raise EngineRefused(
                f"{where} works on {given} requests at once ({name}), but the highest concurrency is {concurrency}; requests would "
                f"queue in the server: start it with --{name} {concurrency} or more, or lower --concurrency"
            )


def acceptance_source(probed: Probed) -> str | None:
    """Return in words where a run will read the acceptance of a server's requests, ``None`` for a server that does not draft."""
    if probed.drafts.value is False:
        return None
    told = {"round": "told with each answer, round by round", "request": "told with each answer"}
    if probed.per_request_acceptance.value is not None:
        return told[probed.per_request_acceptance.value]
    remedy = probed.per_request_acceptance.remedy or probed.counters.remedy
    better = "" if remedy is None else f"; to have it told with each answer: {remedy}"
    if probed.counters.value is True:
        return f"by the server's counters, of single requests at concurrency 1 alone{better}"
    return f"unknown: {probed.per_request_acceptance.how}, {probed.counters.how}{better}"


def check_together(reached: Mapping[str, Probed], *, named: bool) -> None:
    """Check that the servers of a run's arms serve one model; ``named``: the workload names it.

    Raises:
        EngineRefused: if the names differ although none was asked for.
    """
    names = {arm: probed.model.value for arm, probed in reached.items()}
    first = next(iter(names))
    other = next((arm for arm in names if names[arm] != names[first]), None)
    if other is not None and not named:
        raise EngineRefused(
            f"arms {first!r} and {other!r} serve different models ({names[first]}; {names[other]}); arms of a run share one model: "
            "serve both under one name (vLLM, SGLang: --served-model-name)"
        )
