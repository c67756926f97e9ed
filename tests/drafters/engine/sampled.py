"""Sampling engines at a size at which the exact distribution of their output can be written down."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from drafters.base import Drafter, Sampling
from drafters.dflash import DFlash
from drafters.dflash2 import DFlash2
from drafters.draft_model import DraftModel
from drafters.eagle3 import Eagle3
from drafters.engine.lengths import LengthPolicy
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RunningSequence
from drafters.engine.target import DecoderModel, Span
from drafters.medusa import Medusa
from drafters.mtp import Mtp
from drafters.ngram import Ngram
from drafters.prompt_lookup import PromptLookup
from drafters.sampling import distribution
from drafters.specs import DFlash2Spec, DFlashSpec, Eagle3Spec, MedusaSpec, MtpSpec
from drafters.verify import Rule

VOCAB = 8
JOINT = 3
"""So many first tokens are looked at together."""
MAX_TOKENS = 5
"""Two more, so that the draft after the first token may have three."""
PROMPT = (1, 5, 2, 1, 5, 2, 1)
TREE = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0))
SAMPLINGS = (Sampling(1.0), Sampling(0.7, top_k=4), Sampling(1.4, top_p=0.8))


@cache
def tiny(seed: int) -> DecoderModel:
    """A random llama of eight tokens."""
    torch.manual_seed(seed)
    config: Any = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        initializer_range=0.35,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model: Any = LlamaForCausalLM(config)
    return DecoderModel(model.eval())


@cache
def joint(sampling: Sampling) -> dict[tuple[int, ...], float]:
    """The probability of each beginning of JOINT tokens after the prompt, from plain forwards of the target."""
    model = tiny(0)
    total: dict[tuple[int, ...], float] = {(): 1.0}
    for depth in range(JOINT):
        size = len(PROMPT) + depth
        spans = [Span(n * size, 0, [*PROMPT, *prefix], 1) for n, prefix in enumerate(total)]
        logits = model.forward(spans, model.new_cache(size * len(spans))).logits
        probs = distribution(logits.double(), sampling.temperature, sampling.top_k, sampling.top_p).tolist()
        total = {
            (*prefix, token): weight * p
            for (prefix, weight), row in zip(total.items(), probs, strict=True)
            for token, p in enumerate(row)
            if p > 0
        }
    assert math.isclose(sum(total.values()), 1.0, abs_tol=1e-9)
    return total


BUILD: dict[str, Callable[[int], Drafter]] = {
    "draft_model": lambda room: DraftModel(tiny(1), VOCAB, room, 3),
    "draft_model, greedy": lambda room: DraftModel(tiny(1), VOCAB, room, 3, greedy=True),
    "prompt_lookup": lambda room: PromptLookup(3, min_ngram=1, max_ngram=2),
    "ngram": lambda room: Ngram(3, order=3, corpus=[PROMPT * 3]),
    "medusa chain": lambda room: Medusa.from_spec(MedusaSpec(num_tokens=3), tiny(0), room),
    "medusa tree": lambda room: Medusa.from_spec(MedusaSpec(tree=TREE), tiny(0), room),
    "mtp": lambda room: Mtp.from_spec(MtpSpec(num_tokens=3), tiny(0), room),
    "eagle3 chain": lambda room: Eagle3.from_spec(Eagle3Spec(num_tokens=3, draft_vocab_size=6), tiny(0), room),
    "eagle3 tree": lambda room: Eagle3.from_spec(Eagle3Spec(num_tokens=3, tree_nodes=8, tree_top_k=3), tiny(0), room),
    "dflash": lambda room: DFlash.from_spec(DFlashSpec(num_tokens=3, block_size=4, num_layers=1), tiny(0), room),
    "dflash2": lambda room: DFlash2.from_spec(
        DFlash2Spec(num_tokens=3, block_size=4, num_layers=1, selector_rank=4, selector_top_k=5), tiny(0), room
    ),
}
"""Each drafter of the engine for the tiny target, untrained, by the tokens it may keep."""
DRAFTERS = tuple(BUILD)
DRAWN = ("draft_model", "dflash", "dflash2")
"""Those whose tokens are drawn."""


Made = dict[str, dict[Sampling, list[RunningSequence]]]
"""Sequences by drafter and sampling."""


def generate(
    drafters: Mapping[str, Drafter] | Sequence[str],
    count: int,
    rule: Rule = "standard",
    lengths: Mapping[str, LengthPolicy] | None = None,
    batch: int = 600,
    reuse: bool = False,
) -> Made:
    """``count`` sequences for each drafter and sampling, side by side in one engine, each with a seed of its own."""
    room = (len(PROMPT) + MAX_TOKENS + 8) * batch + 64
    if not isinstance(drafters, Mapping):
        drafters = {name: BUILD[name](room) for name in drafters}
    runner = Runner(
        tiny(0), room, drafters, batch, prefill_tokens=4096, prefix_reuse=reuse, lengths=lengths, verification=rule
    )
    made: Made = {name: {sampling: [] for sampling in SAMPLINGS} for name in drafters}
    seed = 0
    for _ in range(count):
        for name, sampling in itertools.product(drafters, SAMPLINGS):
            seed += 1
            request = Request(PROMPT, MAX_TOKENS, sampling=sampling, seed=seed, drafter=name)
            made[name][sampling].append(runner.add(request))
    while runner.busy:
        for event in runner.step():
            if len(event.sequence.output) >= JOINT:
                runner.abort(event.sequence)  # the rest is not looked at
    return made


def chi_square(made: Mapping[Sampling, Sequence[RunningSequence]]) -> float:
    """The chance that texts of the target's own distribution lie this far from it or further (Pearson's test).

    The sums over all samplings are added. Cells that expect fewer than five are counted as one. A beginning that the
    target excludes has the chance 0.
    """
    statistic, freedom = 0.0, 0
    for sampling, sequences in made.items():
        wanted, total = joint(sampling), len(sequences)
        counts = Counter(tuple(sequence.output[:JOINT]) for sequence in sequences)
        if not set(counts) <= set(wanted):
            return 0.0
        large = [cell for cell, weight in wanted.items() if weight * total >= 5]
        pairs = [(wanted[cell] * total, counts[cell]) for cell in large]
        left = total - sum(mean for mean, _ in pairs)
        if left >= 5:
            pairs.append((left, total - sum(seen for _, seen in pairs)))
        statistic += sum((seen - mean) ** 2 / mean for mean, seen in pairs)
        freedom += len(pairs) - 1
    halves = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(halves[0], halves[1]))


def total_variation(sequences: Sequence[RunningSequence], sampling: Sampling) -> float:
    """Half the sum of |share - probability| over all beginnings."""
    wanted = joint(sampling)
    counts = Counter(tuple(sequence.output[:JOINT]) for sequence in sequences)
    cells = set(counts) | set(wanted)
    return sum(abs(counts[cell] / len(sequences) - wanted.get(cell, 0.0)) for cell in cells) / 2


def variation_bound(count: int, sampling: Sampling, chance: float) -> float:
    """What the total variation of ``count`` right sequences exceeds with less than ``chance``.

    Its mean is at most Σ √(p (1 - p) / count) / 2, and one sequence moves it by 1 / count at most (McDiarmid).
    """
    mean = sum(math.sqrt(p * (1 - p) / count) for p in joint(sampling).values()) / 2
    return mean + math.sqrt(-math.log(chance) / (2 * count))
