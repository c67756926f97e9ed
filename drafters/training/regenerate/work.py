"""Which conversations are answered, in which order, how far that is, and when it is enough or hopeless."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from drafters.engine.text import Text
from drafters.training.conversations import Conversation
from drafters.training.progress import Pace
from drafters.training.regenerate.dialogue import Dialogue, Rules, spread
from drafters.training.regenerate.results import Results
from drafters.training.stage import StageError, write_whole

__all__ = ["FAILURES", "Work", "write_failures"]

FAILURES = "failures.jsonl"
HOPELESS = 20
"""So many failures without one success end the stage: the rest would fail as well."""


class Work:
    """Which conversations are answered, in which order, and how far that is."""

    def __init__(
        self,
        options: argparse.Namespace,
        conversations: Mapping[str, Conversation],
        results: Results,
        say: Callable[[str], None],
    ) -> None:
        self.temperatures = spread(list(conversations), options.temperature or [0.0], options.seed)
        self.order = list(self.temperatures)
        self.failures: dict[str, str] = {}
        self.results = results
        self._options, self._conversations, self._say = options, conversations, say
        self._settled = self._tokens = 0  # the first conversations in order that have ended, and their tokens
        self._new = self._new_answers = self._new_tokens = 0
        self._pace = Pace()
        if len(results):
            say(f"{len(results):,} of {len(self.order):,} conversations were answered before; going on")

    def dialogues(self, text: Text, rules: Rules) -> Iterator[Dialogue]:
        """Yield the conversations that are still to be answered, in order, as long as more are wanted."""
        self._pace = Pace()
        for name in self.order:
            if self.enough():
                return
            if name not in self.results:
                yield Dialogue(self._conversations[name], text, rules, self.temperatures[name])

    def ended(self, dialogue: Dialogue) -> bool:
        """Note that a conversation has ended; tell whether more are wanted. Raises StageError when too many fail."""
        name = dialogue.conversation.id
        self._new += 1
        self._new_answers += dialogue.answered
        if dialogue.failure is not None:
            self.failures[name] = dialogue.failure
            self._check_failures()
        else:
            self.results.append(dialogue.record())
            self._new_tokens += self.results.tokens(name)
        self._tell()
        return not self.enough()

    def enough(self) -> bool:
        """Whether the first conversations in order have given the tokens asked for."""
        limit = self._options.limit_tokens
        while self._settled < len(self.order) and (limit is None or self._tokens < limit):
            name = self.order[self._settled]
            if name not in self.results and name not in self.failures:
                return False
            self._settled += 1
            self._tokens += self.results.tokens(name)
        return True

    def chosen(self) -> list[str]:
        """The conversations of the result: which they are does not depend on who was quicker."""
        self.enough()
        return [name for name in self.order[: self._settled] if name in self.results]

    def too_many_failed(self) -> bool:
        """Whether more failed than the share that may."""
        tried = len(self.failures) + len(self.results)
        most: float = self._options.max_failures * tried
        return len(self.failures) > most

    def _check_failures(self) -> None:
        none = len(self.failures) >= HOPELESS and not len(self.results)
        if none or len(self.failures) > self._options.max_failures * len(self.order):
            self.refuse()

    def refuse(self) -> None:
        """Write down the failures and raise StageError."""
        write_failures(self._options.out, self.failures)
        name, reason = next(reversed(self.failures.items()))
        raise StageError(
            f"{len(self.failures)} of {len(self.order)} conversations failed, more than --max-failures "
            f"{self._options.max_failures:g}; the last, {name!r}: {reason}. All are in {self._options.out / FAILURES}; the stage "
            "goes on when it is run again"
        )

    def _tell(self) -> None:
        if not self._pace.due():
            return
        done = len(self.results) + len(self.failures)
        share = done / len(self.order)
        if self._options.limit_tokens:
            share = max(share, min(1.0, self._tokens / self._options.limit_tokens))
        self._say(
            f"{done:,} of {len(self.order):,} conversations, {self._new_answers:,} new answers, "
            f"{self._pace.per_second(self._new_tokens):,.0f} tokens/s, "
            f"{self._pace.left(self._new, done / share * (1 - share))}"
        )


def write_failures(folder: Path, failures: Mapping[str, str]) -> None:
    """Write ``failures.jsonl``, by id."""
    lines = [json.dumps({"id": name, "reason": failures[name]}, ensure_ascii=False) for name in sorted(failures)]
    write_whole(folder / FAILURES, "".join(f"{line}\n" for line in lines))
