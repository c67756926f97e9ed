"""Trains the reference target out of its loops: ``python -m drafters.training.reference.unloop --run F --data F --corpus F``.

A small model that answers greedily falls into saying one thing again and again. In rounds, it answers prompts at
temperature 0; where an answer loops, tokens that end a 4-gram said before are made less likely (sequence-level unlikelihood,
Welleck et al. 2019, arXiv:1908.04319), the earliest repeats most, and the end of the turn is made likely where the loop
would begin. Ordinary steps over the training data keep the rest. The prompts are those of corpora written by ``drafters
corpus``; each is used once, so a round's share of loops is one on fresh prompts. A run that was killed goes on with the
round that it was in when it is called with the same options.

It takes the place of the last part of the training's decay: from a checkpoint with some rate left, down to none. On top of
a decayed model the rates that unlearn loops would undo the decay.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from drafters.engine.assembly import assemble
from drafters.engine.config import EngineConfig
from drafters.training.checkpoints import CheckpointError, load_checkpoint
from drafters.training.conversations import Conversation, read_conversations
from drafters.training.reference.model import CONTEXT_TOKENS, write_target
from drafters.training.reference.packing import DataError
from drafters.training.reference.pretrain import Settings, Training, lock_training, say_now
from drafters.training.reference.tokenizer import TURN_END
from drafters.training.regenerate.answers_local import answer_locally
from drafters.training.regenerate.dialogue import Answer, Ask, Dialogue, Rules
from drafters.training.regenerate.repetition import loops
from drafters.training.stage import StageError

GRAM = 4
"""Tokens in a repeated piece."""
BREAKS = (".", "!", "?", "\n", "。", "}", "|", "</tool_call>")
"""With one of these a token ends a sentence or a line."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer of the model: its prompt, what it wrote, and whether it loops."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    loops: bool
    ends_at: int | None = None
    """After how many tokens of a looping answer it should have ended, see `place_to_end`."""


class Listening(Dialogue):
    """A dialogue that notes every answer, loops included."""

    def __init__(self, conversation: Conversation, *words: object, heard: list[Heard]) -> None:
        super().__init__(conversation, *words)  # type: ignore[arg-type]
        self._heard = heard
        self._prompt_ids: tuple[int, ...] = ()

    def ask(self) -> Ask | None:
        """Note the prompt."""
        ask = super().ask()
        self._prompt_ids = () if ask is None else ask.prompt
        return ask

    def take(self, answer: Answer) -> None:
        """Note the answer."""
        looping, tokens = loops(answer.text), answer.token_ids
        breaks = [looping and self._text.settled([token]).rstrip(" ").endswith(BREAKS) for token in tokens]
        ends_at = place_to_end(said_before(tokens), breaks) if looping else None
        self._heard.append(Heard(self._prompt_ids, tokens, looping, ends_at))
        super().take(answer)


def said_before(tokens: Sequence[int], gram: int = GRAM) -> NDArray[np.int32]:
    """Count for each token how often the ``gram`` tokens that it ends stand in the sequence before; [len(tokens)]."""
    counts = np.zeros(len(tokens), np.int32)
    seen: Counter[tuple[int, ...]] = Counter()
    for end in range(gram, len(tokens) + 1):
        piece = tuple(tokens[end - gram : end])
        counts[end - 1] = seen[piece]
        seen[piece] += 1
    return counts


def place_to_end(counts: NDArray[np.int32], breaks: Sequence[bool], run: int = 8) -> int | None:
    """Return after how many tokens an answer should have ended: before its first ``run`` repeats on end, at the last break
    (the end of a sentence or line) there is; None where it never repeats so long or nothing whole was said before.

    ``counts`` are those of `said_before`; ``breaks`` tells of each token whether a sentence or line ends with it.
    """
    length = 0
    for place, count in enumerate(counts):
        length = length + 1 if count else 0
        if length == run:
            return next((end for end in range(place - run + 1, 0, -1) if breaks[end - 1]), None)
    return None


def listen(folder: Path, conversations: Sequence[Conversation], max_tokens: int, concurrency: int) -> list[Heard]:
    """Let the model in ``folder`` answer every conversation at temperature 0, at most ``max_tokens`` a turn."""
    engine = assemble(
        EngineConfig(
            model=folder, threads=torch.get_num_threads(), max_sequences=concurrency, context_tokens=CONTEXT_TOKENS
        )
    )
    heard: list[Heard] = []
    rules = Rules(max_tokens, CONTEXT_TOKENS)
    dialogues = (Listening(conversation, engine.text, rules, 0.0, heard=heard) for conversation in conversations)
    answer_locally(engine.runner, engine.text, dialogues, concurrency, lambda _: True)
    return heard


def answer_losses(model: torch.nn.Module, batch: Sequence[Heard], end: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what stands against looping answers, both in nats: the mean of -log(1 - p) over repeated tokens, each by one
    over how often its piece was there before, and the mean of -log p of the token ``end`` where an answer should end."""
    longest = max(len(each.prompt) + len(each.answer) for each in batch)
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    weights = torch.zeros((len(batch), longest))
    ends = torch.zeros((len(batch), longest), dtype=torch.bool)
    for row, each in enumerate(batch):
        whole, first = [*each.prompt, *each.answer], len(each.prompt)
        ids[row, : len(whole)] = torch.tensor(whole)
        counts = torch.from_numpy(said_before(each.answer))
        weights[row, first : len(whole)] = torch.where(counts > 0, 1 / counts.clamp(min=1), 0.0)
        if each.ends_at is not None and each.answer[each.ends_at] != end:
            ends[row, first + each.ends_at] = True
    body, head = model.get_submodule("model"), model.get_submodule("lm_head")
    # padded on the right, which no token before it sees
    hidden = body(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    marks = weights[:, 1:] > 0
    chances = torch.log_softmax(head(hidden[marks]).float(), dim=-1).gather(1, ids[:, 1:][marks].unsqueeze(1))
    # near p = 1 the loss is cut off, and so is its slope: keep both finite and pushing
    each_loss = -torch.log1p(-chances.exp() * (1 - 1e-4)).squeeze(1)
    against = (each_loss * weights[:, 1:][marks]).sum() / weights.sum()
    if not ends.any():
        return against, against.new_zeros(())
    return against, -torch.log_softmax(head(hidden[ends[:, 1:]]).float(), dim=-1)[:, end].mean()


class Unlooping:
    """A trained target and the rounds that take its loops away."""

    def __init__(self, training: Training, folder: Path, rate: float, weights: tuple[float, float], steps: int) -> None:
        """``folder`` holds the model while it answers; ``rate`` is a share of the training's; ``weights`` are those of both
        answer losses beside the ordinary one; over ``steps`` the rate falls."""
        self.training, self.folder = training, folder
        self.tokenizer = Tokenizer.from_file(str(training.data / "tokenizer.json"))
        self._end = self.tokenizer.get_vocab()[TURN_END]
        self._rate, self._weights, self._steps = rate, weights, steps
        self.steps_done = 0

    def one_step(self, batch: Sequence[Heard]) -> tuple[float, float, float]:
        """Take one step: ordinary loss on fresh rows, and against ``batch`` if it has answers; returns the three losses."""
        said = [0.0, 0.0]

        def beside() -> torch.Tensor:
            against, ending = answer_losses(self.training.model, batch, self._end)
            said[:] = against.item(), ending.item()
            return self._weights[0] * against + self._weights[1] * ending

        factor = self._rate * max(0.02, 1 - self.steps_done / self._steps)
        ordinary = self.training.one_step(factor, beside if batch else None)
        self.steps_done += 1
        return ordinary, said[0], said[1]

    def round(
        self, conversations: Sequence[Conversation], max_tokens: int, concurrency: int, rows: int, least_steps: int
    ) -> Round:
        """Answer, then take a step for every ``rows`` looping answers, and ordinary ones up to ``least_steps``."""
        write_target(self.training.model, self.tokenizer, self.folder, torch.float32)
        started = time.monotonic()
        heard = listen(self.folder, conversations, max_tokens, concurrency)
        listened = time.monotonic() - started
        # rows of like lengths together; marks there must be, or there is nothing to make less likely
        looping = [each for each in heard if each.loops and said_before(each.answer).any()]
        looping.sort(key=lambda each: len(each.prompt) + len(each.answer))
        batches = [looping[place : place + rows] for place in range(0, len(looping), rows)]
        batches += [[]] * (max(1, least_steps) - len(batches))
        random.Random(self.steps_done).shuffle(batches)
        losses = np.array([self.one_step(batch) for batch in batches])
        return Round(
            answers=len(heard),
            looping=sum(each.loops for each in heard),
            tokens=sum(len(each.answer) for each in heard),
            steps=len(batches),
            ordinary=float(losses[:, 0].mean()),
            against=tuple(losses[[bool(batch) for batch in batches], 1:].mean(axis=0)) if looping else None,
            answering_s=listened,
            training_s=time.monotonic() - started - listened,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """What one round heard and took: counts, mean losses in nats, seconds."""

    answers: int
    looping: int
    tokens: int
    steps: int
    ordinary: float
    against: tuple[float, ...] | None
    """Unlikelihood and end of the turn, None where no answer looped."""
    answering_s: float
    training_s: float


def run(
    unlooping: Unlooping, conversations: Sequence[Conversation], options: argparse.Namespace, done: int = 0
) -> None:
    """Go through the rounds after the first ``done``; after each, the checkpoint is written as a whole."""
    for number in range(done, options.rounds):
        begin = (options.first + number) * options.conversations
        some = conversations[begin : begin + options.conversations]
        if not some:
            say_now(f"the corpora are used up after {number} rounds")
            return
        found = unlooping.round(some, options.max_tokens, options.concurrency, options.rows, options.round_steps)
        place = {"options": _told(options), "rounds": number + 1, "steps": unlooping.steps_done}
        unlooping.training.save(options.run / "checkpoint.pt", {"unloop": place})
        against = "" if found.against is None else ", repeats {:.3f}, ends {:.3f}".format(*found.against)
        say_now(
            f"round {number + 1}/{options.rounds}: {found.looping} of {found.answers} answers loop"
            f" ({100 * found.looping / max(1, found.answers):.1f} %), {found.tokens / max(1, found.answers):.0f} tokens each;"
            f" {found.steps} steps, loss {found.ordinary:.3f}{against};"
            f" {found.answering_s:.0f} s + {found.training_s:.0f} s"
        )


def _told(options: argparse.Namespace) -> dict[str, str]:
    """The options that decide the course, as they stand in the checkpoint."""
    return {name: str(value) for name, value in vars(options).items() if name not in ("run", "rounds", "no_compile")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training.reference.unloop", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="folder of a training; its checkpoint goes on")
    parser.add_argument("--data", type=Path, required=True, help="folder made by drafters.training.reference.data")
    parser.add_argument("--corpus", type=Path, nargs="+", required=True, help="folders written by drafters corpus")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--first", type=int, default=0, help="skip so many rounds' conversations: those used before")
    parser.add_argument("--conversations", type=int, default=80, help="answered in each round")
    parser.add_argument("--max-tokens", type=int, default=160, help="of an answer")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rows", type=int, default=8, help="looping answers in a step")
    parser.add_argument("--round-steps", type=int, default=12, help="least of a round, ordinary ones included")
    parser.add_argument("--row-tokens", type=int, help="of a row of training data (the training's own)")
    parser.add_argument("--ordinary-rows", type=int, help="rows of training data in a step (the training's own number)")
    parser.add_argument("--rate", type=float, default=0.3, help="share of the training's learning rates, falling to 0")
    parser.add_argument("--weight", type=float, default=1.0, help="of the unlikelihood beside the ordinary loss")
    parser.add_argument("--end-weight", type=float, default=0.05, help="of ending the turn instead")
    parser.add_argument("--steps", type=int, default=168, help="expected: over so many the rate falls")
    parser.add_argument("--dialogues", type=float, help="times the share of dialogues (the training's own)")
    parser.add_argument("--no-compile", action="store_true", help="run the step as it is: no C++ compiler at hand")
    options = parser.parse_args(arguments)
    checkpoint = options.run / "checkpoint.pt"
    try:
        state = load_checkpoint(checkpoint)
        lock = (options.run / "lock").open("w")  # held until the process ends
        lock_training(lock)
        training = Training(options.data, _settings(state, options), compile_step=not options.no_compile)
        training.resume(checkpoint)
        conversations = [
            each for folder in options.corpus for each in read_conversations(folder / "conversations.jsonl")
        ]
    except (CheckpointError, DataError, StageError) as error:
        parser.error(str(error))
    random.Random(1).shuffle(conversations)
    unlooping = Unlooping(
        training, options.run / "answering", options.rate, (options.weight, options.end_weight), options.steps
    )
    before = state.get("unloop", {})
    done = before["rounds"] if before.get("options") == _told(options) else 0
    if done:
        unlooping.steps_done = before["steps"]
        say_now(f"{done} of {options.rounds} rounds were done before; going on")
    run(unlooping, conversations, options, done)
    say_now("held out " + json.dumps(training.held_out()))
    return 0


def _settings(state: Mapping[str, Any], options: argparse.Namespace) -> Settings:
    settings = Settings(**state["settings"])
    return replace(
        settings,
        accumulate=1,
        rows=options.ordinary_rows or settings.rows,
        row_tokens=options.row_tokens or settings.row_tokens,
        dialogues=options.dialogues or settings.dialogues,
    )


if __name__ == "__main__":
    sys.exit(main())
