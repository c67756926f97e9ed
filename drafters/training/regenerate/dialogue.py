"""One conversation being answered anew: prompts, system, user and tool turns stay, the target writes every assistant
turn, and later turns see what it wrote before. Assistant turns that open a conversation, before anybody said anything,
stay as well: nobody asked for them. Imports no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from drafters.engine.messages import ApiError, Message
from drafters.engine.text import PromptError, Text
from drafters.training.conversations import Conversation
from drafters.training.examples import Example
from drafters.training.regenerate.repetition import loops

__all__ = ["Answer", "Ask", "Dialogue", "Rules", "seed_of", "spread", "templated"]

Ended = Literal["all", "context", "repetition", "empty", "nothing_to_answer", "failed"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all conversations. A prompt and ``max_tokens`` must fit ``context_tokens`` together."""

    max_tokens: int
    context_tokens: int
    seed: int = 1
    keep_repetition: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """One answer asked for. ``messages`` and ``tools`` are what ``prompt`` was made of, empty for a plain text."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the target wrote: its tokens, the one that ends the turn included if it wrote it, and their text without
    special tokens. ``message`` is the turn as it goes into the history, by default the text alone."""

    token_ids: tuple[int, ...]
    text: str
    finish: Literal["stop", "length"]
    message: Mapping[str, Any] | None = None


@dataclass(slots=True)
class _Sequence:
    token_ids: list[int]
    answers: list[tuple[int, int]] = field(default_factory=list)


class Dialogue:
    """The state of one conversation: `ask`, then `take` or `fail`, in turn until `ask` returns ``None``."""

    def __init__(self, conversation: Conversation, text: Text, rules: Rules, temperature: float) -> None:
        self.conversation, self.temperature = conversation, temperature
        self.ended: Ended | None = None
        self.failure: str | None = None
        self._text, self._rules = text, rules
        self._opening = _opening(conversation.messages)
        self._place = 0  # the next message to be read
        self._history: list[Mapping[str, Any]] = []
        self._asked: Ask | None = None
        self._answers: list[dict[str, Any]] = []
        self._sequences: list[_Sequence] = []

    @property
    def answered(self) -> int:
        """Answers so far."""
        return len(self._answers)

    @property
    def turns(self) -> int:
        """Answers that the whole conversation asks for."""
        if self.conversation.text is not None:
            return 1
        return [message["role"] for message in self.conversation.messages[self._opening :]].count("assistant")

    def ask(self) -> Ask | None:
        """The next answer to ask for; ``None`` once the conversation has ended, as ``ended`` says."""
        if self.ended is not None:
            return None
        if self.answered == self.turns:
            self.ended = "all" if self.turns else "nothing_to_answer"
            return None
        prompt = self._checked_prompt()
        if prompt is None:
            return None
        if len(prompt) + self._rules.max_tokens > self._rules.context_tokens:
            self.ended = "context"
            return None
        self._asked = Ask(
            tuple(prompt),
            self._rules.max_tokens,
            self.temperature,
            seed_of(self._rules.seed, self.conversation.id, self.answered),
            tuple(self._history),
            self.conversation.tools if self._history else (),
        )
        return self._asked

    def take(self, answer: Answer) -> None:
        """Go on with what the target wrote. An answer without a word ends the conversation: the first one fails it, with a
        later one what came before is kept."""
        asked, self._asked = self._asked, None
        assert asked is not None  # one answer for each ask
        empty = not answer.text.strip() and not (answer.message or {}).get("tool_calls")
        if empty and not self._answers:
            self.fail(f"answer 1 is empty ({answer.finish} after {len(answer.token_ids)} tokens)")
            return
        looping = loops(answer.text)
        kept = not empty and (self._rules.keep_repetition or not looping)
        self._answers.append({"tokens": len(answer.token_ids), "finish": answer.finish, "loops": looping, "kept": kept})
        if not kept:
            self.ended = "empty" if empty else "repetition"  # what follows would be answers to nothing, or to a loop
            return
        self._extend(asked.prompt, answer.token_ids)
        self._history.append(self._turn(answer))

    def fail(self, reason: str) -> None:
        """Give the conversation up: nothing of it is kept."""
        self.ended, self.failure = "failed", reason

    def examples(self) -> list[Example]:
        """Token sequences with the answers marked: one, unless the template writes earlier turns differently later."""
        found, name = self.conversation, self.conversation.id
        return [
            Example(
                name if len(self._sequences) == 1 else f"{name}#{number}",
                found.language,
                found.text_type,
                found.split,
                tuple(sequence.token_ids),
                tuple(sequence.answers),
                self.temperature,
            )
            for number, sequence in enumerate(self._sequences, start=1)
        ]

    def record(self) -> dict[str, Any]:
        """What is kept of an ended conversation, as JSON values."""
        found = self.conversation
        return {
            "id": found.id,
            "language": found.language,
            "text_type": found.text_type,
            "split": found.split,
            "temperature": self.temperature,
            "ended": self.ended,
            "turns": self.turns,
            "answers": self._answers,
            "examples": [example.to_json() for example in self.examples()],
        }

    def _checked_prompt(self) -> list[int] | None:
        """The tokens up to where the next answer begins; ``None`` when there are none, and the dialogue has failed."""
        try:
            prompt = self._prompt()
        except PromptError as error:
            self.fail(str(error))
        except (ApiError, ValidationError, UnicodeError) as error:
            self.fail(f"a message cannot be used: {' '.join(str(error).split())[:300]}")
        else:
            if prompt:
                return prompt
            self.fail("the prompt has no tokens")
        return None

    def _prompt(self) -> list[int]:
        if self.conversation.text is not None:
            return self._text.encode(self.conversation.text, special=True)
        messages = self.conversation.messages
        while self._place < self._opening or messages[self._place]["role"] != "assistant":
            if not _to_be_given(messages[self._place]):
                self._history.append(messages[self._place])
            self._place += 1
        text = self._text.chat(templated(self._history), self.conversation.tools or None)
        self._place += 1  # past the recorded answer, which nobody sees
        # The template writes the special tokens itself, as for the engine's server.
        return self._text.encode(text)

    def _turn(self, answer: Answer) -> Mapping[str, Any]:
        """The answer as it stands in the history; its calls have the ids that the recorded results belong to."""
        if answer.message is None:
            return {"role": "assistant", "content": answer.text}
        calls = answer.message.get("tool_calls")
        if not calls:
            return answer.message
        recorded = self.conversation.messages[self._place - 1].get("tool_calls") or []
        ids = [call.get("id") for call in recorded] + [None] * len(calls)
        return {
            **answer.message,
            "tool_calls": [{**call, "id": name or call.get("id")} for call, name in zip(calls, ids, strict=False)],
        }

    def _extend(self, prompt: Sequence[int], answer: Sequence[int]) -> None:
        last = self._sequences[-1] if self._sequences else None
        # What was written must stand in the later prompt token by token, or positions and states would be others.
        if last is None or list(prompt[: len(last.token_ids)]) != last.token_ids:
            last = _Sequence([])
            self._sequences.append(last)
        last.token_ids = [*prompt, *answer]
        last.answers.append((len(prompt), len(last.token_ids)))


def _opening(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many messages stand before the first one that an answer could be to."""
    roles = [message["role"] for message in messages]
    if "user" in roles:
        return roles.index("user")
    return next((place for place, role in enumerate(roles) if role != "assistant"), len(roles))


def _to_be_given(message: Mapping[str, Any]) -> bool:
    """Whether a message is the place of an answer and holds none."""
    return message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls")


def templated(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as chat templates take them, the same way as the engine's server. Raises ApiError or ValidationError."""
    return [Message.model_validate(message).for_template() for message in messages]


def seed_of(seed: int, name: str, turn: int) -> int:
    """The seed of one answer, the same whatever else is answered: 0 to 2**63 - 1."""
    return int.from_bytes(_hash(f"{seed}:{turn}:{name}")[:8]) >> 1


def spread(names: Sequence[str], temperatures: Sequence[float], seed: int) -> dict[str, float]:
    """Give each conversation a temperature, each temperature to as many (give or take one), in an order drawn by seed.

    The order of the mapping is that order.
    """
    drawn = sorted(names, key=lambda name: (_hash(f"{seed}:{name}"), name))
    return {name: temperatures[place % len(temperatures)] for place, name in enumerate(drawn)}


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
