"""Counts of what the target wrote, in all and by language, text type, split and temperature."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["summary"]

GROUPS = ("language", "text_type", "split", "temperature")


@dataclass(slots=True)
class _Tally:
    conversations: int = 0
    answers: int = 0
    tokens: int = 0
    looping: int = 0
    kept_answers: int = 0
    kept_tokens: int = 0
    examples: int = 0
    finish: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    not_asked: int = 0

    def add(self, record: Mapping[str, Any]) -> None:
        self.conversations += 1
        self.ended[record["ended"]] += 1
        self.examples += len(record["examples"])
        self.not_asked += record["turns"] - len(record["answers"])
        for answer in record["answers"]:
            self.answers += 1
            self.tokens += answer["tokens"]
            self.looping += answer["loops"]
            self.finish[answer["finish"]] += 1
            if answer["kept"]:
                self.kept_answers += 1
                self.kept_tokens += answer["tokens"]

    def to_json(self) -> dict[str, Any]:
        return {
            "conversations": self.conversations,
            "ended": dict(sorted(self.ended.items())),
            "answers": self.answers,
            "tokens": self.tokens,
            "mean_tokens": round(self.tokens / self.answers, 2) if self.answers else None,
            "finish": dict(sorted(self.finish.items())),
            "looping": self.looping,
            "looping_share": round(self.looping / self.answers, 4) if self.answers else None,
            "turns_not_asked": self.not_asked,
            "kept_answers": self.kept_answers,
            "kept_tokens": self.kept_tokens,
            "examples": self.examples,
        }


def summary(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Tell what is in records of conversations.

    ``ended``: ``all`` turns answered; ``repetition``, ``empty`` or ``context``: left at an answer that loops or has no
    word, or before a turn that does not fit; ``nothing_to_answer``: no turn that would answer another. ``tokens`` are all
    that the target wrote, ``kept_tokens`` those in the examples.
    """
    whole = _Tally()
    groups: dict[str, dict[str, _Tally]] = {name: {} for name in GROUPS}
    for record in records:
        whole.add(record)
        for name, tallies in groups.items():
            tallies.setdefault(str(record[name]), _Tally()).add(record)
    by = {f"by_{name}": {key: tallies[key].to_json() for key in sorted(tallies)} for name, tallies in groups.items()}
    return {**whole.to_json(), **by}
