"""Identities of the engine's counters on random runs: drafters of all kinds, lengths, stop rules, aborts and joining
midway."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafters.base import Sampling
from drafters.engine.lengths import BatchTable, LengthPolicy
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Event, Runner
from drafters.engine.sequence import Request, RunningSequence, Status
from drafters.synthetic import Synthetic
from drafters.verify import Rule
from tests.drafters.models import greedy, lean, prompt
from tests.drafters.rows import ITSELF, ROWS, AnyLength

PROMPTS = [prompt(30, 8) + prompt(seed, 7) for seed in (31, 32, 33)]
NAMES = (*ROWS, "synthetic")
LONGEST = 14


def decode(token_ids: Sequence[int]) -> str:
    """One character a token."""
    return "".join(chr(0x4E00 + token_id) for token_id in token_ids)


@dataclass
class Story:
    """All that a run told: by its sequences, its events, its records and its counters."""

    runner: Runner
    records: list[RoundRecord]
    sequences: list[RunningSequence] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def random_run(seed: int) -> Story:
    """Requests that join midway, each with its own drafter, length, sampling and stop rules; some are aborted while they
    wait, are fed or run."""
    chance = random.Random(seed)
    texts = [[*text, *greedy("llama", text, LONGEST)] for text in PROMPTS]
    # One of them at least is often right; the untrained ones are not.
    names = list(dict.fromkeys([chance.choice(["oracle chain", "oracle tree", ITSELF]), *chance.sample(NAMES, 3)]))
    drafters = {
        name: Synthetic(4, (0.7, 0.3), seed)
        if name == "synthetic"
        else ROWS[name]("llama", chance.randint(1, 6), texts)
        for name in names
    }
    lengths: dict[str, LengthPolicy] = {
        name: AnyLength(seed) if chance.random() < 0.5 else BatchTable({1: 6, 2: 3, 4: 1})
        for name in names
        if chance.random() < 0.5
    }
    rule: Rule = chance.choice(["standard", "block"])
    records: list[RoundRecord] = []
    runner = Runner(
        lean("llama"),
        cache_tokens=chance.choice([90, 250]),
        drafters=drafters,
        max_sequences=chance.choice([1, 3, 8]),
        prefill_tokens=chance.choice([5, 64]),
        prefix_reuse=chance.random() < 0.5,
        lengths=lengths,
        verification=rule,
        decode=decode,
        on_round=records.append,
    )
    story = Story(runner, records)
    for number in range(chance.randint(4, 12)):
        name = chance.choice([*names, None])
        text = chance.choice(texts)
        strings = (decode(text[-5:-3]), "never said") if name != "synthetic" and chance.random() < 0.3 else ()
        story.sequences.append(
            runner.add(
                Request(
                    tuple(text[: len(PROMPTS[0])]),
                    chance.randint(1, LONGEST),
                    sampling=Sampling(chance.choice([0.0, 0.0, 0.8]), top_k=chance.choice([0, 10])),
                    seed=number,
                    stop_token_ids=frozenset(chance.sample(text[-10:], chance.choice([0, 0, 2]))),
                    stop=strings,
                    drafter=name,
                    num_draft_tokens=chance.choice([None, None, None, 0, 2]),
                )
            )
        )
        for _ in range(chance.randint(0, 3)):
            story.events += runner.step()
        if chance.random() < 0.15:
            runner.abort(chance.choice(story.sequences))
    while runner.busy:
        story.events += runner.step()
    return story


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_what_is_counted_is_one_story(seed: int) -> None:
    """Counters, histograms, records, sequences and events tell the same of the same run."""
    story = random_run(seed)
    count = story.runner.counters
    rounds = [each for sequence in story.sequences for each in sequence.rounds]
    drafts = [each for each in rounds if each.num_draft_tokens]

    # The engine's counters are the sums over its requests.
    assert count.num_rounds == len(rounds)
    assert count.num_drafts == len(drafts)
    assert count.num_draft_tokens == sum(each.num_draft_tokens for each in rounds)
    assert count.num_accepted_tokens == sum(each.num_accepted_tokens for each in rounds)
    assert count.num_cut_tokens == sum(sequence.num_cut_tokens for sequence in story.sequences)
    assert count.generation_tokens == sum(sequence.num_output_tokens for sequence in story.sequences)
    assert count.num_first_tokens == sum(bool(sequence.num_output_tokens) for sequence in story.sequences)

    # Histogram and positions: the same rounds, counted by how many were accepted and by whether so many were.
    by_length = Counter(each.num_accepted_tokens for each in drafts)
    assert count.acceptance_histogram == [by_length[j] for j in range(len(count.acceptance_histogram))]
    assert sum(count.acceptance_histogram) == count.num_drafts
    assert sum(j * number for j, number in enumerate(count.acceptance_histogram)) == count.num_accepted_tokens
    assert sum(count.accepted_per_position) == count.num_accepted_tokens
    at_least = [count.num_drafts, *count.accepted_per_position, 0]
    assert [more - less for more, less in pairwise(at_least)] == (count.acceptance_histogram or [0])

    # AL = 1 + accepted / rounds with a draft: the tokens that such rounds decide, over their number.
    if drafts:
        assert count.acceptance_length is not None
        decided = sum(each.num_accepted_tokens + 1 for each in drafts)
        assert count.acceptance_length * count.num_drafts == pytest.approx(decided)
    else:
        assert count.acceptance_length is None

    # Tokens = first + Σ (accepted + 1) - cut, for the engine and for each request.
    decided = sum(each.num_accepted_tokens + 1 for each in rounds)
    assert count.generation_tokens == count.num_first_tokens + decided - count.num_cut_tokens
    for sequence in story.sequences:
        first = min(1, sequence.num_output_tokens)
        decided = sum(each.num_accepted_tokens + 1 for each in sequence.rounds)
        assert sequence.num_output_tokens == first + decided - sequence.num_cut_tokens
        assert sequence.num_output_tokens == first + sum(each.num_tokens for each in sequence.rounds)
        told = [token for event in story.events if event.sequence is sequence for token in event.token_ids]
        assert told == sequence.output
        assert sequence.status is Status.FINISHED
        assert len(sequence.output) <= sequence.request.max_tokens
        for each in sequence.rounds:
            assert 0 <= each.num_accepted_tokens <= each.num_draft_tokens
            assert 1 <= each.num_tokens <= each.num_accepted_tokens + 1
        # Only the last round of a request can be cut.
        assert all(each.num_tokens == each.num_accepted_tokens + 1 for each in sequence.rounds[:-1])
        if sequence.request.drafter is None or sequence.request.num_draft_tokens == 0:
            assert not any(each.num_draft_tokens for each in sequence.rounds)

    # A round's record is the sum of what its requests say of it.
    for record in story.records:
        shares = [each for each in rounds if each.round_index == record.round_index]
        assert [each.batch_size for each in shares] == [record.batch_size] * record.batch_size
        assert sum(each.num_draft_tokens for each in shares) == record.num_draft_tokens
        assert sum(each.num_accepted_tokens for each in shares) == record.num_accepted_tokens
        assert min(record.draft_ns, record.verify_ns, record.host_ns) >= 0
        assert 0 < record.forward_ns <= record.verify_ns
    assert sum(record.batch_size for record in story.records) == len(rounds)
    assert story.runner.scheduler.slots.owned == 0


def test_the_random_runs_meet_everything() -> None:
    """Among forty of these runs there are all ways to end, tokens that were cut, and drafts of every drafter."""
    reasons: Counter[str | None] = Counter()
    drafted: Counter[str | None] = Counter()
    accepted: Counter[str | None] = Counter()
    cut = 0
    for seed in range(40):
        story = random_run(seed)
        for sequence in story.sequences:
            name = sequence.request.drafter
            drafted[name] += sum(each.num_draft_tokens for each in sequence.rounds)
            accepted[name] += sum(each.num_accepted_tokens for each in sequence.rounds)
            begun = "before" if not sequence.output else "midway" if sequence.rounds else "after the first"
            reasons[f"abort {begun}" if sequence.finish_reason == "abort" else sequence.finish_reason] += 1
            cut += sequence.num_cut_tokens
    assert min(reasons[each] for each in ("stop", "length", "abort before", "abort midway")) > 3
    assert cut > 3
    assert all(drafted[name] for name in NAMES)
    assert drafted[None] == 0
    assert min(accepted[name] for name in (ITSELF, "oracle chain", "oracle tree", "synthetic")) > 20
