"""What a drafter is: the types between the engine, the drafters and verification.

Token ids and hidden states only, never text, never HTTP. torch is imported for types alone, so the scheduler and the
tests of sequence state can use these types without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["Commit", "Draft", "DraftRequest", "Drafter", "Sampling", "Target", "Verdict"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request picks its tokens. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 leave the distribution
    whole.

    Applied in this order: temperature, top-k, top-p.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 100.0:
            raise ValueError(f"temperature is {self.temperature}; allowed: 0 (greedy) to 100")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}; allowed: above 0, up to 1 (1 turns it off)")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; allowed: 0 (off) or more")

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed to follow the last committed one: a chain, or a tree when ``parents`` is given.

    ``probs`` [len, vocab of the target] holds in row i the exact distribution from which token i was drawn (after the
    request's temperature, top-k and top-p, or whatever else the drafter sampled from); ``None`` means each token was
    chosen without chance, a one-hot distribution. ``parents[i]`` is the index of node i's parent within the draft,
    always below i; -1 is the last committed token. Siblings stand in the order in which verification tries them. A
    drafter with a reduced vocabulary gives target ids and probabilities spread over the target's vocabulary.

    ``forced`` is for cost experiments alone: exactly so many tokens of the chain are accepted whatever the target says,
    and the output is then not the target's text. Every drafter but ``synthetic`` leaves it ``None``.
    """

    token_ids: tuple[int, ...]
    probs: Tensor | None = None
    parents: tuple[int, ...] | None = None
    forced: int | None = None

    def __post_init__(self) -> None:
        if self.parents is not None:
            if len(self.parents) != len(self.token_ids):
                raise ValueError(
                    f"{len(self.token_ids)} draft tokens but {len(self.parents)} parents; give one parent a token"
                )
            for node, parent in enumerate(self.parents):
                if not -1 <= parent < node:
                    raise ValueError(f"parent of draft node {node} is {parent}; allowed: -1 to {node - 1}")
        if self.probs is not None and self.probs.shape[0] != len(self.token_ids):
            raise ValueError(f"{len(self.token_ids)} draft tokens but {self.probs.shape[0]} rows of probabilities")
        if self.forced is not None and (self.parents is not None or not 0 <= self.forced <= len(self.token_ids)):
            raise ValueError(f"forced is {self.forced}; allowed: 0 to {len(self.token_ids)}, on a chain")

    def __len__(self) -> int:
        return len(self.token_ids)

    def depths(self) -> tuple[int, ...]:
        """Depth of each node: 1 for a child of the last committed token."""
        if self.parents is None:
            return tuple(range(1, len(self.token_ids) + 1))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    def truncated(self, num_nodes: int) -> Draft:
        """Return the draft's first ``num_nodes`` nodes; parents stand before children, so what is left is whole."""
        if num_nodes >= len(self.token_ids):
            return self
        return Draft(
            self.token_ids[:num_nodes],
            None if self.probs is None else self.probs[:num_nodes],
            None if self.parents is None else self.parents[:num_nodes],
            None if self.forced is None else min(self.forced, num_nodes),
        )

    def shallow(self, depth: int) -> Draft:
        """Return the draft without its nodes deeper than ``depth``."""
        depths = self.depths()
        if max(depths, default=0) <= depth:
            return self
        if self.parents is None:
            return self.truncated(depth)
        stay = [node for node, level in enumerate(depths) if level <= depth]
        renumbered = {node: index for index, node in enumerate(stay)} | {-1: -1}
        return Draft(
            tuple(self.token_ids[node] for node in stay),
            None if self.probs is None else self.probs[stay],
            tuple(renumbered[self.parents[node]] for node in stay),
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification decided for one sequence in one round.

    ``path`` names the accepted nodes of the draft in order from the last committed token (a chain: 0, 1, …);
    ``next_token_id`` is the target's own token that follows them. The round commits ``len(path) + 1`` tokens.
    """

    path: tuple[int, ...]
    next_token_id: int


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One running sequence that asks for a draft. ``num_tokens`` ≥ 1 bounds the nodes; fewer, or none, are allowed.

    ``token_ids`` are all committed tokens, prompt included (the engine's own list: read it, never keep or change it).
    ``generator`` is the sequence's source of chance (a CPU generator); a drafter that samples draws from nothing else, so
    that neighbours take nothing from the chance of a request with a seed. They can still change its text where they
    change its draft lengths (a policy that looks at the batch) or the rounding of its logits. ``None`` where
    ``sampling`` is greedy.
    """

    sequence_id: int
    token_ids: Sequence[int]
    num_tokens: int
    sampling: Sampling = Sampling()
    generator: torch.Generator | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens that have become part of a sequence for good.

    ``token_ids`` start at ``position`` of the sequence, next to those of the commit before. ``features`` [n, layers,
    hidden] are the target's hidden states at ``feature_layers``, in that order, at the n positions that went through
    the target since the commit before; they end one position before the last token, whose feature does not exist yet.
    So, counted from the end, ``features[-i]`` is the state from which ``token_ids[-i]`` was predicted: the pair that
    MTP and EAGLE take. Only the first commit of a sequence has a token more than features. ``None`` for a drafter that
    asks for no layer. Features are the engine's memory: copy what is to outlive the call.

    ``cached`` marks the first commit of a sequence whose beginning the engine has copied from another one instead of
    computing it. A drafter may reuse its own state then, and only then: with prefix reuse off, nobody reuses anything.
    """

    sequence_id: int
    position: int
    token_ids: tuple[int, ...]
    features: Tensor | None = None
    cached: bool = False


@runtime_checkable
class Drafter(Protocol):
    """A way of drafting, for many sequences at once.

    The life of a sequence: ``open``; a ``commit`` for each chunk of the prompt; then ``propose`` and ``commit`` in
    turn, where a round may also commit without having proposed; ``release`` at any moment. ``propose`` may run its
    private state ahead of the committed tokens (K/V of its own drafts). ``commit`` is also the rollback: what was run
    ahead and is not among the committed tokens must be dropped then. Nothing else undoes a commit.

    ``feature_layers`` are indices into the target's ``hidden_states`` as transformers counts them: 0 the embeddings, i
    the output of layer i (from 1), the last one after the final norm. ``max_nodes`` bounds a draft's nodes; ``tree``
    tells whether it may give trees.
    """

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Layers of the target whose hidden states every ``commit`` carries; empty for none."""
        ...

    @property
    def max_nodes(self) -> int:
        """Most nodes that one draft can have."""
        ...

    @property
    def tree(self) -> bool:
        """Whether drafts may be trees."""
        ...

    def open(self, sequence_id: int, max_length: int) -> None:
        """Take a new sequence, of never more than ``max_length`` tokens, prompt included."""
        ...

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Draft for every request in as few passes as possible; one draft a request, in order."""
        ...

    def commit(self, commits: Sequence[Commit]) -> None:
        """Take the committed tokens, one commit a sequence, and drop everything run ahead that is not among them."""
        ...

    def release(self, sequence_id: int) -> None:
        """Forget a sequence and free what it held; unknown ids are ignored."""
        ...


class Target(Protocol):
    """What a drafter may use of the target: its shapes, its frozen embedding and its head."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding, which is also the width of the logits."""
        ...

    @property
    def hidden_size(self) -> int:
        """Width of a hidden state."""
        ...

    @property
    def num_layers(self) -> int:
        """Decoder layers; ``hidden_states`` has one entry more."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and hidden states."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        ...

    def embed(self, token_ids: Tensor) -> Tensor:
        """[n] → [n, hidden]: the target's embeddings."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """[n, hidden], after the final norm → [n, vocab]: the target's logits."""
        ...
