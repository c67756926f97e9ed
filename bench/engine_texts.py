"""What the engine benchmark asks of the model: texts to copy, free writing, and sixteen of each for a full batch.

Written for this benchmark. A copy repeats its prompt, so lookup in the prompt pays; free writing repeats little, so it
mostly does not, and a controller has to notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["chat_tokens", "copy_requests", "free_requests"]

_SENTENCES = (
    "The harbour office opens at seven and the first ferry leaves twenty minutes later.",
    "Every crate on the upper deck carries a green label with its weight and owner.",
    "The clerk writes the number of each label into a ledger bound in grey cloth.",
    "Rain from the west usually arrives before noon and stops by the late afternoon.",
    "Two pilots share the night watch, and neither may leave the bridge alone.",
    "A spare anchor lies under the stairs, wrapped in canvas against the salt.",
    "The engineer checks the oil twice a day and signs the sheet beside the door.",
    "Passengers with bicycles board first and stand along the railing on the left.",
    "In winter the lamps are lit at four, and the last boat returns by nine.",
    "The cook buys fish from the small boats and bread from the mill on the hill.",
    "Letters for the islands travel in a red bag that only the captain opens.",
    "When fog covers the bay, the bell is rung once a minute until it lifts.",
    "The painter comes in May and does the hull first, then the masts, then the doors.",
    "A cat named Biscuit sleeps in the chart room and is counted among the crew.",
    "Tickets are torn at the gangway, and the stubs are kept in a tin for a year.",
    "Nobody whistles on board, although no one remembers who made that rule.",
)
_COPIED = 6
_SUBJECTS = (
    "how a mountain river changes on its way to the sea",
    "a clockmaker who moves to a village without clocks",
    "why bread rises and what can go wrong with it",
    "the first day of a new teacher at a small school",
    "how a library decides which books to keep",
    "a storm that reaches an island during a wedding",
    "what a city can do about noise at night",
    "the history of the pencil",
    "a gardener who grows vegetables on a roof",
    "how bees find their way home",
    "two friends who repair an old boat together",
    "what makes a good question",
    "the life of a street musician in autumn",
    "how salt was made before there were machines",
    "a train journey through a country at harvest time",
    "why some languages have many words for snow",
)


def copy_requests(number: int) -> list[str]:
    """Return ``number`` (up to 16) instructions to repeat a paragraph; each paragraph begins with another sentence."""
    texts = []
    for first in range(number):
        paragraph = " ".join(_SENTENCES[(first + offset) % len(_SENTENCES)] for offset in range(_COPIED))
        texts.append(f"Repeat the following text exactly, word for word, and add nothing:\n\n{paragraph}")
    return texts


def free_requests(number: int) -> list[str]:
    """Return ``number`` (up to 16) instructions to write freely, each on another subject."""
    return [f"Write a long and detailed text about {subject}." for subject in _SUBJECTS[:number]]


def chat_tokens(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return each text as one user message under the model's chat template, ready for the answer."""
    made = []
    for text in texts:
        message = [{"role": "user", "content": text}]
        shown = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        made.append(tuple(tokenizer(shown, add_special_tokens=False)["input_ids"]))
    return made
