"""Engine kind → dialect: the single dispatch."""

from __future__ import annotations

from harness.engines.dialect import Dialect
from harness.engines.lmdeploy import LmDeploy
from harness.engines.openai import OpenAi
from harness.engines.sglang import SgLang
from harness.engines.trtllm import TrtLlm
from harness.engines.vllm import Vllm

_ALL: tuple[Dialect, ...] = (Vllm(), SgLang(), TrtLlm(), LmDeploy(), OpenAi())


def dialect(kind: str) -> Dialect:
    """Return the dialect of an engine kind.

    Raises:
        KeyError: if it is no kind of remote server.
    """
    return {item.name: item for item in _ALL}[kind]
