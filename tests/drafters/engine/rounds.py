"""What several tests of the engine's rounds share: prompts, drafters, and stepping to the end."""

from __future__ import annotations

from collections.abc import Sequence

from drafters.base import Commit, Draft, DraftRequest
from drafters.engine.runner import Event, Runner
from tests.drafters.models import greedy, prompt
from tests.drafters.rows import Oracle

__all__ = ["PROMPTS", "Probe", "oracle", "run"]

PROMPTS = [prompt(20, 12) + prompt(seed, 9) for seed in (21, 22, 23)]


def oracle(k: int = 4, tree: bool = False) -> Oracle:
    """A drafter of middling quality for these prompts under the llama model."""
    return Oracle([[*text, *greedy("llama", text, 20)] for text in PROMPTS], k, tree)


def run(runner: Runner) -> list[Event]:
    """Step to the end."""
    events: list[Event] = []
    while runner.busy:
        events += runner.step()
    return events


class Probe:
    """Passes everything on to an oracle and writes down what it is told of each sequence."""

    feature_layers: tuple[int, ...] = (2, 0)

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner
        self.tree = inner.tree
        self.max_nodes = inner.max_nodes
        self.told: dict[int, list[Commit]] = {}
        self.open_now: set[int] = set()

    def open(self, sequence_id: int, max_length: int) -> None:
        """A sequence begins."""
        self.open_now.add(sequence_id)
        self.told[sequence_id] = []

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """By then everything but the very newest has been told."""
        for request in requests:
            told = [token for commit in self.told[request.sequence_id] for token in commit.token_ids]
            assert told == list(request.token_ids)
        return self.inner.propose(requests)

    def commit(self, commits: Sequence[Commit]) -> None:
        """Write it down."""
        for commit in commits:
            assert commit.position == sum(len(earlier.token_ids) for earlier in self.told[commit.sequence_id])
            self.told[commit.sequence_id].append(commit)

    def release(self, sequence_id: int) -> None:
        """A sequence ends."""
        self.open_now.remove(sequence_id)
