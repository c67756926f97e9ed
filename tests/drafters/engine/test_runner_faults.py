"""What is refused, and what is left of a round that fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drafters.base import Commit, Draft, DraftRequest
from drafters.engine.kv_cache import KvCache
from drafters.engine.lengths import FullLength
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RequestError
from drafters.engine.target import DecoderModel, Output, Span
from drafters.synthetic import Synthetic
from tests.drafters.engine.rounds import PROMPTS, Probe, oracle, run
from tests.drafters.models import VOCAB, greedy, lean, reference
from tests.drafters.rows import Oracle


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


def test_what_the_engine_does_not_have_cannot_be_set() -> None:
    """Lengths for a drafter that is not there, and a rule of verification that does not exist."""
    with pytest.raises(ValueError, match="draft lengths given for that; this engine's drafters: it"):
        Runner(lean("llama"), 100, {"it": oracle()}, lengths={"that": FullLength()})
    with pytest.raises(ValueError, match="verification is 'loose'; allowed: standard, block"):
        Runner(lean("llama"), 100, verification="loose")  # type: ignore[arg-type]


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


class Clinging(Probe):
    """Cannot let go of the sequences named, and writes down who it was told to forget."""

    feature_layers: tuple[int, ...] = ()

    def __init__(self, holds: set[int]) -> None:
        super().__init__(oracle())
        self.holds = holds
        self.told_to_forget: list[int] = []

    def release(self, sequence_id: int) -> None:
        """Fail for some."""
        self.told_to_forget.append(sequence_id)
        if sequence_id in self.holds:
            raise RuntimeError(f"{sequence_id} stays")
        self.open_now.discard(sequence_id)


class Letting(FullLength):
    """A policy that writes down who it was told to forget, and may fail then."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.released: list[int] = []

    def release(self, sequence_id: int) -> None:
        """Write it down."""
        self.released.append(sequence_id)
        if self.fails:
            raise RuntimeError("the policy clings")


def test_one_that_cannot_be_forgotten_keeps_no_other() -> None:
    """Three end in one round and the first stays with its drafter: the drafter and the policy are told of all three, then
    the error comes out."""
    clinging, letting = Clinging({0}), Letting()
    runner = Runner(lean("llama"), 200, {"it": clinging}, lengths={"it": letting})
    running = [runner.add(Request(tuple(PROMPTS[0]), 1, drafter="it")) for _ in range(3)]
    with pytest.raises(RuntimeError, match="0 stays"):
        run(runner)
    assert [sequence.finish_reason for sequence in running] == ["length"] * 3
    assert clinging.open_now == {0}
    assert set(clinging.told_to_forget) == set(letting.released) == {0, 1, 2}
    assert not runner.busy
    again = runner.add(Request(tuple(PROMPTS[0]), 5, drafter="it"))
    run(runner)
    assert again.output == greedy("llama", PROMPTS[0], 5)


def test_a_failed_round_says_why_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    """The target fails, then the drafter cannot forget the first of two: the target's error comes out, the drafter's is
    logged, and the second is forgotten."""

    class Broken(DecoderModel):
        def forward(self, spans: Sequence[Span], cache: KvCache, feature_layers: Sequence[int] = ()) -> Output:
            raise RuntimeError("out of memory")

    clinging = Clinging({0})
    runner = Runner(Broken(reference("llama")), 200, {"it": clinging})
    for text in PROMPTS[:2]:
        runner.add(Request(tuple(text), 5, drafter="it"))
    with pytest.raises(RuntimeError, match="out of memory"):
        runner.step()
    assert clinging.told_to_forget == [0, 1]
    assert "0 stays" in caplog.text
    assert not runner.busy


def test_a_policy_that_fails_to_forget_does_not_keep_the_drafter_from_it() -> None:
    """One sequence is aborted: its policy fails, its drafter lets go, and the error comes out."""
    clinging = Clinging(set())
    runner = Runner(lean("llama"), 200, {"it": clinging}, lengths={"it": Letting(fails=True)})
    sequence = runner.add(Request(tuple(PROMPTS[0]), 5, drafter="it"))
    runner.step()
    with pytest.raises(RuntimeError, match="the policy clings"):
        runner.abort(sequence)
    assert (clinging.told_to_forget, clinging.open_now) == ([0], set())
    assert runner.scheduler.slots.owned == 0
