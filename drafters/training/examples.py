"""Token sequences with the target's own answers marked: what hidden states are captured from and drafters learn on.

One JSON object a line: ``{"id", "language", "text_type", "split", "token_ids", "answers", "temperature"}``, where
``answers`` are the [start, end) ranges that the target wrote itself, the token that ends a turn included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from drafters.training.stage import StageError

__all__ = ["Example", "read_examples"]


@dataclass(frozen=True, slots=True)
class Example:
    """One sequence; ``answers`` are disjoint, ascending and not empty."""

    id: str
    language: str
    text_type: str
    split: Literal["train", "heldout"]
    token_ids: tuple[int, ...]
    answers: tuple[tuple[int, int], ...]
    temperature: float | None = None
    """At which the target wrote them; ``None`` where it is not known."""

    @property
    def answer_tokens(self) -> int:
        """Tokens that the target wrote."""
        return sum(end - start for start, end in self.answers)

    def to_json(self) -> str:
        """One line, without its end."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, ensure_ascii=False)


def read_examples(path: Path, vocab_size: int) -> Iterator[Example]:
    """Yield the examples of a file. Raises StageError with file and line, also for a token of another vocabulary."""
    try:
        lines = path.open(encoding="utf-8")
    except OSError as error:
        raise StageError(f"{path} cannot be read: {error.strerror}; give what 'drafters regenerate' wrote") from error
    same = list(range(vocab_size))  # one object for each token id, or every token of every example takes one of its own
    with lines:
        for number, line in enumerate(lines, start=1):
            made = _example(f"{path}:{number}", line, vocab_size)
            yield replace(made, token_ids=tuple(same[token] for token in made.token_ids))


def _example(place: str, line: str, vocab_size: int) -> Example:
    try:
        value = json.loads(line)
        made = Example(
            **{
                **value,
                "token_ids": tuple(map(int, value["token_ids"])),
                "answers": tuple((int(start), int(end)) for start, end in value["answers"]),
                "temperature": None if value.get("temperature") is None else float(value["temperature"]),
            }
        )
    except (ValueError, TypeError, KeyError) as error:
        raise StageError(f"{place}: no example ({error}); run 'drafters regenerate' again") from error
    wrong = next((token for token in made.token_ids if not 0 <= token < vocab_size), None)
    if wrong is not None:
        raise StageError(
            f"{place}: token id {wrong}; allowed: 0 to {vocab_size - 1}, the target's vocabulary. "
            "Regenerate the answers with this target"
        )
    if made.temperature is not None and not 0.0 <= made.temperature < float("inf"):
        raise StageError(f"{place}: temperature {made.temperature}; allowed: 0 or above, or null where it is not known")
    before = 1  # the first token follows nothing, so it cannot be predicted
    for start, end in made.answers:
        if not before <= start < end <= len(made.token_ids):
            raise StageError(
                f"{place}: answer [{start}, {end}) of {len(made.token_ids)} tokens; allowed: ascending, not empty"
            )
        before = end
    if not made.answers:
        raise StageError(f"{place}: no answer of the target in it; run 'drafters regenerate' again")
    return made
