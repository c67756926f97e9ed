"""DFlash and DFlash 2 against what the published classes compute from the same weights (see `record_dflash`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from drafters.base import DraftRequest, Sampling
from drafters.checkpoint import Checkpoint
from drafters.dflash import DFlash
from drafters.dflash2 import DFlash2
from tests.drafters.blocks import tell
from tests.drafters.record_dflash import ANCHOR, CASES, FILE

# Float32 sums of eight products in another order.
CLOSE = 1e-5


@dataclass(frozen=True)
class Ends:
    """A target of which only the embedding and the head are there. Satisfies `drafters.base.Target`."""

    embedding: Tensor
    lm_head: Tensor
    num_layers: int = 4
    dtype: torch.dtype = torch.float32

    @property
    def device(self) -> torch.device:
        """Where the embedding is."""
        return self.embedding.device

    @property
    def vocab_size(self) -> int:
        """Tokens."""
        return self.embedding.shape[0]

    @property
    def hidden_size(self) -> int:
        """Width."""
        return self.embedding.shape[1]

    def embed(self, token_ids: Tensor) -> Tensor:
        """[n] → [n, hidden]."""
        return self.embedding[token_ids]

    def head(self, hidden: Tensor) -> Tensor:
        """[n, hidden] → [n, vocab]."""
        return hidden @ self.lm_head.T


@cache
def recorded(name: str) -> tuple[Checkpoint, dict[str, Tensor]]:
    """A case's checkpoint, and its inputs and outputs."""
    with safe_open(FILE, "pt") as file:
        config = json.loads(file.metadata()[name])
        names = [key for key in file.keys() if key.startswith(f"{name}/")]  # noqa: SIM118 - no mapping
        tensors = {key.removeprefix(f"{name}/"): file.get_tensor(key) for key in names}
    weights = {key.removeprefix("weights/"): tensor for key, tensor in tensors.items() if key.startswith("weights/")}
    return Checkpoint(config, weights), tensors


def told(name: str) -> tuple[DFlash | DFlash2, list[int], dict[str, Tensor]]:
    """The drafter with sequence 0 told in two commits, its tokens, and what was recorded."""
    checkpoint, tensors = recorded(name)
    target = Ends(tensors["embedding"], tensors["head"])
    drafter = (DFlash2 if "path0" in tensors else DFlash)(checkpoint, target, 100, 3)
    features = tensors["features"]
    tokens = [*[0] * len(features), ANCHOR]
    drafter.open(0, 50)
    tell(drafter, 0, tokens[:6], features)
    tell(drafter, 0, tokens, features, known=6)
    return drafter, tokens, tensors


def test_the_recording_is_of_the_configurations_it_was_made_from() -> None:
    """A changed case must be recorded again."""
    for name, (config, _) in CASES.items():
        assert recorded(name)[0].config == config.to_json()


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_and_logits_are_those_of_the_published_class(name: str) -> None:
    """Full and sliding layers, causal and not, with convolutions and without, behind more tokens than the window."""
    drafter, tokens, tensors = told(name)
    hidden = drafter.backbone.blocks([DraftRequest(0, tokens, 3)])[1][0]
    torch.testing.assert_close(hidden, tensors["hidden"], rtol=0, atol=CLOSE)
    torch.testing.assert_close(hidden[1:] @ tensors["head"].T, tensors["logits"], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", ["full", "causal-window", "open-window"])
def test_drafted_are_the_best_of_the_published_logits(name: str) -> None:
    """All three positions behind the anchor."""
    drafter, tokens, tensors = told(name)
    draft = drafter.propose([DraftRequest(0, tokens, 3)])[0]
    assert list(draft.token_ids) == tensors["logits"].argmax(-1).tolist()


def test_the_selector_walks_the_published_path() -> None:
    """It is not the path of the unary logits, so the codebooks count."""
    drafter, tokens, tensors = told("second")
    draft = drafter.propose([DraftRequest(0, tokens, 3)])[0]
    assert list(draft.token_ids) == tensors["path0"].tolist()
    assert list(draft.token_ids) != tensors["logits"].argmax(-1).tolist()


def test_sampled_candidates_have_the_published_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """At temperature 1, along the path that was drawn there: each draw is the middle of its token's share."""
    drafter, tokens, tensors = told("second")
    shares, path = tensors["probs"].double(), tensors["path1"]
    at = shares.gather(1, path.unsqueeze(1)).squeeze(1)
    draws = torch.stack([row[: int(token)].sum() for row, token in zip(shares, path, strict=True)]) + at / 2
    monkeypatch.setattr("drafters.dflash2._uniforms", lambda asking, lengths: draws.unsqueeze(0))
    draft = drafter.propose([DraftRequest(0, tokens, 3, Sampling(1.0), torch.Generator())])[0]
    assert list(draft.token_ids) == path.tolist()
    assert draft.probs is not None
    torch.testing.assert_close(draft.probs.float(), tensors["probs"], rtol=0, atol=CLOSE)
