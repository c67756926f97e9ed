"""The rounds of the engine: what drafters are told, and what is counted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch

from drafters.base import Draft, Drafter, DraftRequest, Sampling
from drafters.engine.kv_cache import KvCache
from drafters.engine.lengths import BatchTable
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Event, Runner
from drafters.engine.sequence import Request, RunningSequence
from drafters.engine.target import DecoderModel, Output, Span
from drafters.synthetic import Synthetic
from tests.drafters.engine.rounds import PROMPTS, Probe, oracle, run
from tests.drafters.models import VOCAB, greedy, lean, prompt, reference
from tests.drafters.rows import Oracle


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("reuse", [False, True])
def test_drafters_are_told_every_token_and_its_feature_once(tree: bool, reuse: bool) -> None:
    """Through chunks, copies of prefixes, chains and trees: features are transformers' hidden states, layer by
    layer."""
    probe = Probe(oracle(12 if tree else 4, tree))
    plain = Probe(oracle())
    # Another drafter's wish must not mix up the columns, neither with other layers nor with the same.
    plain.feature_layers = (1, 1) if reuse else (0, 2)
    drafters: dict[str, Drafter] = {"it": probe, "plain": plain}
    runner = Runner(lean("llama"), 300, drafters, prefill_tokens=8, prefix_reuse=reuse)
    running = []
    for number, text in enumerate([*PROMPTS, PROMPTS[0]]):
        running.append(runner.add(Request(tuple(text), 20 - number, drafter="it")))
        for _ in range(4):
            runner.step()
    run(runner)
    # The answer becomes part of the next prompt: what is copied are tokens accepted from drafts.
    running.append(runner.add(Request((*running[0].token_ids, 5, 6), 5, drafter="it")))
    run(runner)
    assert not probe.open_now
    assert any(sequence.cached_tokens for sequence in running) == reuse
    for sequence in running:
        told = probe.told[sequence.sequence_id]
        tokens = [token for commit in told for token in commit.token_ids]
        assert tokens == sequence.token_ids[: len(tokens)]
        features = torch.cat([commit.features for commit in told if commit.features is not None])
        assert features.shape == (len(tokens) - 1, 2, 32)
        want = reference("llama")(torch.tensor([tokens]), output_hidden_states=True).hidden_states
        # float64, two layers: see the target's own tests.
        torch.testing.assert_close(features[:, 0], want[2][0, :-1], rtol=0, atol=1e-11)
        torch.testing.assert_close(features[:, 1], want[0][0, :-1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("seed", range(6))
def test_counters_agree_with_each_other_and_with_the_rounds(seed: int) -> None:
    """Random requests, samplings, lengths and aborts: what the engine, the sequences and the records count is one
    story."""
    chance = random.Random(seed)
    records: list[RoundRecord] = []
    drafters: dict[str, Drafter] = {
        "chain": oracle(5),
        "tree": oracle(9, tree=True),
        "made up": Synthetic(3, (0.5,), seed),
    }
    table = BatchTable({1: 5, 3: 2, 4: 0})
    lengths = {"chain": table, "tree": table} if seed % 2 else None
    runner = Runner(lean("llama"), 250, drafters, 4, prefill_tokens=16, lengths=lengths, on_round=records.append)
    running: list[RunningSequence] = []
    events: list[Event] = []
    for number in range(12):
        running.append(
            runner.add(
                Request(
                    tuple(chance.choice(PROMPTS)),
                    chance.randint(1, 20),
                    sampling=Sampling(chance.choice([0.0, 0.0, 0.9])),
                    seed=number,
                    stop_token_ids=frozenset(chance.sample(range(VOCAB), 3)),
                    drafter=chance.choice(["chain", "tree", "made up", None]),
                    num_draft_tokens=chance.choice([None, 0, 2]),
                )
            )
        )
        for _ in range(chance.randint(0, 3)):
            events += runner.step()
        if number == 8:
            runner.abort(running[chance.randrange(8)])
    events += run(runner)
    count = runner.counters
    rounds = [each for sequence in running for each in sequence.rounds]
    assert count.num_rounds == len(rounds)
    assert count.num_drafts == sum(each.num_draft_tokens > 0 for each in rounds)
    assert count.num_draft_tokens == sum(each.num_draft_tokens for each in rounds)
    assert count.num_accepted_tokens == sum(each.num_accepted_tokens for each in rounds)
    assert sum(count.accepted_per_position) == count.num_accepted_tokens > 0
    assert count.accepted_per_position == sorted(count.accepted_per_position, reverse=True)
    assert sum(count.acceptance_histogram) == count.num_drafts
    assert sum(j * number for j, number in enumerate(count.acceptance_histogram)) == count.num_accepted_tokens
    at_least = [count.num_drafts, *count.accepted_per_position, 0]
    assert count.acceptance_histogram == [more - less for more, less in pairwise(at_least)]
    assert count.generation_tokens == sum(sequence.num_output_tokens for sequence in running)
    assert count.generation_tokens == (
        count.num_first_tokens + count.num_accepted_tokens + count.num_rounds - count.num_cut_tokens
    )
    assert count.num_cut_tokens == sum(sequence.num_cut_tokens for sequence in running)
    assert count.cached_tokens == sum(sequence.cached_tokens for sequence in running)
    for sequence in running:
        assert [t for event in events if event.sequence is sequence for t in event.token_ids] == sequence.output
        assert all(each.num_accepted_tokens <= each.num_draft_tokens for each in sequence.rounds)
        if sequence.rounds:
            said = 1 + sum(each.num_accepted_tokens + 1 for each in sequence.rounds) - sequence.num_cut_tokens
            assert said == sequence.num_output_tokens
    assert [record.round_index for record in records] == list(range(len(records)))
    for record in records:
        shares = [each for each in rounds if each.round_index == record.round_index]
        assert [each.batch_size for each in shares] == [record.batch_size] * record.batch_size
        assert sum(each.num_draft_tokens for each in shares) == record.num_draft_tokens
        assert sum(each.num_accepted_tokens for each in shares) == record.num_accepted_tokens
    assert sum(record.batch_size for record in records) == len(rounds)
    assert max(record.batch_size for record in records) <= 4
    assert max(record.prefill_tokens for record in records) <= 16
    assert all(min(record.draft_ns, record.verify_ns, record.host_ns) >= 0 for record in records)
    assert all(0 < record.forward_ns <= record.verify_ns for record in records)


def test_a_rounds_context_is_what_it_began_with() -> None:
    """Three tokens after a prompt of 21: the prompt's round has no context, the next two see 21 and 22 tokens."""
    records: list[RoundRecord] = []
    runner = Runner(lean("llama"), 100, on_round=records.append)
    sequence = runner.add(Request(tuple(PROMPTS[0]), 3))
    run(runner)
    assert [record.context_tokens for record in records] == [0, 21, 22]
    assert [record.prefill_tokens for record in records] == [21, 0, 0]
    assert [each.round_index for each in sequence.rounds] == [1, 2]


@pytest.mark.parametrize("as_tree", [True, False])
def test_the_deepest_position_of_the_model_is_reached_and_not_passed(as_tree: bool) -> None:
    """Prompt and output fill the model's 256 positions, with trees of one long branch, or chains, that would reach beyond them."""

    class Branch(Oracle):
        def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
            drafts = [tuple(self._following(request)[: request.num_tokens]) for request in requests]
            parents = [tuple(range(-1, len(tokens) - 1)) if as_tree else None for tokens in drafts]
            return [Draft(tokens, parents=above) for tokens, above in zip(drafts, parents, strict=True)]

    text = prompt(3, 236)
    right = [*text, *greedy("llama", text, 20)]
    runner = Runner(lean("llama"), 300, {"it": Branch([right], 12, tree=True)})
    sequence = runner.add(Request(tuple(text), 20, drafter="it"))
    run(runner)
    assert sequence.token_ids == right
    assert [each.num_draft_tokens for each in sequence.rounds] == [12, 5]


def test_log_probabilities_are_those_of_the_target() -> None:
    """For accepted, corrected and first tokens alike; the greedy token heads its alternatives."""
    runner = Runner(lean("llama"), 200, {"it": oracle(5, tree=True)})
    sequence = runner.add(Request(tuple(PROMPTS[0]), 12, drafter="it", logprobs=3))
    told = [each for event in run(runner) for each in event.logprobs or ()]
    logits = reference("llama")(torch.tensor([sequence.token_ids])).logits.detach()[0, len(PROMPTS[0]) - 1 : -1]
    want = torch.log_softmax(logits, dim=-1)
    assert [each.token_id for each in told] == sequence.output
    for position, each in enumerate(told):
        # float32: seven digits of numbers below 100.
        assert each.logprob == pytest.approx(float(want[position, each.token_id]), abs=1e-4)
        assert each.top[0] == (each.token_id, each.logprob)
        assert len(each.top) == 3


def test_aborting_between_rounds_leaves_the_others_unharmed() -> None:
    """One of three is aborted in the middle; its slots and its drafter's state are free at once."""
    probe = Probe(oracle())
    runner = Runner(lean("llama"), 200, {"it": probe}, prefix_reuse=False)
    running = [runner.add(Request(tuple(text), 20, drafter="it")) for text in PROMPTS]
    for _ in range(3):
        runner.step()
    assert runner.abort(running[1])
    assert probe.open_now == {0, 2}
    assert runner.scheduler.slots.used == 2 * 41
    run(runner)
    assert [running[0].output, running[2].output] == [greedy("llama", PROMPTS[i], 20) for i in (0, 2)]
    assert not runner.abort(running[0])


def test_features_are_taken_only_in_rounds_that_need_them() -> None:
    """A request without a drafter, one whose drafter asks for none and, for three tokens, one whose drafter does."""
    asked: list[bool] = []

    class Watched(DecoderModel):
        def forward(self, spans: Sequence[Span], cache: KvCache, feature_layers: Sequence[int] = ()) -> Output:
            asked.append(bool(feature_layers))
            return super().forward(spans, cache, feature_layers)

    drafters: dict[str, Drafter] = {"with": Probe(oracle()), "without": oracle()}
    runner = Runner(Watched(reference("llama")), 300, drafters)
    for name in (None, "without"):
        runner.add(Request(tuple(PROMPTS[0]), 12, drafter=name, num_draft_tokens=0))
    runner.step()
    runner.step()
    runner.add(Request(tuple(PROMPTS[1]), 3, drafter="with", num_draft_tokens=0))
    run(runner)
    assert asked == [False, False, True, True, True, *[False] * 7]


def test_a_beginning_without_features_is_copied_only_for_who_needs_none() -> None:
    """The same prompt, first without features: the drafter that needs them has it computed again, and from that one both
    may copy; what its drafter is told stays complete."""
    probe = Probe(oracle())
    runner = Runner(lean("llama"), 300, {"it": probe})
    cached = []
    for name in (None, None, "it", "it", None):
        sequence = runner.add(Request((*PROMPTS[0], 1), 4, drafter=name))
        run(runner)
        cached.append(sequence.cached_tokens)
    everything = len(PROMPTS[0])  # all but the last token of the prompt
    assert cached == [0, everything, 0, everything, everything]
    for told in probe.told.values():
        features = torch.cat([commit.features for commit in told if commit.features is not None])
        tokens = [token for commit in told for token in commit.token_ids]
        want = reference("llama")(torch.tensor([tokens]), output_hidden_states=True).hidden_states[2][0, :-1]
        # float64, two layers: see the target's own tests.
        torch.testing.assert_close(features[:, 0], want, rtol=0, atol=1e-11)
