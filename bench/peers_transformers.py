"""transformers as the peer: `generate` plain and with prompt lookup, a static batch, and its continuous batching.

The model is loaded in float32 with sdpa, on the caller's threads. End tokens are turned off, so that every arm writes the
same number of tokens without a processor that would only suppress them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

__all__ = ["Generated", "Peer"]

_PAGE = 256  # tokens; its default
_BATCH_TOKENS = 512  # rows of a pass at most, as the builtin engine's prompts


@dataclass(frozen=True, slots=True)
class Generated:
    """``outputs`` without the prompts; seconds of the whole call, and from the first token to the last."""

    outputs: list[list[int]]
    whole_s: float
    decode_s: float | None


class _Stamps:
    """A streamer that notes when tokens come; its first call is the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._prompt = True

    def put(self, value: Any) -> None:
        if self._prompt:
            self._prompt = False
        else:
            self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing to close."""


class Peer:
    """One transformers model and the ways to let it write."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
        config = self._model.generation_config
        self._pad: int = next(x for x in (config.pad_token_id, self.tokenizer.pad_token_id, 0) if x is not None)
        config.eos_token_id = None
        config.pad_token_id = self._pad

    @property
    def lookup_ngrams(self) -> tuple[int, int]:
        """Shortest and longest run of tokens that its prompt lookup compares; the longest is 2 where nothing is set."""
        return 1, self._model.generation_config.max_matching_ngram_size or 2

    def generate(self, prompt: Sequence[int], tokens: int, lookup: int | None = None) -> Generated:
        """One request; ``lookup`` is ``prompt_lookup_num_tokens``."""
        extra = {} if lookup is None else {"prompt_lookup_num_tokens": lookup}
        stamps = _Stamps()
        ids = torch.tensor([list(prompt)])
        began = time.perf_counter()
        out = self._model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, streamer=stamps, **extra
        )
        whole = time.perf_counter() - began
        return Generated([out[0, len(prompt) :].tolist()], whole, stamps.times[-1] - stamps.times[0])

    def static_batch(self, prompts: Sequence[Sequence[int]], tokens: int) -> Generated:
        """All at once, padded on the left."""
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), self._pad)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
            mask[row, width - len(prompt) :] = 1
        began = time.perf_counter()
        out = self._model.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False)
        whole = time.perf_counter() - began
        return Generated(out[:, width:].tolist(), whole, None)

    def continuous_batch(self, prompts: Sequence[Sequence[int]], tokens: int) -> Generated:
        """Through `generate_batch`; the seconds run from the first request's arrival to the last one's end.

        Building and ending its manager, which a server does once, is left out. Its cache is bounded to what the requests
        need: by default it takes most of the memory, and its masks over all of that make a round several times slower.
        Raises RuntimeError for a failed request.
        """
        from transformers import ContinuousBatchingConfig

        pages = -(-(max(map(len, prompts)) + tokens) // _PAGE) + 1
        cache = ContinuousBatchingConfig(
            page_size=_PAGE, num_blocks=pages * len(prompts), max_batch_tokens=_BATCH_TOKENS
        )
        config = copy.deepcopy(self._model.generation_config)
        config.update(max_new_tokens=tokens, do_sample=False, eos_token_id=-1)
        results = self._model.generate_batch(
            [list(prompt) for prompt in prompts], generation_config=config, continuous_batching_config=cache
        )
        done = list(results.values())
        failed = [result.error for result in done if result.error is not None]
        if failed or len(done) != len(prompts):
            raise RuntimeError(f"continuous batching answered {len(done)} of {len(prompts)} requests: {failed[:1]}")
        outputs = [[int(token) for token in result.generated_tokens] for result in done]
        whole = max(result.lifespan[1] for result in done) - min(result.created_time for result in done)
        return Generated(outputs, whole, None)

    @torch.inference_mode()
    def top_two_gap(self, tokens: Sequence[int]) -> float:
        """Difference of the two largest logits after ``tokens``: how near a tie the next choice is."""
        logits = self._model(torch.tensor([list(tokens)]), logits_to_keep=1).logits[0, -1]
        best = logits.topk(2).values
        return float(best[0] - best[1])
