"""Drafts by counting: what most often followed the last tokens, in a corpus and in the sequence itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from drafters.base import Commit, Draft, DraftRequest, Target
from drafters.specs import NgramSpec, SpecError

__all__ = ["Counts", "Ngram", "read_corpus"]


class Counts:
    """How often each token followed each run of ``min_order`` - 1 to ``order`` - 1 tokens."""

    __slots__ = ("_best", "_counts", "max_order", "min_order")

    def __init__(self, order: int, min_order: int) -> None:
        self.max_order, self.min_order = order, min_order
        self._counts: dict[tuple[int, ...], dict[int, int]] = {}
        # The most frequent follower of each run is kept up to date, so asking costs no walk over all followers.
        self._best: dict[tuple[int, ...], int] = {}

    def add(self, token_ids: Sequence[int], start: int = 0) -> None:
        """Count the tokens from ``start`` on as followers of what stands before them."""
        for position in range(max(start, self.min_order - 1), len(token_ids)):
            follower = token_ids[position]
            for length in range(self.min_order - 1, min(self.max_order - 1, position) + 1):
                run = tuple(token_ids[position - length : position])
                followers = self._counts.setdefault(run, {})
                count = followers[follower] = followers.get(follower, 0) + 1
                if count >= followers[self._best.setdefault(run, follower)]:
                    self._best[run] = follower  # of equal counts the latest wins

    def of(self, run: tuple[int, ...]) -> dict[int, int]:
        """Followers of a run and their counts; empty for one never seen."""
        return self._counts.get(run, {})

    def best(self, run: tuple[int, ...]) -> int | None:
        """The most frequent follower; ``None`` for a run never seen."""
        return self._best.get(run)


class Ngram:
    """Follows the counts of the longest known run, the sequence's own added to the corpus's.

    Drafting ends where no run is known or the best follower's share of its run's count is below ``min_share``. That is
    a cut on a token chosen without chance, which verification allows.
    """

    feature_layers: tuple[int, ...] = ()
    tree = False

    def __init__(
        self,
        num_tokens: int = 4,
        order: int = 4,
        min_order: int = 2,
        min_share: float = 0.0,
        corpus: Iterable[Sequence[int]] = (),
    ) -> None:
        self.max_nodes = num_tokens
        self._order, self._min_order, self._min_share = order, min_order, min_share
        self._corpus = Counts(order, min_order)
        for document in corpus:
            self._corpus.add(document)
        self._own: dict[int, tuple[Counts, list[int]]] = {}

    @classmethod
    def from_spec(cls, spec: NgramSpec, target: Target, cache_tokens: int) -> Ngram:
        """Build it and count the corpus. Raises SpecError for a corpus that cannot be read or is of another
        vocabulary."""
        corpus = read_corpus(spec.corpus, target.vocab_size) if spec.corpus else ()
        return cls(spec.num_tokens, spec.order, spec.min_order, spec.min_share, corpus)

    def open(self, sequence_id: int, max_length: int) -> None:
        """Start the sequence's own counts."""
        self._own[sequence_id] = (Counts(self._order, self._min_order), [])

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Follow the counts from each sequence's last tokens."""
        return [self._follow(request) for request in requests]

    def _counted(self, sequence_id: int, token_ids: Sequence[int], position: int) -> Counts:
        """The sequence's own counts with ``token_ids``, from ``position`` on; those counted already are passed over."""
        own, tokens = self._own[sequence_id]
        known = len(tokens)
        tokens.extend(token_ids[known - position :])
        own.add(tokens, known)
        return own

    def _follow(self, request: DraftRequest) -> Draft:
        own = self._counted(request.sequence_id, request.token_ids, 0)
        tail = list(request.token_ids[-(self._order - 1) :])
        made: list[int] = []
        while len(made) < request.num_tokens:
            follower = self._best(tail, own)
            if follower is None:
                break
            made.append(follower)
            tail.append(follower)
        return Draft(tuple(made))

    def _best(self, tail: Sequence[int], own: Counts) -> int | None:
        for length in range(min(self._order - 1, len(tail)), self._min_order - 2, -1):
            run = tuple(tail[-length:])
            here, there = own.of(run), self._corpus.of(run)
            # Outside the sequence's own followers nothing can beat the corpus's best: the sum's best is among these.
            candidates = [token for token in (own.best(run), self._corpus.best(run), *here) if token is not None]
            if not candidates:
                continue
            best = max(candidates, key=lambda token: here.get(token, 0) + there.get(token, 0))
            if self._min_share:
                total = sum(here.values()) + sum(there.values())
                if here.get(best, 0) + there.get(best, 0) < self._min_share * total:
                    return None
            return best
        return None

    def commit(self, commits: Sequence[Commit]) -> None:
        """Count, so that a long prompt is counted chunk by chunk. Counts never run ahead."""
        for commit in commits:
            self._counted(commit.sequence_id, commit.token_ids, commit.position)

    def release(self, sequence_id: int) -> None:
        """Drop the sequence's own counts."""
        self._own.pop(sequence_id, None)


def read_corpus(path: Path, vocab_size: int) -> list[list[int]]:
    """Read token ids, one document a line. Raises SpecError with file and line."""
    documents: list[list[int]] = []
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"ngram: corpus {path} cannot be read ({error}); give a file of token ids") from error
    for number, line in enumerate(lines, start=1):
        try:
            document = [int(word) for word in line.split()]
        except ValueError as error:
            raise SpecError(f"{path}:{number}: {error}; allowed: token ids separated by spaces") from error
        wrong = next((token for token in document if not 0 <= token < vocab_size), None)
        if wrong is not None:
            raise SpecError(
                f"{path}:{number}: token id {wrong}; allowed: 0 to {vocab_size - 1}, the target's vocabulary"
            )
        documents.append(document)
    return documents
