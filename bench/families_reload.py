"""Whether a checkpoint is the same drafter however often it is loaded: every product computed while drafting, compared to the bit.

A drafter's logits are among its matrix products, whatever its method; that all of them are equal in order says more than logits alone.
A table of n-grams has no products: there the drafts are compared.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bench.families_input import ShippedDrafter
from drafters.base import Commit, DraftRequest
from drafters.catalog import build
from drafters.checkpoint import Checkpoint
from drafters.engine.target import DecoderModel, Span
from drafters.engine.text import Text
from drafters.reference import drafter, target
from drafters.specs import parse_spec

__all__ = ["PROMPT", "Reloaded", "Trace", "check", "table", "trace"]

PROMPT = (
    "주간 업무 보고: 물류팀 재고 조사 결과를 정리합니다. Weekly report: stock was counted in Busan.\n"
    "def total(items):\n    return sum("
)
CACHE_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Trace:
    """What drafting once gave: the digest and the width of each product in order, and the drafted tokens."""

    products: tuple[tuple[str, int], ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a checkpoint gave when it was loaded twice, and from a copy that was saved from it.

    ``n_logits`` are the products as wide as a vocabulary, the target's or the drafter's own.
    """

    name: str
    method: str
    n_products: int
    n_logits: int
    n_tokens: int
    twice: bool
    saved: bool

    @property
    def same(self) -> bool:
        """Whether nothing differs, tokens were drafted, and logits, where there are any, were among what was compared."""
        return self.twice and self.saved and self.n_tokens > 0 and (self.n_logits > 0) == (self.n_products > 0)


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes the digest of every result of floating point inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[str, int]] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.is_floating_point() and _is_product(func):
            plain = made.detach().float().contiguous().cpu()
            self.found.append((sha256(plain.numpy().tobytes()).hexdigest(), plain.shape[-1]))
        return made


def _is_product(func: Callable[..., Any]) -> bool:
    name = str(func)
    return any(part in name for part in ("mm", "linear", "matmul", "attention", "conv"))


def trace(drafter_path: Path, one: ShippedDrafter, model: DecoderModel, prompt: Sequence[int]) -> Trace:
    """Load a checkpoint, commit the prompt and draft once.

    Args:
        drafter_path: folder of the checkpoint, or file of a table of n-grams.
        one: which drafter it is.
        model: the target, in float32.
        prompt: token ids, the last of which the target has not seen yet.
    """
    key = "corpus" if one.method == "ngram" else "model"
    spec = parse_spec({"method": one.method, "num_tokens": one.num_tokens, key: drafter_path})
    made = build(spec, model, CACHE_TOKENS)
    layers = made.feature_layers
    features = None
    if layers:
        span = Span(0, 0, tuple(prompt[:-1]), 1)
        features = model.forward([span], model.new_cache(len(prompt)), layers).features
    recorded = _Products()
    with torch.inference_mode(), recorded:
        made.open(0, len(prompt) + one.num_tokens + 1)
        made.commit([Commit(0, 0, tuple(prompt), features)])
        (draft,) = made.propose([DraftRequest(0, list(prompt), one.num_tokens)])
    made.release(0)
    return Trace(tuple(recorded.found), draft.token_ids)


def check(one: ShippedDrafter) -> Reloaded:
    """Load a shipped checkpoint twice, save it and load it again. Raises SpecError for one that does not fit the target."""
    torch.set_num_threads(1)
    model = DecoderModel.load(target(), torch.float32)
    prompt = Text.load(target()).encode(PROMPT)
    place = drafter(one.name)
    first, second = (trace(place, one, model, prompt) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        third = trace(_copied(place, Path(folder) / one.name), one, model, prompt)
    widths = {model.vocab_size, _own_vocabulary(place)}
    return Reloaded(
        one.name,
        one.method,
        len(first.products),
        sum(width in widths for _, width in first.products),
        len(first.token_ids),
        twice=second == first,
        saved=third == first,
    )


def _own_vocabulary(place: Path) -> int | None:
    if place.is_file():
        return None
    found: int | None = json.loads((place / "config.json").read_text("utf-8")).get("draft_vocab_size")
    return found


def table(rows: Sequence[Reloaded]) -> str:
    """Return the results as a Markdown table."""
    cells = [
        (
            row.name,
            row.method,
            row.n_products,
            row.n_logits,
            row.n_tokens,
            _yes(row.twice),
            _yes(row.saved),
            _yes(row.same),
        )
        for row in rows
    ]
    headers = (
        "drafter",
        "method",
        "products",
        "of them logits",
        "drafted tokens",
        "loaded twice",
        "saved and loaded",
        "the same",
    )
    return tabulate(cells, headers, tablefmt="github")


def _copied(place: Path, new: Path) -> Path:
    if place.is_file():
        new.mkdir()
        return Path(shutil.copy(place, new / place.name))
    Checkpoint.load(place).save(new)
    return new


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
