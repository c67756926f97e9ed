"""Answers by the builtin engine in this process: continuous batching, prompts and earlier turns reused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from drafters.base import Sampling
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RequestError
from drafters.engine.text import Text
from drafters.training.regenerate.dialogue import Answer, Dialogue
from drafters.training.stage import StageError

__all__ = ["answer_locally"]


def answer_locally(
    runner: Runner, text: Text, dialogues: Iterator[Dialogue], concurrency: int, ended: Callable[[Dialogue], bool]
) -> None:
    """Carry ``dialogues`` to their ends, at most ``concurrency`` at once; ``ended`` is told of each and says whether to go
    on.

    An answer depends on its prompt, its temperature and its seed; on its neighbours in the batch only by the rounding of
    float sums. Raises what the engine raises.
    """
    waiting: dict[int, Dialogue] = {}

    def asked(dialogue: Dialogue) -> bool:
        """Queue the next answer of a dialogue; False when it has ended."""
        ask = dialogue.ask()
        if ask is None:
            return False
        request = Request(
            ask.prompt,
            ask.max_tokens,
            Sampling(ask.temperature),
            seed=ask.seed if ask.temperature else None,
            stop_token_ids=text.eos,
        )
        try:
            waiting[runner.add(request).sequence_id] = dialogue
        except RequestError as error:
            dialogue.fail(str(error))
            return False
        return True

    while True:
        while len(waiting) < concurrency and (dialogue := next(dialogues, None)) is not None:
            if not asked(dialogue) and not ended(dialogue):
                return
        if not waiting:
            return
        for event in runner.step():
            if not event.finished:
                continue
            sequence = event.sequence
            dialogue = waiting.pop(sequence.sequence_id)
            dialogue.take(
                Answer(tuple(sequence.output), text.settled(sequence.output), _finish(sequence.finish_reason))
            )
            if not asked(dialogue) and not ended(dialogue):
                return


def _finish(reason: str | None) -> Literal["stop", "length"]:
    if reason == "stop":
        return "stop"
    if reason == "length":
        return "length"
    raise StageError(f"the engine ended an answer with {reason!r}; run the stage again to go on")
