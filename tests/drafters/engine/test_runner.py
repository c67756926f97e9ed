"""The rounds of the engine: what drafters are told, what is counted, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch

from drafters.base import Commit, Draft, Drafter, DraftRequest, Sampling
from drafters.engine.kv_cache import KvCache
from drafters.engine.lengths import BatchTable, FullLength, Outcome, Rest
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Event, Runner
from drafters.engine.sequence import Request, RequestError, RunningSequence
from drafters.engine.target import DecoderModel, Output, Span
from drafters.synthetic import Synthetic
from tests.drafters.models import VOCAB, greedy, lean, prompt, reference
from tests.drafters.rows import Oracle

PROMPTS = [prompt(20, 12) + prompt(seed, 9) for seed in (21, 22, 23)]


def oracle(k: int = 4, tree: bool = False) -> Oracle:
    """A drafter of middling quality for these prompts under the llama model."""
    return Oracle([[*text, *greedy("llama", text, 20)] for text in PROMPTS], k, tree)


def run(runner: Runner) -> list[Event]:
    """Step to the end."""
    events: list[Event] = []
    while runner.busy:
        events += runner.step()
    return events


class Probe:
    """Passes everything on to an oracle and writes down what it is told of each sequence."""

    feature_layers: tuple[int, ...] = (2, 0)

    def __init__(self, inner: Oracle) -> None:
        self.inner = inner
        self.tree = inner.tree
        self.max_nodes = inner.max_nodes
        self.told: dict[int, list[Commit]] = {}
        self.open_now: set[int] = set()

    def open(self, sequence_id: int, max_length: int) -> None:
        """A sequence begins."""
        self.open_now.add(sequence_id)
        self.told[sequence_id] = []

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """By then everything but the very newest has been told."""
        for request in requests:
            told = [token for commit in self.told[request.sequence_id] for token in commit.token_ids]
            assert told == list(request.token_ids)
        return self.inner.propose(requests)

    def commit(self, commits: Sequence[Commit]) -> None:
        """Write it down."""
        for commit in commits:
            assert commit.position == sum(len(earlier.token_ids) for earlier in self.told[commit.sequence_id])
            self.told[commit.sequence_id].append(commit)

    def release(self, sequence_id: int) -> None:
        """A sequence ends."""
        self.open_now.remove(sequence_id)


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


def test_each_request_has_its_own_length() -> None:
    """Side by side: none, two and the drafter's five, each cut to what is left to say."""
    runner = Runner(lean("llama"), 200, {"it": Synthetic(5, (0.0,))})
    texts = [runner.add(Request(tuple(PROMPTS[0]), 8, drafter="it", num_draft_tokens=k)) for k in (0, 2, None)]
    run(runner)
    assert [each.num_draft_tokens for each in texts[0].rounds] == [0, 0, 0, 0, 0, 0, 0]
    assert [each.num_draft_tokens for each in texts[1].rounds] == [2, 2, 2, 2, 2, 1, 0]
    assert [each.num_draft_tokens for each in texts[2].rounds] == [5, 5, 4, 3, 2, 1, 0]


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


def test_what_the_engine_cannot_serve_is_refused_before_it_is_queued() -> None:
    """Unknown drafter, foreign token, too long; the engine stays empty."""
    runner = Runner(lean("llama"), 100, {"it": oracle()})
    with pytest.raises(RequestError, match="unknown drafter 'eagle'; this engine has: it"):
        runner.add(Request((1,), 5, drafter="eagle"))
    with pytest.raises(RequestError, match=f"token id {VOCAB} in the prompt; allowed: 0 to {VOCAB - 1}"):
        runner.add(Request((VOCAB,), 5))
    with pytest.raises(RequestError, match="allowed: 256 together"):
        runner.add(Request((1,), 256))
    assert not runner.busy
    assert runner.step() == []


def test_a_drafter_that_gives_too_much_is_told_so() -> None:
    """Three nodes where two were asked for is an error, not something to cut quietly."""

    class Eager(Synthetic):
        def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
            return [Draft((1, 2, 3)) for _ in requests]

    runner = Runner(lean("llama"), 100, {"it": Eager(5, (1.0,))})
    runner.add(Request((1,), 9, drafter="it", num_draft_tokens=2))
    runner.step()
    with pytest.raises(ValueError, match="drafter 'it' gave 3 nodes; allowed: 2"):
        runner.step()


@pytest.mark.parametrize("where", ["open", "propose", "commit"])
def test_a_round_that_fails_ends_those_in_it_and_no_other(where: str) -> None:
    """The drafter fails once: the two in that round are aborted and hold nothing, the third, who waits, gets its
    text."""

    class Faulty(Oracle):
        fails = where

        def _fail(self, here: str) -> None:
            if self.fails == here:
                self.fails = ""
                raise RuntimeError(f"{here} failed")

        def open(self, sequence_id: int, max_length: int) -> None:
            self._fail("open")
            super().open(sequence_id, max_length)

        def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
            self._fail("propose")
            return super().propose(requests)

        def commit(self, commits: Sequence[Commit]) -> None:
            self._fail("commit")
            super().commit(commits)

    texts = [[*text, *greedy("llama", text, 20)] for text in PROMPTS]
    runner = Runner(lean("llama"), 200, {"it": Faulty(texts, 4, tree=False)}, max_sequences=2)
    running = [runner.add(Request(tuple(text), 20, drafter="it")) for text in PROMPTS]
    with pytest.raises(RuntimeError, match=f"{where} failed"):
        run(runner)
    assert [sequence.finish_reason for sequence in running] == ["abort", "abort", None]
    assert (runner.scheduler.slots.used, runner.scheduler.num_active, runner.scheduler.num_waiting) == (0, 0, 1)
    run(runner)
    assert running[2].token_ids == texts[2]
    assert runner.counters.num_first_tokens == (1 if where == "open" else 3)


class Noting(FullLength):
    """Chooses one length for all, and writes down what it is told."""

    def __init__(self, length: int, asked: int | None = None) -> None:
        self.length = length
        self.asked = asked
        self.rests: list[Rest] = []
        self.outcomes: list[Outcome] = []
        self.draft_ns: list[int] = []
        self.released: list[int] = []

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """The same for all, within their bounds."""
        self.rests.append(rest)
        return [min(self.length, bound) for bound in bounds]

    def ask(self, lengths: Sequence[int], bounds: Sequence[int]) -> list[int]:
        """More than is verified, if so told."""
        return [min(self.asked or length, bound) for length, bound in zip(lengths, bounds, strict=True)]

    def observe(self, record: RoundRecord, outcomes: Sequence[Outcome], draft_ns: int) -> None:
        """Write it down."""
        self.outcomes += outcomes
        self.draft_ns.append(draft_ns)

    def release(self, sequence_id: int) -> None:
        """Write it down."""
        self.released.append(sequence_id)


def test_each_drafter_has_its_own_policy_and_sees_the_others_rows() -> None:
    """One of a hundred, one of two, a fixed one of three and one without a drafter, in one round: each group is told what
    the others bring, those before it with the rows they have chosen."""
    drafters: dict[str, Drafter] = {name: Synthetic(5, (0.0,)) for name in ("first", "second", "fixed")}
    first, second = Noting(1), Noting(2)
    runner = Runner(lean("llama"), 400, drafters, lengths={"first": first, "second": second})
    asked = [("first", None), ("second", None), ("second", 1), ("fixed", 3), (None, None)]
    running = [runner.add(Request(tuple(PROMPTS[0]), 8, drafter=name, num_draft_tokens=k)) for name, k in asked]
    while not all(sequence.rounds for sequence in running):
        runner.step()
    assert [sequence.rounds[0].num_draft_tokens for sequence in running] == [1, 2, 1, 3, 0]
    context = 5 * len(PROMPTS[0])
    # Beside the first: two rows of the second group, four of the fixed one and one; beside the second: two, four and one.
    assert first.rests[-1] == Rest(4, 7, 0, context)
    assert second.rests[-1] == Rest(3, 7, 0, context)
    run(runner)
    assert (first.released, sorted(second.released)) == ([0], [1, 2])
    assert {outcome.sequence.sequence_id for outcome in first.outcomes} == {0}
    assert {outcome.sequence.sequence_id for outcome in second.outcomes} == {1, 2}
    assert all(ns > 0 for ns in first.draft_ns[1:3])


def test_what_is_asked_beyond_the_length_is_shown_and_not_verified() -> None:
    """Of four right tokens one is verified; the other three come back, and they are what the text goes on with."""
    right = [*PROMPTS[0], *greedy("llama", PROMPTS[0], 20)]

    class Knowing(Oracle):
        def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
            return [Draft(tuple(self._following(request)[: request.num_tokens])) for request in requests]

    noting = Noting(1, asked=4)
    runner = Runner(lean("llama"), 200, {"it": Knowing([right], 4, tree=False)}, lengths={"it": noting})
    sequence = runner.add(Request(tuple(PROMPTS[0]), 20, drafter="it"))
    run(runner)
    assert sequence.token_ids == right
    assert {each.num_draft_tokens for each in sequence.rounds} == {0, 1}
    assert [len(outcome.spare or ()) for outcome in noting.outcomes[:4]] == [3, 3, 3, 3]
    assert noting.outcomes[0].spare == tuple(right[len(PROMPTS[0]) + 2 :][:3])
    assert {(outcome.asked, outcome.drafted, outcome.path) for outcome in noting.outcomes[:4]} == {(4, 1, (0,))}


def test_drafts_that_the_text_cannot_judge_are_not_shown() -> None:
    """Trees and made-up acceptance: nothing comes back, and only what was verified counts as asked for."""
    for drafter in (oracle(6, tree=True), Synthetic(6, (1.0,))):
        noting = Noting(2, asked=6)
        runner = Runner(lean("llama"), 200, {"it": drafter}, lengths={"it": noting})
        runner.add(Request(tuple(PROMPTS[0]), 8, drafter="it"))
        run(runner)
        assert {(outcome.asked, outcome.spare) for outcome in noting.outcomes[:2]} == {(2, None)}


@pytest.mark.parametrize(("length", "asked", "said"), [(9, None, "chose"), (2, 1, "asks for")])
def test_a_policy_out_of_bounds_is_told_so(length: int, asked: int | None, said: str) -> None:
    """Nine where five are allowed, or one asked for where two are to be verified."""

    class Careless(Noting):
        def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
            return [self.length for _ in bounds]

    runner = Runner(lean("llama"), 100, {"it": Synthetic(5, (1.0,))}, lengths={"it": Careless(length, asked)})
    runner.add(Request((1,), 20, drafter="it"))
    with pytest.raises(ValueError, match=f"policy of 'it' {said}"):
        run(runner)


def test_what_the_engine_does_not_have_cannot_be_set() -> None:
    """Lengths for a drafter that is not there, and a rule of verification that does not exist."""
    with pytest.raises(ValueError, match="draft lengths given for that; this engine's drafters: it"):
        Runner(lean("llama"), 100, {"it": oracle()}, lengths={"that": FullLength()})
    with pytest.raises(ValueError, match="verification is 'loose'; allowed: standard, block"):
        Runner(lean("llama"), 100, verification="loose")  # type: ignore[arg-type]


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
