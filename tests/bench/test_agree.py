"""The comparison of both engines' answers: which steps are asked, and how sure the engine was where two texts part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.agree import steps, top_two_gap

WORKLOADS = Path(__file__).parents[2] / "workloads"


def token(text: str, best: float, second: float) -> dict[str, Any]:
    """One token with the log probabilities of the two best."""
    top = [{"token": text, "logprob": best}, {"token": "x", "logprob": second}]
    return {"token": text, "bytes": list(text.encode()), "logprob": best, "top_logprobs": top}


def test_the_gap_is_that_of_the_first_token_beyond_the_agreed_text() -> None:
    """Texts that agree on one letter part in the second token, which here is a tie of 0.25."""
    content = [token("가", -0.5, -4.0), token("나", -1.0, -1.25), token("다", -0.1, -3.0)]
    assert top_two_gap(content, "가") == 0.25
    assert top_two_gap(content, "") == 3.5
    assert top_two_gap(content, "가나다") is not None  # one of them went on: its last token decided


def test_steps_have_the_recorded_history() -> None:
    """Every second step is taken, from the first on; a later step carries the answers before it."""
    path = WORKLOADS / "coding-en.yaml"
    whole, half = list(steps([path], 1)), list(steps([path], 2))
    assert half == whole[::2]
    first, second = whole[0][1]["messages"], whole[1][1]["messages"]
    assert len(second) > len(first)
    assert "assistant" in json.dumps(second)
