"""Whether both engines write the same, and draft the same: their greedy answers to the same prompts.

``python -m bench.agree [--model ref-koen] [--drafter ref:public-dflash2 [--tokens N]] [--attention engine] [--every 10]
[--limit-tasks N] [--limit-steps N] [--max-tokens N] [--out FILE.json] [WORKLOAD.yaml …]`` starts both servers, the builtin one in
float32 and llama.cpp's with float32 K/V and no flash attention (or as it is by itself, with ``--attention engine``), sends each step
of the workloads to both as chat messages and compares text, prompt tokens and finish reason. Every answer that differs is told with
the gap between the builtin engine's two best tokens where the texts part: a gap near float32's rounding is a tie that summation
order decides, a large one is a fault.

With a drafter both sides draft with it, and the rounds, drafted and accepted tokens of either are printed for each step with
equal answers, and in sum. Exit code 1 if a difference is no tie, or if no two answers were equal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from bench.agree_answers import Outcome, Side, compare
from harness.engines.builtin import BuiltinEngine
from harness.engines.llamacpp import LlamaCppEngine
from harness.errors import HarnessError, UsageError
from harness.models import resolve_folder
from harness.records import SpecCounters
from harness.replay.prompts import build_request
from harness.workload import Arm, EngineSpec, load, spread

__all__ = ["arms_of", "exit_code", "main", "steps", "summary"]

WORKLOADS = Path(__file__).parents[1] / "workloads"
TIE = 1e-3
"""Difference of two log probabilities below which rounding may decide which token is the best."""
ARM = "arm"
START_TIMEOUT_S = 600.0  # a machine that is busy with other work loads slowly; nothing here is timed
METHODS = {
    "DFlashDraftModel": ("dflash", "draft-dflash"),
    "DFlash2DraftModel": ("dflash2", "draft-dflash"),
    "LlamaForCausalLMEagle3": ("eagle3", "draft-eagle3"),
    "Eagle3LlamaForCausalLM": ("eagle3", "draft-eagle3"),
}
"""Architecture of a drafter → its method on the builtin engine and on llama.cpp."""


def steps(
    paths: Sequence[Path],
    every: int,
    limit_tasks: int | None = None,
    limit_steps: int | None = None,
    max_tokens: int | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and request body of every ``every``-th step, the recorded answers before it as its history.

    Args:
        paths: workload files; a task that an earlier one has too is left out.
        every: 1 takes all steps.
        limit_tasks: of each workload, spread evenly over it.
        limit_steps: the first so many of each task.
        max_tokens: of each answer, instead of the workload's own limit.
    """
    number = 0
    known: set[str] = set()
    for path in paths:
        loaded = load(path)
        replay, sampling = loaded.workload.replay, loaded.workload.sampling
        fresh = [task for task in loaded.tasks if task.id not in known]
        known |= {task.id for task in fresh}
        for task in spread(fresh, limit_tasks or len(fresh)):
            for index in range(min(len(task.steps), limit_steps or len(task.steps))):
                number += 1
                if (number - 1) % every:
                    continue
                answers = [step.recorded for step in task.steps[:index]]
                parts = build_request(task, index, answers, tools=replay.tools, salt=None)
                limit = max_tokens or min(sampling.max_tokens, task.steps[index].max_tokens)
                body: dict[str, Any] = {"messages": parts.messages, "max_tokens": limit, "temperature": 0}
                if parts.tools is not None:
                    body["tools"] = parts.tools
                yield f"{path.stem}/{task.id}/{index}", body


def arms_of(drafter: str | None, tokens: int | None) -> tuple[Arm, Arm]:
    """Return llama.cpp's arm and the builtin engine's for a drafter that comes with the package; without one neither drafts.

    ``tokens`` is how many a round drafts; by default all that a block holds, else 4.

    Raises:
        ModelError: if there is no such drafter.
        UsageError: if llama.cpp does not have its method.
    """
    if drafter is None:
        return Arm(name=ARM, method="none"), Arm(name=ARM, method="none")
    config = json.loads((resolve_folder(drafter).path / "config.json").read_text("utf-8"))
    names = [str(name) for name in config.get("architectures") or []]
    methods = next((METHODS[name] for name in names if name in METHODS), None)
    if methods is None and any(name.endswith("ForCausalLM") for name in names):
        methods = "draft_model", "draft-simple"
    if methods is None:
        raise UsageError(
            f"{drafter} is of a method that llama.cpp does not have; allowed: dflash, dflash2, eagle3, draft_model"
        )
    block = config.get("block_size")
    count = tokens or (block - 1 if isinstance(block, int) else 4)
    return (
        Arm(name=ARM, method=methods[1], draft_model=drafter, options={"n_max": count}),
        Arm(name=ARM, method=methods[0], options={"model": drafter, "num_tokens": count}),
    )


def exit_code(outcomes: Sequence[Outcome], tie: float) -> int:
    """Return 0 if answers were equal and all that differ are ties."""
    equal = any(one.verdict == "equal" for one in outcomes)
    return 0 if equal and not any(_beyond(one, tie) for one in outcomes) else 1


def summary(outcomes: Sequence[Outcome], tie: float) -> str:
    """Return the lines that end the output."""
    counts = Counter(one.verdict for one in outcomes)
    parted = [one.gap for one in outcomes if one.gap is not None]
    line = f"{len(outcomes)} steps: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}"
    line += f"; beyond a tie of {tie:g}: {sum(_beyond(one, tie) for one in outcomes)}"
    lines = [line + (f"; largest gap where texts part: {max(parted):.2g}" if parted else "")]
    drafted = [one for one in outcomes if one.counts is not None]
    if drafted:
        pairs = [one.counts for one in drafted if one.counts is not None]
        kinds = Counter(_alike(one) for one in drafted)
        theirs, ours = (sum((pair[side] for pair in pairs), start=SpecCounters(0, 0, 0)) for side in (0, 1))
        lines.append(f"{len(pairs)} equal answers, llama.cpp | builtin: {_figures((theirs, ours))}")
        lines.append(f"acceptance length, llama.cpp | builtin: {_length(theirs)} | {_length(ours)}")
        lines.append(
            f"counts of {kinds['same']} the same; of {kinds['end']} the same but for one accepted token less on llama.cpp, where "
            f"the answer ended itself; of {kinds['other']} others"
        )
    return "\n".join(lines)


def _beyond(one: Outcome, tie: float) -> bool:
    return one.verdict not in ("equal", "too long") and (one.gap is None or one.gap > tie)


def _alike(one: Outcome) -> str:
    assert one.counts is not None
    theirs, ours = one.counts
    rounds = None in (theirs.num_drafts, ours.num_drafts) or theirs.num_drafts == ours.num_drafts
    less = ours.num_accepted_tokens - theirs.num_accepted_tokens
    if not rounds or theirs.num_draft_tokens != ours.num_draft_tokens or less not in (0, 1):
        return "other"
    return "same" if less == 0 else "end" if one.ended else "other"


def _figures(counts: tuple[SpecCounters, SpecCounters]) -> str:
    theirs, ours = counts
    rows = (
        ("rounds", theirs.num_drafts, ours.num_drafts),
        ("drafted", theirs.num_draft_tokens, ours.num_draft_tokens),
        ("accepted", theirs.num_accepted_tokens, ours.num_accepted_tokens),
    )
    return ", ".join(f"{name} {_count(one)} | {_count(other)}" for name, one, other in rows)


def _count(value: int | None) -> str:
    return "–" if value is None else str(value)


def _length(counts: SpecCounters) -> str:
    return f"{1 + counts.num_accepted_tokens / counts.num_drafts:.3f}" if counts.num_drafts else "–"


def _told(one: Outcome) -> str:
    if one.counts is not None:
        return f"{one.step}: {_figures(one.counts)}{'' if _alike(one) == 'same' else f' ({_alike(one)})'}"
    gap = "unknown" if one.gap is None else f"{one.gap:.3g}"
    return f"{one.step}: {one.verdict} differ, gap {gap}; llama.cpp {one.llamacpp!r}, builtin {one.builtin!r}"


async def _run(options: argparse.Namespace) -> int:
    paths = [Path(path) for path in options.workloads] or sorted(WORKLOADS.glob("*.yaml"))
    asked = list(steps(paths, options.every, options.limit_tasks, options.limit_steps, options.max_tokens))
    their_arm, our_arm = arms_of(options.drafter, options.tokens)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        common = {
            "model": options.model,
            "context_tokens": options.context_tokens,
            "threads": options.threads,
            "start_timeout_s": START_TIMEOUT_S,
        }
        ours = BuiltinEngine(
            EngineSpec(kind="builtin", options={"dtype": "float32"}, **common),
            [our_arm],
            concurrency=1,
            folder=Path(folder) / "builtin",
        )
        theirs = LlamaCppEngine(
            EngineSpec(kind="llamacpp", options={"attention": options.attention}, **common),
            [their_arm],
            concurrency=1,
            folder=Path(folder) / "llamacpp",
        )
        try:
            await ours.start()
            await theirs.start()
            their_side = Side(theirs.endpoint(ARM), partial(theirs.reader, ARM))
            our_side = Side(ours.endpoint(ARM), partial(ours.reader, ARM))
            async with httpx.AsyncClient() as client:
                for number, (name, body) in enumerate(asked, 1):
                    outcomes.append(await compare(client, their_side, our_side, name, body))
                    if outcomes[-1].counts is not None or outcomes[-1].verdict not in ("equal", "too long"):
                        print(_told(outcomes[-1]), flush=True)
                    if sys.stderr.isatty():
                        print(f"\r{number}/{len(asked)} ", end="", file=sys.stderr, flush=True)
        finally:
            await asyncio.gather(ours.stop(), theirs.stop())
    print(summary(outcomes, options.tie))
    if options.out is not None:
        given = {name: getattr(options, name) for name in ("model", "drafter", "tokens", "attention", "every", "tie")}
        rows = {"options": given, "outcomes": [asdict(one) for one in outcomes]}
        options.out.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", "utf-8")
    return exit_code(outcomes, options.tie)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.agree", description="Compare both engines' greedy answers.")
    parser.add_argument("workloads", nargs="*", help="workload files (default: all of workloads/)")
    parser.add_argument("--model", default="ref-koen", help="a name that both engines know (default: ref-koen)")
    parser.add_argument("--drafter", metavar="ref:NAME", help="let both engines draft with this one of the package")
    parser.add_argument("--tokens", type=int, help="drafted tokens of a round (default: a whole block, else 4)")
    parser.add_argument(
        "--attention", choices=("float32", "engine"), default="float32", help="llama.cpp's (default: float32)"
    )
    parser.add_argument("--every", type=int, default=1, help="take each n-th step (default: all)")
    parser.add_argument("--limit-tasks", type=int, metavar="N", help="of each workload, spread over it (default: all)")
    parser.add_argument("--limit-steps", type=int, metavar="N", help="first steps of each task (default: all)")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="of each answer (default: the task's own limit)")
    parser.add_argument("--context-tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tie", type=float, default=TIE, help="gap up to which a difference is a tie")
    parser.add_argument("--out", type=Path, help="write options and what became of each step as JSON")
    try:
        return asyncio.run(_run(parser.parse_args(arguments)))
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
