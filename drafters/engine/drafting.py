"""Between the engine and its drafters: who drafts for whom, how much at most, and what each drafter is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from drafters.base import Commit, Draft, Drafter, DraftRequest, Verdict
from drafters.engine.scheduler import Chunk
from drafters.engine.sequence import Request, RequestError, RunningSequence, Status
from drafters.synthetic import Synthetic

__all__ = ["NO_DRAFT", "Drafting"]

NO_DRAFT = Draft(())


class Drafting:
    """The engine's drafters by name.

    ``layers`` are the hidden states of the target that the forward must return: one list for all drafters, of which
    each is given its own columns, in the order it asked for. ``clock`` gives nanoseconds; ``spent_ns`` is what each drafter
    has taken by it since `start_round`.
    """

    def __init__(
        self, drafters: Mapping[str, Drafter], num_layers: int, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.drafters = dict(drafters)
        self.layers = tuple(sorted({layer for drafter in drafters.values() for layer in drafter.feature_layers}))
        if self.layers and not 0 <= self.layers[0] <= self.layers[-1] <= num_layers:
            raise ValueError(f"feature layers {self.layers} asked for; allowed: 0 to {num_layers}")
        self._columns = {
            name: [self.layers.index(layer) for layer in drafter.feature_layers] for name, drafter in drafters.items()
        }
        self._in_order = {name: columns == list(range(len(self.layers))) for name, columns in self._columns.items()}
        self._commits: dict[str, list[Commit]] = {}
        self._clock = clock
        self.spent_ns: dict[str, int] = {}

    def start_round(self) -> None:
        """Begin to count what each drafter takes."""
        self.spent_ns = {}

    def needs_features(self, request: Request) -> bool:
        """Whether the request's drafter asks for hidden states of the target."""
        return request.drafter is not None and bool(self._columns[request.drafter])

    def slack(self, request: Request) -> int:
        """Slots beyond prompt and ``max_tokens`` that the request's sequence needs.

        Raises RequestError for an unknown drafter, and for stop strings where acceptance is made up.
        """
        name = request.drafter
        if name is None:
            return 0
        if name not in self.drafters:
            known = ", ".join(sorted(self.drafters)) or "none"
            raise RequestError(f"unknown drafter {name!r}; this engine has: {known}")
        if request.stop and isinstance(self.drafters[name], Synthetic):
            raise RequestError(
                f"stop strings {request.stop} given with drafter {name!r}, whose repeated tokens could make one up; "
                "use max_tokens or stop_token_ids"
            )
        # A chain never reaches beyond max_tokens, but the nodes of a tree all need slots.
        return self.drafters[name].max_nodes if self.drafters[name].tree else 0

    def bound(self, sequence: RunningSequence) -> int:
        """Most nodes that a draft for ``sequence`` may have now."""
        if sequence.request.drafter is None or sequence.remaining <= 1:
            return 0  # the last token needs no draft: verification itself gives it
        drafter = self.drafters[sequence.request.drafter]
        bound = drafter.max_nodes if drafter.tree else min(drafter.max_nodes, sequence.remaining - 1)
        asked = sequence.request.num_draft_tokens
        return bound if asked is None else min(bound, asked)

    def propose(
        self, sequences: Sequence[RunningSequence], lengths: Sequence[int], generators: Mapping[int, torch.Generator]
    ) -> list[Draft]:
        """Draft up to ``lengths[i]`` nodes for each sequence, one call a drafter."""
        drafts = [NO_DRAFT] * len(sequences)
        if not any(lengths):
            return drafts
        by_drafter: dict[str, list[int]] = {}
        for index, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
            if length and sequence.request.drafter is not None:
                by_drafter.setdefault(sequence.request.drafter, []).append(index)
        for name, indices in by_drafter.items():
            requests = [
                DraftRequest(
                    sequences[index].sequence_id,
                    sequences[index].token_ids,
                    lengths[index],
                    sequences[index].request.sampling,
                    generators.get(sequences[index].sequence_id),
                )
                for index in indices
            ]
            start = self._clock()
            made = self.drafters[name].propose(requests)
            self.spent_ns[name] = self.spent_ns.get(name, 0) + self._clock() - start
            for index, draft in zip(indices, made, strict=True):
                if len(draft) > lengths[index]:
                    raise ValueError(f"drafter {name!r} gave {len(draft)} nodes; allowed: {lengths[index]}")
                # A tree drafter's bound counts nodes, so its trees and its chains may be deeper than what is left to say.
                drafts[index] = draft.shallow(sequences[index].remaining - 1)
        return drafts

    def open(self, sequence: RunningSequence, features: Tensor | None) -> None:
        """A sequence joins; ``features`` [cached tokens, layers, hidden] are those of the prefix that was copied."""
        name = sequence.request.drafter
        if name is None:
            return
        self.drafters[name].open(sequence.sequence_id, sequence.max_length)
        if sequence.cached_tokens:
            tokens = tuple(sequence.token_ids[: sequence.cached_tokens + 1])
            self._tell(name, Commit(sequence.sequence_id, 0, tokens, self._own(name, features), cached=True))

    def tell_chunk(self, chunk: Chunk, features: Tensor | None) -> None:
        """Part of a prompt was fed; ``features`` [end - start, layers, hidden]."""
        sequence, name = chunk.sequence, chunk.sequence.request.drafter
        if name is None or sequence.status is Status.FINISHED:
            return
        position = chunk.start + 1 if chunk.start else 0
        tokens = tuple(sequence.token_ids[position : chunk.end + 1])
        self._tell(name, Commit(sequence.sequence_id, position, tokens, self._own(name, features)))

    def tell_round(self, sequence: RunningSequence, verdict: Verdict, features: Tensor | None) -> None:
        """A draft was verified; ``features`` [nodes + 1, layers, hidden] are those of the round's rows."""
        name = sequence.request.drafter
        if name is None or sequence.status is Status.FINISHED:
            return
        position = len(sequence.token_ids) - len(verdict.path) - 1
        if features is not None and self._columns[name]:
            features = self._own(name, features[[0, *(node + 1 for node in verdict.path)]])
        else:
            features = None
        self._tell(name, Commit(sequence.sequence_id, position, tuple(sequence.token_ids[position:]), features))

    def flush(self) -> None:
        """Hand everything told since the last flush to the drafters, one call a drafter."""
        if not self._commits:
            return
        commits, self._commits = self._commits, {}
        for name, told in commits.items():
            start = self._clock()
            self.drafters[name].commit(told)
            self.spent_ns[name] = self.spent_ns.get(name, 0) + self._clock() - start

    def discard(self) -> None:
        """Forget what was told since the last flush, after a round that failed."""
        self._commits = {}

    def release(self, sequence: RunningSequence) -> None:
        """A sequence leaves."""
        if sequence.request.drafter is not None:
            self.drafters[sequence.request.drafter].release(sequence.sequence_id)

    def _tell(self, name: str, commit: Commit) -> None:
        self._commits.setdefault(name, []).append(commit)

    def _own(self, name: str, features: Tensor | None) -> Tensor | None:
        columns = self._columns[name]
        if features is None or not columns:
            return None
        return features if self._in_order[name] else features[:, columns]
