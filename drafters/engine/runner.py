"""The rounds of the engine: draft for all, one forward for all, verify, commit, record.

Prompt chunks ride in the same forward as the verified drafts. Between rounds sequences join and leave.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from drafters.base import Draft, Drafter, Verdict
from drafters.engine.drafting import NO_DRAFT, Drafting
from drafters.engine.layout import Rows, lay_out
from drafters.engine.lengths import LengthPolicy, Outcome, Rest
from drafters.engine.records import Counters, RoundRecord, SequenceRound
from drafters.engine.scheduler import Chunk, Plan, Scheduler
from drafters.engine.sequence import Request, RequestError, RunningSequence, Status
from drafters.engine.target import DecoderModel, Output
from drafters.sampling import distribution, round_uniforms
from drafters.verify import Rule
from drafters.verify_batch import verify_greedy_batch, verify_sampled_batch

__all__ = ["Event", "Runner", "TokenLogprob"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's log probability under the target, unscaled, and the ``top`` alternatives asked for (id, log
    probability)."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """What a round gave one sequence; ``finished`` says that nothing follows. ``logprobs`` only where asked for."""

    sequence: RunningSequence
    token_ids: tuple[int, ...]
    finished: bool
    logprobs: tuple[TokenLogprob, ...] | None = None


class Runner:
    """The builtin engine without HTTP; one thread calls it.

    ``cache_tokens`` is the memory bound, over all sequences and everything kept for reuse. ``drafters`` are named; a
    request picks one. ``lengths`` holds the policies of those drafters whose draft lengths are not simply what spec and
    request allow. ``verification`` is the rule for requests that sample. ``decode`` turns token ids into text, for stop
    strings. ``on_round`` is called with each round's record.
    """

    def __init__(
        self,
        target: DecoderModel,
        cache_tokens: int,
        drafters: Mapping[str, Drafter] | None = None,
        max_sequences: int = 16,
        prefill_tokens: int = 512,
        prefix_reuse: bool = True,
        lengths: Mapping[str, LengthPolicy] | None = None,
        verification: Rule = "standard",
        decode: Callable[[Sequence[int]], str] | None = None,
        on_round: Callable[[RoundRecord], None] | None = None,
    ) -> None:
        unknown = sorted(set(lengths or {}) - set(drafters or {}))
        if unknown:
            known = ", ".join(sorted(drafters or {})) or "none"
            raise ValueError(f"draft lengths given for {', '.join(unknown)}; this engine's drafters: {known}")
        if verification not in get_args(Rule):
            raise ValueError(f"verification is {verification!r}; allowed: {', '.join(get_args(Rule))}")
        self.target = target
        self.drafting = Drafting(drafters or {}, target.num_layers, self._now)
        self.scheduler = Scheduler(cache_tokens, max_sequences, target.max_positions, prefill_tokens, prefix_reuse)
        self.lengths = dict(lengths or {})
        self.verification: Rule = verification
        self.counters = Counters()
        self._decode = decode
        self._on_round = on_round
        self._cache = target.new_cache(cache_tokens, len(self.drafting.layers) if prefix_reuse else 0)
        self._generators: dict[int, torch.Generator] = {}
        self._next_id = 0
        self._next_round = 0
        self._told_ns = 0  # what followed the last round's record, which could not count it

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return self.scheduler.busy

    def add(self, request: Request) -> RunningSequence:
        """Queue a request. Raises RequestError for one that this engine can never serve."""
        slack = self.drafting.slack(request)
        wrong = next((token for token in request.prompt if not 0 <= token < self.target.vocab_size), None)
        if wrong is not None:
            raise RequestError(f"token id {wrong} in the prompt; allowed: 0 to {self.target.vocab_size - 1}")
        reserved = len(request.prompt) + request.max_tokens + slack
        needs_features = self.drafting.needs_features(request)
        sequence = RunningSequence(self._next_id, request, reserved, self._decode, needs_features)
        self.scheduler.add(sequence)
        self._next_id += 1
        return sequence

    def abort(self, sequence: RunningSequence) -> bool:
        """End a sequence between rounds and free what it holds; False when it had ended already.

        An error of its drafter or policy, which could not forget it, comes out as it is once all else is free.
        """
        active = sequence.status in (Status.PREFILLING, Status.RUNNING)
        aborted = self.scheduler.abort(sequence)
        if aborted and active:
            error = self._forget([sequence])
            if error is not None:
                raise error
        return aborted

    def reset_drafting(self) -> None:
        """Between rounds: every policy forgets what earlier rounds taught it, corrections of the costs included.

        Sequences, and what is kept for reuse, are not touched.
        """
        for policy in self.lengths.values():
            policy.reset()

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Run one round. Returns what each sequence that made progress got; empty when there was nothing to do.

        An error of the target, a drafter, the policy or a callback comes out as it is. Those who took part in the round
        have then ended with the reason "abort" and hold nothing; the others go on with the next step.
        """
        start = time.monotonic_ns()
        plan = self.scheduler.plan()
        try:
            self._join(plan)
            return self._round(plan, start) if plan.decoding or plan.chunks else []
        except Exception:
            self._drop(plan)
            raise

    def _now(self) -> int:
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)  # kernels run on their own; a share of a round must include them
        return time.monotonic_ns()

    def _join(self, plan: Plan) -> None:
        for admission in plan.admissions:
            sequence = admission.sequence
            self._cache.copy(admission.source, sequence.slot, admission.num_tokens)
            self.counters.prompt_tokens += len(sequence.request.prompt)
            self.counters.cached_tokens += admission.num_tokens
            if not sequence.request.sampling.greedy:
                generator = torch.Generator()
                if sequence.request.seed is None:
                    generator.seed()
                else:
                    generator.manual_seed(sequence.request.seed)
                self._generators[sequence.sequence_id] = generator
            kept = self._cache.features
            end = sequence.slot + admission.num_tokens
            self.drafting.open(sequence, None if kept is None else kept[sequence.slot : end])

    def _round(self, plan: Plan, start: int) -> list[Event]:
        index = self._next_round
        self._next_round += 1
        context_tokens = sum(sequence.computed for sequence in plan.decoding)
        lengths, asks = self._choose(plan, context_tokens)
        self.drafting.start_round()
        chosen = self._now()
        self.drafting.flush()  # copied prefixes first: a drafter gets one commit a sequence at a time
        whole = self.drafting.propose(plan.decoding, asks, self._generators)
        # Where to cut was settled before, so what is cut off has no say in what is verified.
        drafts = [draft.truncated(length) for draft, length in zip(whole, lengths, strict=True)]
        drafted = self._now()
        spans, places = lay_out(plan, drafts)
        built = time.monotonic_ns()
        part = [*plan.decoding, *(chunk.sequence for chunk in plan.chunks)]
        layers = self.drafting.layers if any(sequence.needs_features for sequence in part) else ()
        output = self.target.forward(spans, self._cache, layers)
        forwarded = self._now()
        verdicts = self._verify(plan, drafts, output.logits)
        verified = self._now()
        events = self._decided(index, plan, drafts, verdicts, places, output, verified)
        told = self._now()
        self.drafting.flush()
        flushed = self._now()
        ended = [event.sequence for event in events if event.finished]
        for sequence in ended:
            self.scheduler.finish(sequence)
        end = self._now()
        draft_ns, verify_ns = drafted - chosen + flushed - told, verified - drafted
        record = RoundRecord(
            round_index=index,
            t_ns=end,
            batch_size=len(plan.decoding),
            prefill_tokens=sum(chunk.end - chunk.start for chunk in plan.chunks),
            context_tokens=context_tokens,
            num_draft_tokens=sum(len(draft) for draft in drafts),
            num_accepted_tokens=sum(len(verdict.path) for verdict in verdicts[: len(drafts)]),
            draft_ns=draft_ns,
            verify_ns=verify_ns,
            forward_ns=forwarded - built,
            host_ns=end - start - draft_ns - verify_ns + self._told_ns,
        )
        self._observe(record, plan, lengths, asks, whole, drafts, verdicts)
        error = self._forget(ended)  # after the policies have learnt how they ended
        if error is not None:
            raise error
        if self._on_round is not None:
            self._on_round(record)
        self._told_ns = time.monotonic_ns() - end if self.busy else 0
        return events

    def _choose(self, plan: Plan, context_tokens: int) -> tuple[list[int], list[int]]:
        """Draft lengths of all who decode, and how much to ask their drafters for: each drafter's policy in turn, and
        each sees what those before it chose."""
        lengths = [self.drafting.bound(sequence) for sequence in plan.decoding]
        if not self.lengths:
            return lengths, lengths
        asks = list(lengths)
        groups: dict[str, list[int]] = {}
        for index, sequence in enumerate(plan.decoding):
            if lengths[index] and sequence.request.drafter in self.lengths:
                groups.setdefault(sequence.request.drafter, []).append(index)
        grouped = {index for indices in groups.values() for index in indices}
        rows = len(lengths) + sum(length for index, length in enumerate(lengths) if index not in grouped)
        prompt_rows = sum(chunk.end - chunk.start for chunk in plan.chunks)
        for name, indices in groups.items():
            bounds = [lengths[index] for index in indices]
            rest = Rest(len(lengths) - len(indices), rows - len(indices), prompt_rows, context_tokens)
            policy = self.lengths[name]
            chosen = policy.choose([plan.decoding[index] for index in indices], bounds, rest)
            if any(not 0 <= length <= bound for length, bound in zip(chosen, bounds, strict=True)):
                raise ValueError(f"the policy of {name!r} chose draft lengths {chosen}; allowed: from 0 to {bounds}")
            asked = policy.ask(chosen, bounds)
            if any(not c <= a <= bound for c, a, bound in zip(chosen, asked, bounds, strict=True)):
                raise ValueError(f"the policy of {name!r} asks for {asked}; allowed: from {chosen} to {bounds}")
            for index, length, wanted in zip(indices, chosen, asked, strict=True):
                lengths[index], asks[index] = length, wanted
            rows += sum(chosen)
        return lengths, asks

    def _observe(
        self,
        record: RoundRecord,
        plan: Plan,
        lengths: Sequence[int],
        asks: Sequence[int],
        whole: Sequence[Draft],
        drafts: Sequence[Draft],
        verdicts: Sequence[Verdict],
    ) -> None:
        """Tell every policy of the round, and of its own sequences' share."""
        if not self.lengths:
            return
        outcomes: dict[str | None, list[Outcome]] = {}
        for index, (sequence, draft) in enumerate(zip(plan.decoding, whole, strict=True)):
            drafted, asked = len(drafts[index]), asks[index]
            spare: tuple[int, ...] | None = draft.token_ids[drafted:]
            if draft.probs is not None or draft.parents is not None or draft.forced is not None:
                spare, asked = None, lengths[index]
            outcome = Outcome(sequence, asked, drafted, verdicts[index].path, spare)
            outcomes.setdefault(sequence.request.drafter, []).append(outcome)
        for name, policy in self.lengths.items():
            policy.observe(record, outcomes.get(name, ()), self.drafting.spent_ns.get(name, 0))

    def _verify(self, plan: Plan, drafts: Sequence[Draft], logits: Tensor) -> list[Verdict]:
        """Decide for all who decode, then the first token of each prompt that is complete: an empty draft."""
        sequences = [*plan.decoding, *(chunk.sequence for chunk in plan.chunks if chunk.last)]
        drafts = [*drafts, *([NO_DRAFT] * (len(sequences) - len(drafts)))]
        if not sequences:
            return []
        if all(sequence.request.sampling.greedy for sequence in sequences):
            return verify_greedy_batch(logits, drafts)
        # Temperature 0 puts all mass on the argmax, so a mixed batch takes one path.
        rows = [s.request.sampling for s, draft in zip(sequences, drafts, strict=True) for _ in range(len(draft) + 1)]
        probs = distribution(logits, [r.temperature for r in rows], [r.top_k for r in rows], [r.top_p for r in rows])
        uniforms = [
            [0.0] * (len(draft) + 1)
            if sequence.request.sampling.greedy
            else round_uniforms(self._generators[sequence.sequence_id], len(draft))
            for sequence, draft in zip(sequences, drafts, strict=True)
        ]
        return verify_sampled_batch(probs, drafts, uniforms, self.verification)

    def _decided(
        self,
        index: int,
        plan: Plan,
        drafts: Sequence[Draft],
        verdicts: Sequence[Verdict],
        places: Sequence[Rows],
        output: Output,
        now_ns: int,
    ) -> list[Event]:
        """Append what was decided to the sequences, and tell drafters and counters."""
        events: list[Event] = []
        batch, features = len(plan.decoding), output.features
        for sequence, draft, verdict, at in zip(plan.decoding, drafts, verdicts[:batch], places[:batch], strict=True):
            event = self._commit(sequence, draft, verdict, at, output)
            events.append(event)
            taken = None if features is None else features[at.row : at.row + len(draft) + 1]
            self.drafting.tell_round(sequence, verdict, taken)
            accepted, kept = len(verdict.path), len(event.token_ids)
            sequence.rounds.append(SequenceRound(index, now_ns, batch, len(draft), accepted, kept))
            self.counters.count_round(len(draft), accepted, kept)
        firsts = iter(verdicts[batch:])
        for chunk, at in zip(plan.chunks, places[batch:], strict=True):
            chunk.sequence.compute(chunk.start, chunk.end, features is not None)
            if chunk.last:
                events.append(self._first_token(chunk, next(firsts), at, output.logits))
            taken = None if features is None else features[at.row : at.row + chunk.end - chunk.start]
            self.drafting.tell_chunk(chunk, taken)
        return events

    def _commit(self, sequence: RunningSequence, draft: Draft, verdict: Verdict, at: Rows, output: Output) -> Event:
        self._cache.compact(sequence.slot + sequence.computed + 1, verdict.path)
        computed = sequence.computed + 1 + len(verdict.path)
        tokens = [*(draft.token_ids[node] for node in verdict.path), verdict.next_token_id]
        kept = sequence.extend(tokens)
        # After a cut the K/V reaches as far as the text at most.
        computed = min(computed, len(sequence.token_ids))
        sequence.compute(sequence.computed, computed, output.features is not None)
        rows = [at.logit, *(at.logit + 1 + node for node in verdict.path)][:kept]
        return _event(sequence, tokens[:kept], rows, output.logits)

    def _first_token(self, chunk: Chunk, verdict: Verdict, at: Rows, logits: Tensor) -> Event:
        sequence = chunk.sequence
        sequence.status = Status.RUNNING
        sequence.extend([verdict.next_token_id])
        self.counters.num_first_tokens += 1
        self.counters.generation_tokens += 1
        return _event(sequence, [verdict.next_token_id], [at.logit], logits)

    def _forget(self, sequences: Iterable[RunningSequence]) -> Exception | None:
        """Have drafters and policies forget ended sequences; return the first error, after all have had their turn."""
        first: Exception | None = None
        for sequence in sequences:
            self._generators.pop(sequence.sequence_id, None)
            try:
                self._release(sequence)
            except Exception as error:
                logger.exception(
                    "drafter %r could not forget sequence %d", sequence.request.drafter, sequence.sequence_id
                )
                first = first or error
        return first

    def _release(self, sequence: RunningSequence) -> None:
        policy = self.lengths.get(sequence.request.drafter or "")
        try:
            if policy is not None:
                policy.release(sequence.sequence_id)
        finally:
            self.drafting.release(sequence)

    def _drop(self, plan: Plan) -> None:
        """End all who took part in a round that failed: how far their K/V and their drafters' states are is unknown."""
        part = [admission.sequence for admission in plan.admissions]
        part += [*plan.decoding, *(chunk.sequence for chunk in plan.chunks)]
        sequences = {sequence.sequence_id: sequence for sequence in part}.values()
        self.drafting.discard()
        # The engine's own state first: a drafter that is out of order may fail here too.
        for sequence in sequences:
            self.scheduler.drop(sequence)
        self._forget(sequences)  # its errors are logged: the one that failed the round matters more


def _event(sequence: RunningSequence, tokens: Sequence[int], rows: Sequence[int], logits: Tensor) -> Event:
    wanted = sequence.request.logprobs
    logprobs: tuple[TokenLogprob, ...] | None = None
    if wanted is not None:
        scores = torch.log_softmax(logits[list(rows)].float(), dim=-1)  # [tokens, vocab]
        values, ids = scores.topk(min(wanted, scores.shape[-1]), dim=-1)
        tops = [tuple(zip(i, v, strict=True)) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]
        own = [float(scores[row, token]) for row, token in enumerate(tokens)]
        logprobs = tuple(TokenLogprob(t, o, top) for t, o, top in zip(tokens, own, tops, strict=True))
    return Event(sequence, tuple(tokens), sequence.status is Status.FINISHED, logprobs)
