"""Whether both engines write the same: the greedy answers of llama.cpp and the builtin engine to the same prompts.

``python -m bench.agree [--model ref-koen] [--every 10] [--out FILE.json] [WORKLOAD.yaml …]`` starts both servers, the builtin one
in float32 and llama.cpp's with float32 K/V and no flash attention, sends each step of the workloads to both as chat messages and
compares text, prompt tokens and finish reason. Every answer that differs is asked of the builtin engine once more with its two best
tokens at each position, and told with the gap between them where the texts part: a gap near float32's rounding is a tie that
summation order decides, a large one is a fault. Exit code 1 if any gap is above ``--tie``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from harness.engines.base import Endpoint
from harness.engines.builtin import BuiltinEngine
from harness.engines.llamacpp import LlamaCppEngine
from harness.replay.prompts import build_request
from harness.workload import Arm, EngineSpec, load

__all__ = ["Disagreement", "compare", "main", "steps", "top_two_gap"]

WORKLOADS = Path(__file__).parents[1] / "workloads"
TIE = 1e-3
"""Difference of two log probabilities below which rounding may decide which token is the best."""
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One step that was answered differently; ``gap`` is between the two best tokens where the texts part, unknown without."""

    step: str
    what: str
    llamacpp: str
    builtin: str
    gap: float | None


def steps(paths: Sequence[Path], every: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and request body of every ``every``-th step, the recorded answers before it as its history."""
    number = 0
    for path in paths:
        loaded = load(path)
        replay, sampling = loaded.workload.replay, loaded.workload.sampling
        for task in loaded.tasks:
            for index in range(len(task.steps)):
                number += 1
                if (number - 1) % every:
                    continue
                answers = [step.recorded for step in task.steps[:index]]
                parts = build_request(task, index, answers, tools=replay.tools, salt=None)
                body: dict[str, Any] = {"messages": parts.messages, "max_tokens": sampling.max_tokens, "temperature": 0}
                if parts.tools is not None:
                    body["tools"] = parts.tools
                yield f"{path.stem}/{task.id}/{index}", body


def top_two_gap(content: Sequence[dict[str, Any]], agreed: str) -> float | None:
    """Return the difference of the two best log probabilities at the first token that does not lie in the text ``agreed``.

    ``content`` is ``choices[0].logprobs.content`` with ``top_logprobs`` 2.
    """
    written = b""
    for token in content:
        written += bytes(token.get("bytes") or token["token"].encode())
        if len(written) > len(agreed.encode()):
            best = sorted((item["logprob"] for item in token["top_logprobs"]), reverse=True)
            return best[0] - best[1] if len(best) > 1 else None
    last = content[-1]["top_logprobs"] if content else []
    return last[0]["logprob"] - last[1]["logprob"] if len(last) > 1 else None


async def compare(
    client: httpx.AsyncClient, ours: Endpoint, theirs: Endpoint, name: str, body: dict[str, Any]
) -> Disagreement | str:
    """Ask both engines; return how they disagree, or ``equal``, or ``too long`` where neither takes the prompt."""
    first, second = await _ask(client, ours, body), await _ask(client, theirs, body)
    if "error" in first or "error" in second:
        both = "error" in first and "error" in second
        return (
            "too long"
            if both
            else Disagreement(name, "refused", json.dumps(second)[:200], json.dumps(first)[:200], None)
        )
    made, other = first["choices"][0], second["choices"][0]
    texts = [choice["message"].get("content") or "" for choice in (other, made)]
    counts = [answer["usage"]["prompt_tokens"] for answer in (second, first)]
    if counts[0] != counts[1]:
        return Disagreement(name, "prompt tokens", str(counts[0]), str(counts[1]), None)
    if texts[0] == texts[1] and made["finish_reason"] == other["finish_reason"]:
        return "equal"
    told = await _ask(client, ours, {**body, "logprobs": True, "top_logprobs": 2})
    content = told["choices"][0]["logprobs"]["content"]
    agreed = _common(texts[0], texts[1])
    return Disagreement(
        name, "text", texts[0][len(agreed) :][:60], texts[1][len(agreed) :][:60], top_two_gap(content, agreed)
    )


def _common(one: str, other: str) -> str:
    parted = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(parted, min(len(one), len(other)))]


async def _ask(client: httpx.AsyncClient, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any]:
    extra = {
        key: value for key, value in endpoint.extra_body.items() if key not in ("return_rounds", "timings_per_token")
    }
    answer = await client.post(
        f"{endpoint.base_url}/v1/chat/completions", json={"model": endpoint.model, **extra, **body}, timeout=_TIMEOUT_S
    )
    value: dict[str, Any] = answer.json()
    return value


async def _run(options: argparse.Namespace) -> int:
    paths = [Path(path) for path in options.workloads] or sorted(WORKLOADS.glob("*.yaml"))
    asked = list(steps(paths, options.every))
    counts: Counter[str] = Counter()
    found: list[Disagreement] = []
    with tempfile.TemporaryDirectory() as folder:
        arms = [Arm(name="baseline", method="none")]
        common = {"model": options.model, "context_tokens": options.context_tokens, "threads": options.threads}
        ours = BuiltinEngine(
            EngineSpec(kind="builtin", options={"dtype": "float32"}, **common),
            arms,
            concurrency=1,
            folder=Path(folder) / "a",
        )
        theirs = LlamaCppEngine(
            EngineSpec(kind="llamacpp", options={"attention": "float32"}, **common),
            arms,
            concurrency=1,
            folder=Path(folder) / "b",
        )
        await ours.start()
        try:
            await theirs.start()
            async with httpx.AsyncClient() as client:
                for number, (name, body) in enumerate(asked, 1):
                    verdict = await compare(client, ours.endpoint("baseline"), theirs.endpoint("baseline"), name, body)
                    if isinstance(verdict, Disagreement):
                        found.append(verdict)
                        print(f"{verdict}", flush=True)
                    counts[verdict if isinstance(verdict, str) else "different"] += 1
                    print(f"\r{number}/{len(asked)} {dict(counts)}", end="", file=sys.stderr, flush=True)
        finally:
            await asyncio.gather(ours.stop(), theirs.stop())
    bad = [one for one in found if one.gap is None or one.gap > options.tie]
    print(f"\n{len(asked)} steps: {dict(counts)}; beyond a tie of {options.tie:g}: {len(bad)}")
    if options.out is not None:
        rows = [{name: getattr(one, name) for name in Disagreement.__slots__} for one in found]
        options.out.write_text(
            json.dumps({"counts": counts, "different": rows}, ensure_ascii=False, indent=1) + "\n", "utf-8"
        )
    return 1 if bad else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.agree", description="Compare both engines' greedy answers.")
    parser.add_argument("workloads", nargs="*", help="workload files (default: all of workloads/)")
    parser.add_argument("--model", default="ref-koen", help="a name that both engines know (default: ref-koen)")
    parser.add_argument("--every", type=int, default=1, help="take each n-th step (default: all)")
    parser.add_argument("--context-tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tie", type=float, default=TIE, help="gap up to which a difference is a tie")
    parser.add_argument("--out", type=Path, help="write counts and differences as JSON")
    return asyncio.run(_run(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
