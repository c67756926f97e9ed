"""Who takes part in a round; nothing here needs torch."""

from __future__ import annotations

import random

import pytest

from drafters.engine.scheduler import Plan, Scheduler
from drafters.engine.sequence import Request, RequestError, RunningSequence, Status
from drafters.engine.slots import Kept, Slots


def queue(scheduler: Scheduler, number: int, prompt: int | tuple[int, ...], max_tokens: int) -> RunningSequence:
    """Queue a request; a prompt given by length has tokens of its own, shared with nobody."""
    tokens = tuple(range(1000 * number, 1000 * number + prompt)) if isinstance(prompt, int) else prompt
    sequence = RunningSequence(number, Request(tokens, max_tokens), len(tokens) + max_tokens)
    scheduler.add(sequence)
    return sequence


def play(scheduler: Scheduler, plan: Plan) -> None:
    """Do what the engine does with a plan: feed the chunks, and let every sequence say one token."""
    for sequence in plan.decoding:
        sequence.computed += 1
        sequence.extend([5])
    for chunk in plan.chunks:
        chunk.sequence.computed = chunk.end
        if chunk.last:
            chunk.sequence.status = Status.RUNNING
            chunk.sequence.extend([5])
    for sequence in [*plan.decoding, *(chunk.sequence for chunk in plan.chunks)]:
        if sequence.status is Status.FINISHED:
            scheduler.finish(sequence)


def test_prompts_share_the_budget_in_order_of_arrival() -> None:
    """Ten prompt tokens a round: 7 of the first prompt and 3 of the second, then the second's other 5."""
    scheduler = Scheduler(100, 4, 100, prefill_tokens=10)
    first, second = queue(scheduler, 1, 7, 3), queue(scheduler, 2, 8, 3)
    plan = scheduler.plan()
    assert [(c.sequence, c.start, c.end, c.last) for c in plan.chunks] == [(first, 0, 7, True), (second, 0, 3, False)]
    play(scheduler, plan)
    plan = scheduler.plan()
    assert [(c.sequence, c.start, c.end, c.last) for c in plan.chunks] == [(second, 3, 8, True)]
    assert plan.decoding == [first]


def test_a_request_joins_when_its_whole_need_is_free() -> None:
    """Twenty slots: 12 are taken, so a need of 10 waits, and so does a need of 2 behind it."""
    scheduler = Scheduler(20, 4, 100, prefix_reuse=False)
    first = queue(scheduler, 1, 10, 2)
    second, third = queue(scheduler, 2, 8, 2), queue(scheduler, 3, 1, 1)
    assert [a.sequence for a in scheduler.plan().admissions] == [first]
    assert (scheduler.num_active, scheduler.num_waiting) == (1, 2)
    scheduler.abort(first)
    assert [a.sequence for a in scheduler.plan().admissions] == [second, third]


def test_the_batch_is_bounded() -> None:
    """Memory for many, but two at once."""
    scheduler = Scheduler(100, 2, 100)
    for number in range(3):
        queue(scheduler, number, 2, 2)
    assert len(scheduler.plan().admissions) == 2
    assert scheduler.num_waiting == 1


def test_what_can_never_fit_is_refused_at_once() -> None:
    """Longer than the model, or larger than the memory."""
    scheduler = Scheduler(20, 2, 30)
    with pytest.raises(RequestError, match="make 31; allowed: 30 together"):
        queue(scheduler, 1, 25, 6)
    with pytest.raises(RequestError, match="needs memory for 21 tokens; this engine has 20"):
        queue(scheduler, 1, 20, 1)
    assert not scheduler.busy


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_aborting_frees_at_once_wherever_it_stands(rounds: int) -> None:
    """Waiting, half-way through its prompt, or talking: afterwards nobody owns a slot, and a second abort is none."""
    scheduler = Scheduler(50, 2, 50, prefill_tokens=5)
    sequence = queue(scheduler, 1, 8, 9)
    for _ in range(rounds):
        play(scheduler, scheduler.plan())
    assert scheduler.abort(sequence)
    assert (scheduler.slots.owned, scheduler.num_active, scheduler.num_waiting) == (0, 0, 0)
    assert (sequence.finish_reason, scheduler.abort(sequence)) == ("abort", False)


def test_a_known_beginning_is_copied_not_computed() -> None:
    """A finished text of 6 computed tokens; a prompt that goes on from its first 5 is fed only from there."""
    scheduler = Scheduler(100, 2, 100)
    first = queue(scheduler, 1, (1, 2, 3, 4), 3)
    while scheduler.busy:
        play(scheduler, scheduler.plan())
    assert first.token_ids == [1, 2, 3, 4, 5, 5, 5]
    second = queue(scheduler, 2, (1, 2, 3, 4, 5, 9, 9), 2)
    plan = scheduler.plan()
    assert [(a.source, a.num_tokens) for a in plan.admissions] == [(first.slot, 5)]
    assert [(c.start, c.end) for c in plan.chunks] == [(5, 7)]
    assert second.cached_tokens == 5


def test_the_last_prompt_token_is_always_computed() -> None:
    """A prompt said before in full is copied but for its last token, whose logits are needed."""
    scheduler = Scheduler(100, 2, 100)
    for number in (1, 2):
        queue(scheduler, number, (1, 2, 3, 4), 1)
        plan = scheduler.plan()
        play(scheduler, plan)
    assert [(c.start, c.end) for c in plan.chunks] == [(3, 4)]


def test_a_running_neighbour_is_a_source_too() -> None:
    """What a sequence has computed so far can be copied while it goes on."""
    scheduler = Scheduler(100, 2, 100)
    first = queue(scheduler, 1, (1, 2, 3, 4), 9)
    play(scheduler, scheduler.plan())
    queue(scheduler, 2, (1, 2, 3, 9), 2)
    assert [(a.source, a.num_tokens) for a in scheduler.plan().admissions] == [(first.slot, 3)]


def test_reuse_can_be_turned_off() -> None:
    """The same prompt again is computed again, and nothing stays behind."""
    scheduler = Scheduler(100, 2, 100, prefix_reuse=False)
    for number in (1, 2):
        queue(scheduler, number, (1, 2, 3, 4), 1)
        plan = scheduler.plan()
        assert [a.num_tokens for a in plan.admissions] == [0]
        play(scheduler, plan)
    assert scheduler.slots.used == 0


def test_a_source_in_the_way_is_computed_again_instead() -> None:
    """The kept text fills the memory that its successor needs: no copy, but no waiting either."""
    scheduler = Scheduler(12, 2, 12)
    queue(scheduler, 1, (1, 2, 3, 4, 5, 6), 6)
    while scheduler.busy:
        play(scheduler, scheduler.plan())
    queue(scheduler, 2, (1, 2, 3, 9), 6)
    assert [a.num_tokens for a in scheduler.plan().admissions] == [0]


@pytest.mark.parametrize("seed", range(5))
def test_random_traffic_ends_and_stays_within_bounds(seed: int) -> None:
    """Requests and aborts at random: never over the memory, the batch or the prompt budget, and all come to an end."""
    chance = random.Random(seed)
    scheduler = Scheduler(60, 3, 40, prefill_tokens=6, prefix_reuse=seed % 2 == 0)
    sequences: list[RunningSequence] = []
    for _ in range(60):
        if chance.random() < 0.5:
            prompt = tuple(chance.randrange(2) for _ in range(chance.randint(1, 20)))
            sequences.append(queue(scheduler, len(sequences), prompt, chance.randint(1, 15)))
        if sequences and chance.random() < 0.2:
            scheduler.abort(chance.choice(sequences))
        plan = scheduler.plan()
        assert sum(chunk.end - chunk.start for chunk in plan.chunks) <= 6
        assert len(plan.decoding) + len(plan.chunks) <= 3
        assert scheduler.slots.used <= 60
        play(scheduler, plan)
    for _ in range(2000):
        if not scheduler.busy:
            break
        play(scheduler, scheduler.plan())
    assert all(sequence.status is Status.FINISHED for sequence in sequences)
    assert scheduler.slots.owned == 0


def test_one_that_waits_is_not_searched_for_again_and_again() -> None:
    """No room, round after round: what is kept is looked through once, and once more when somebody has left."""
    looked: list[int] = []

    class Counting(Slots):
        @property
        def kept(self) -> tuple[Kept, ...]:
            looked.append(1)
            return super().kept

    scheduler = Scheduler(20, 4, 100)
    scheduler.slots = Counting(20)
    first = queue(scheduler, 1, 10, 5)
    second = queue(scheduler, 2, 8, 2)
    for _ in range(4):
        play(scheduler, scheduler.plan())
    assert (len(looked), second.status) == (2, Status.WAITING)
    scheduler.abort(first)
    assert [a.sequence for a in scheduler.plan().admissions] == [second]
    assert len(looked) == 3


def test_a_new_head_of_the_queue_is_tried_at_once() -> None:
    """The one that found no room gives up; the smaller one behind it joins though nobody has left."""
    scheduler = Scheduler(20, 4, 100)
    queue(scheduler, 1, 10, 5)
    second, third = queue(scheduler, 2, 8, 2), queue(scheduler, 3, 2, 2)
    play(scheduler, scheduler.plan())
    scheduler.abort(second)
    assert [a.sequence for a in scheduler.plan().admissions] == [third]


def test_the_longest_beginning_wins_wherever_it_stands() -> None:
    """Kept texts that share 2, 5 and 3 tokens with the prompt, in this order, and a running one that shares 4."""
    scheduler = Scheduler(200, 4, 100)
    texts = [(1, 2, 9, 9, 9, 9), (1, 2, 3, 4, 5, 9), (1, 2, 3, 9, 9, 9)]
    kept = [queue(scheduler, number, text, 1) for number, text in enumerate(texts)]
    while scheduler.busy:
        play(scheduler, scheduler.plan())
    queue(scheduler, 8, (1, 2, 3, 4, 9), 9)
    play(scheduler, scheduler.plan())
    queue(scheduler, 9, (1, 2, 3, 4, 5, 6, 7), 1)
    assert [(a.source, a.num_tokens) for a in scheduler.plan().admissions] == [(kept[1].slot, 5)]


def test_features_reach_as_far_as_they_were_taken_without_a_gap() -> None:
    """Tokens 0 to 4 with features, 4 to 6 without, 6 to 8 with: the first four count. What is computed again counts
    anew."""
    sequence = RunningSequence(1, Request((1, 2, 3, 4, 5, 6, 7, 8), 2), 10)
    for start, end, featured in ((0, 4, True), (4, 6, False), (6, 8, True)):
        sequence.compute(start, end, featured)
    assert (sequence.computed, sequence.featured) == (8, 4)
    sequence.compute(2, 5, True)
    assert sequence.featured == 5
    sequence.compute(3, 6, False)
    assert sequence.featured == 3


def test_a_prefix_is_copied_as_far_as_its_features_reach_for_who_needs_them() -> None:
    """Four of six tokens have features: who needs them copies four, who does not all five that are shared."""
    scheduler = Scheduler(200, 4, 100)
    first = queue(scheduler, 1, (1, 2, 3, 4, 5, 6), 1)
    plan = scheduler.plan()
    first.featured = 4
    play(scheduler, plan)
    prompt = (1, 2, 3, 4, 5, 9)
    needing = RunningSequence(2, Request(prompt, 2), 8, needs_features=True)
    plain = RunningSequence(3, Request(prompt, 2), 8)
    for sequence in (needing, plain):
        scheduler.add(sequence)
    assert [a.num_tokens for a in scheduler.plan().admissions] == [4, 5]
    assert (needing.featured, plain.featured) == (4, 4)
