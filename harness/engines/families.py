"""Which family of servers an unknown one belongs to, so that it is asked in its own words. What is true of it is asked all the same."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from harness.engines.builtin_dialect import BuiltinDialect
from harness.engines.control import ControlCalls
from harness.engines.dialect import Dialect
from harness.engines.dialects import dialect
from harness.engines.llamacpp_dialect import LlamaCppDialect

# what /v1/models says owns a model
_OWNERS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "trtllm",
    "lmdeploy": "lmdeploy",
    "llamacpp": "llamacpp",
    "spec-harness": "builtin",
}
# how names on its metrics page begin
_PREFIXES = (
    ("llamacpp:", "llamacpp"),
    ("sglang:", "sglang"),
    ("lmdeploy:", "lmdeploy"),
    ("trtllm_", "trtllm"),
    ("vllm:", "vllm"),
)
_PAGES = ("/metrics", "/prometheus/metrics")


def family(kind: str) -> Dialect:
    """Return the dialect of an engine kind, those of the package's own adapters included.

    Raises:
        KeyError: if there is no such kind.
    """
    own: tuple[Dialect, ...] = (LlamaCppDialect(), BuiltinDialect())
    return next((item for item in own if item.name == kind), None) or dialect(kind)


async def recognise(calls: ControlCalls, owners: Sequence[str]) -> Dialect:
    """Return the dialect of a server: by the owner that its list of models names, else by its metrics page, else ``openai``.

    Raises:
        EngineUnreachable: if the server does not answer.
    """
    for owner in owners:
        if owner.lower() in _OWNERS:
            return family(_OWNERS[owner.lower()])
    for path in _PAGES:
        response = await calls.send("GET", path)
        if response.status_code != httpx.codes.OK:
            continue
        lines = response.text.splitlines()
        for prefix, kind in _PREFIXES:
            if any(line.startswith(prefix) for line in lines):
                return family(kind)
    return family("openai")
