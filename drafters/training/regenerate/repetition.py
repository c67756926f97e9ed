"""Whether a text loops: training on loops teaches a drafter what no real answer rewards."""

from __future__ import annotations

GRAM = 8
"""Characters in a piece: longer than nearly every word, Hangul or Latin, so that chance repeats are rare."""
TAIL = 400
"""A model that falls into a loop does not come out of it, so the end of the text tells."""
SHORTEST = 5 * GRAM
"""Shorter texts are not judged."""


def loops(text: str) -> bool:
    """Whether at least half of the character 8-grams in the last 400 characters are repeats.

    The instrument flags outputs as repetitive by the same rule; two tool calls with nearly the same arguments reach 0.43,
    program code 0.40, prose 0.1.
    """
    tail = text[-TAIL:]
    places = len(tail) - GRAM + 1
    return len(tail) >= SHORTEST and 2 * len({tail[at : at + GRAM] for at in range(places)}) <= places
