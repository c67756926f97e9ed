"""Losslessness: whatever drafts, the greedy output is token for token that of transformers. A new drafter is one row of
`rows`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch

from drafters.base import Sampling
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RunningSequence, Status
from tests.drafters.models import FAMILIES, VOCAB, greedy, lean, prompt
from tests.drafters.rows import ITSELF, ROWS, AnyLength

MAX_TOKENS = 20
STOPS = ("length", "eos", "string")
CASES = list(product(FAMILIES, (1, 3, 7), (1, 3, 8), STOPS, (True, False)))
# A common beginning makes reuse happen; two of the prompts are the same, one is a part of another.
PROMPTS = [prompt(0, 12) + prompt(seed, length) for seed, length in ((1, 9), (2, 17), (3, 4), (4, 14), (5, 6), (6, 11))]
PROMPTS += [PROMPTS[1], PROMPTS[1][:15]]


def decode(token_ids: Sequence[int]) -> str:
    """One character a token."""
    return "".join(chr(0x4E00 + token_id) for token_id in token_ids)


def ending(family: str, index: int, rule: str) -> tuple[dict[str, Any], list[int]]:
    """Return the stop rule for a prompt and the text that must come out; the rule ends most texts somewhere inside."""
    max_tokens = MAX_TOKENS - index % 4
    free = greedy(family, PROMPTS[index], MAX_TOKENS)
    if rule == "eos":
        eos = {free[4 + index % 5], 3}
        stopped = greedy(family, PROMPTS[index], max_tokens, tuple(sorted(eos)))
        return {"max_tokens": max_tokens, "stop_token_ids": frozenset(eos)}, stopped
    if rule == "string":
        stop = decode(free[6 + index % 3 : 8 + index % 3])
        end = decode(free).index(stop) + 2
        return {"max_tokens": MAX_TOKENS, "stop": (stop, "never said")}, free[:end]
    return {"max_tokens": max_tokens}, free[:max_tokens]


@pytest.mark.parametrize(("family", "k", "batch", "rule", "reuse"), CASES)
@pytest.mark.parametrize("drafter", ROWS)
def test_output_is_that_of_transformers(drafter: str, family: str, k: int, batch: int, rule: str, reuse: bool) -> None:
    """Requests wait, join, leave, are aborted and share prefixes, prompts come in chunks, and every text is as if
    alone. One is aborted after two rounds, at most 17 of its 20 tokens. The target drafting for itself is always
    right."""
    texts = [[*PROMPTS[index], *greedy(family, PROMPTS[index], MAX_TOKENS)] for index in range(len(PROMPTS))]
    runner = Runner(
        lean(family),
        cache_tokens=(40 + 4 * k) * batch + 80,
        drafters={"it": ROWS[drafter](family, k, texts)},
        max_sequences=batch,
        prefill_tokens=11,
        prefix_reuse=reuse,
        decode=decode,
    )
    wanted: list[tuple[RunningSequence, list[int]]] = []
    doomed: RunningSequence | None = None

    def step() -> None:
        runner.step()
        if doomed is not None and doomed.status is Status.RUNNING and len(doomed.rounds) == 2:
            assert runner.abort(doomed)

    for number in range(batch + 2):
        index = (number + k) % len(PROMPTS)
        rules, text = ending(family, index, rule)
        # One request in a batch drafts nothing, as a request may.
        name = None if number == 2 else "it"
        wanted.append((runner.add(Request(tuple(PROMPTS[index]), drafter=name, **rules)), text))
        if number == 1:
            doomed = runner.add(Request(tuple(PROMPTS[4]), max_tokens=MAX_TOKENS, drafter="it"))
        if number >= batch // 2:
            step()  # the others join while these run
    while runner.busy:
        step()
    assert doomed is not None
    assert (doomed.finish_reason, len(doomed.rounds)) == ("abort", 2)
    for sequence, text in wanted:
        assert sequence.output == text
    assert runner.scheduler.slots.owned == 0
    if drafter == ITSELF:
        assert runner.counters.num_accepted_tokens == runner.counters.num_draft_tokens > 0


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_drafters_side_by_side_with_any_lengths(family: str, reuse: bool) -> None:
    """Every drafter in one engine, each round's lengths thrown by dice; requests are aborted while they wait, while
    their prompt is fed and while they run, and every other text is that of transformers."""
    texts = [[*text, *greedy(family, text, MAX_TOKENS)] for text in PROMPTS]
    drafters = {name: build(family, 5, texts) for name, build in ROWS.items()}
    lengths = {name: AnyLength(5) for name in drafters}
    runner = Runner(lean(family), 600, drafters, 6, 11, reuse, lengths)
    running: list[tuple[RunningSequence, list[int]]] = []
    aborted: set[Status] = set()
    for number, name in enumerate([*ROWS, *ROWS]):
        text = texts[number % len(PROMPTS)]
        prompt_tokens = tuple(PROMPTS[number % len(PROMPTS)])
        running.append((runner.add(Request(prompt_tokens, MAX_TOKENS, drafter=name)), text))
        if number % 3 == 2:
            doomed = runner.add(Request(prompt_tokens, MAX_TOKENS, drafter=name))
            moment = (Status.WAITING, Status.PREFILLING, Status.RUNNING)[number // 3 % 3]
            while doomed.status not in (moment, Status.FINISHED):
                runner.step()
            if runner.abort(doomed):
                aborted.add(moment)
    while runner.busy:
        runner.step()
    for sequence, text in running:
        assert sequence.token_ids == text
    assert aborted == {Status.WAITING, Status.PREFILLING, Status.RUNNING}
    assert {each.num_draft_tokens for sequence, _ in running for each in sequence.rounds} >= set(range(6))
    assert runner.scheduler.slots.owned == 0


@pytest.mark.parametrize("drafter", ROWS)
def test_cold_sampling_is_greedy(drafter: str) -> None:
    """At a temperature near 0 the sampled way of verifying, with its distributions and chances, gives the greedy
    text."""
    texts = [[*text, *greedy("llama", text, MAX_TOKENS)] for text in PROMPTS[:3]]
    runner = Runner(lean("llama"), 400, {"it": ROWS[drafter]("llama", 4, texts)})
    cold = Sampling(temperature=1e-6, top_p=0.9, top_k=VOCAB // 2)
    running = [
        runner.add(Request(tuple(text), MAX_TOKENS, sampling=cold, seed=7, drafter="it")) for text in PROMPTS[:3]
    ]
    while runner.busy:
        runner.step()
    assert [[*sequence.request.prompt, *sequence.output] for sequence in running] == texts
    assert runner.counters.num_draft_tokens > 0


@pytest.mark.parametrize("drafter", ROWS)
def test_a_seed_fixes_the_text_at_equal_draft_lengths(drafter: str) -> None:
    """A sampled request with a seed gives the same tokens alone and among others that join later, as long as they do
    not change how much is drafted for it."""
    texts = [[*PROMPTS[0], *greedy("qwen3", PROMPTS[0], MAX_TOKENS)]]
    warm = Sampling(temperature=0.8, top_k=20)
    outputs = []
    for neighbours in (0, 2):
        runner = Runner(
            lean("qwen3"), 400, {"it": ROWS[drafter]("qwen3", 3, []), "other": ROWS["ngram"]("qwen3", 2, texts)}
        )
        it = runner.add(Request(tuple(PROMPTS[0]), MAX_TOKENS, sampling=warm, seed=11, drafter="it"))
        for seed in range(neighbours):
            runner.step()
            runner.add(Request(tuple(PROMPTS[1]), MAX_TOKENS, sampling=warm, seed=seed, drafter="other"))
        while runner.busy:
            runner.step()
        outputs.append(it.output)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == MAX_TOKENS


@pytest.mark.parametrize("drafter", ["oracle chain", "oracle tree", ITSELF])
def test_float32_says_the_same_as_transformers(drafter: str) -> None:
    """In the type of real use, with its faster kernels; logits of these models lie further apart than float32
    rounds."""
    single = torch.float32
    texts = [[*text, *greedy("qwen3", text, MAX_TOKENS, dtype=single)] for text in PROMPTS]
    drafters = {"it": ROWS[drafter]("qwen3", 4, texts)}
    runner = Runner(lean("qwen3", dtype=single), 500, drafters, max_sequences=5, prefill_tokens=16)
    running = [runner.add(Request(tuple(text), MAX_TOKENS, drafter="it")) for text in PROMPTS]
    while runner.busy:
        runner.step()
    assert [sequence.token_ids for sequence in running] == texts
    assert runner.counters.num_accepted_tokens > 0
