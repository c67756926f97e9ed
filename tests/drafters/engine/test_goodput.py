"""The controller's choices: arithmetic with given costs, learning from outcomes, and texts that stay the target's."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from drafters.base import Commit, DraftRequest
from drafters.engine.costs import CostModel
from drafters.engine.goodput import Goodput
from drafters.engine.lengths import Outcome, Rest
from drafters.engine.records import RoundRecord
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request, RunningSequence
from drafters.prompt_lookup import PromptLookup
from drafters.verify import Rule
from tests.drafters.engine.sampled import BUILD, PROMPT, SAMPLINGS, chi_square, generate
from tests.drafters.models import greedy, lean, prompt
from tests.drafters.rows import ROWS

BATCHES = (1, 2, 4, 8, 16)
SIZES = (1, 2, 3, 5, 9)


class Given(CostModel):
    """Costs that stay as they are, whatever a test's machine makes of them."""

    def observe(self, record: RoundRecord) -> None:
        """Learn nothing."""

    def observe_draft(self, drafter: str, lengths: Sequence[int], draft_ns: int) -> None:
        """Learn nothing."""


def costs(forward: Callable[[int], float], draft: float = 0.0) -> Given:
    """A forward that depends on its rows alone, and ``draft`` for each token drafted."""
    grid = {(batch, rows): forward(batch * rows) for batch in BATCHES for rows in SIZES}
    return Given(grid, {"it": {(batch, k): draft * batch * k for batch in BATCHES for k in (0, 8)}})


def sequence(number: int = 0) -> RunningSequence:
    """One that has said its first token and has a hundred to go."""
    made = RunningSequence(number, Request((1,), 101), 102)
    made.extend([2])
    return made


def tell(policy: Goodput, *outcomes: Outcome, t_ns: int = 1) -> None:
    """A round with these outcomes and nobody else."""
    drafted, accepted = sum(o.drafted for o in outcomes), sum(len(o.path) for o in outcomes)
    policy.observe(RoundRecord(0, t_ns, len(outcomes), 0, 0, drafted, accepted, 0, 1, 1, 0), outcomes, 0)


def teach(policy: Goodput, one: RunningSequence, drafted: int, accepted: int, times: int = 300) -> None:
    """Rounds in which always so many of so many were accepted."""
    for _ in range(times):
        tell(policy, Outcome(one, drafted, drafted, tuple(range(accepted)), None))


def half(policy: Goodput, one: RunningSequence, drafted: int) -> None:
    """Rounds in which half of the drafts were accepted in full and the others not at all, whatever came before."""
    for number in range(400):
        tell(policy, Outcome(one, drafted, drafted, tuple(range(drafted)) if number % 4 < 2 else (), None))


def test_the_length_is_where_tokens_over_time_are_most() -> None:
    """Two of four are always accepted; a forward takes 9 and 1 for each row: 3 tokens in 12 beat 2 in 11 and 3 in 13."""
    policy, one = Goodput(costs(lambda rows: 9 + rows), "it", probe_share=0), sequence()
    teach(policy, one, 4, 2)
    assert policy.choose([one], [4], Rest()) == [2]


def test_a_slow_drafter_is_asked_for_less() -> None:
    """The same with 8 for each drafted token: 3 tokens in 28 and 2 in 19 are both more than 1 in 10, with 2 in 19 on top
    of neither; at 12 each, 3 in 36 and 2 in 23 are less than 1 in 10."""
    chosen = []
    for draft in (8, 12):
        policy, one = Goodput(costs(lambda rows: 9 + rows, draft), "it", probe_share=0), sequence()
        teach(policy, one, 4, 2)
        chosen += policy.choose([one], [4], Rest())
    assert chosen == [2, 0]


def test_rows_that_cost_as_much_as_rounds_are_not_spent() -> None:
    """Ten for every row: half a token more for twice the time is no gain; nine in ten accepted are none either."""
    for accepted in (1, 0):
        policy, one = Goodput(costs(lambda rows: 10 * rows), "it", probe_share=0), sequence()
        for _ in range(100):
            teach(policy, one, 1, accepted, times=1)
            teach(policy, one, 1, 1, times=1)
        assert policy.choose([one], [8], Rest()) == [0]


def test_load_drives_the_length_down() -> None:
    """Three rows cost no more than one, and from there on each costs ten: alone two drafted tokens are worth it, four
    sequences draft none."""
    policy = Goodput(costs(lambda rows: max(30, 10 * rows)), "it", probe_share=0)
    crowd = [sequence(number) for number in range(4)]
    for one in crowd:
        half(policy, one, 2)
    assert policy.choose(crowd[:1], [2], Rest()) == [2]
    assert policy.choose(crowd, [2] * 4, Rest()) == [0] * 4


def test_others_in_the_round_are_load_too() -> None:
    """The same sequence beside three that draft nothing, or beside one that fills the rows with its own draft."""
    policy, one = Goodput(costs(lambda rows: max(30, 10 * rows)), "it", probe_share=0), sequence()
    half(policy, one, 2)
    assert policy.choose([one], [2], Rest()) == [2]
    assert policy.choose([one], [2], Rest(sequences=3, rows=3)) == [0]
    assert policy.choose([one], [2], Rest(sequences=1, rows=3)) == [0]


def test_prompt_rows_in_the_same_forward_count_by_what_a_draft_adds() -> None:
    """Beside a prompt that fills the forward, rows cost ten each and one token a round is bought for forty: a token that is
    half likely is worth it, one in ten is not."""
    policy, one = Goodput(costs(lambda rows: max(40, 10 * rows)), "it", probe_share=0), sequence()
    half(policy, one, 1)
    assert policy.choose([one], [1], Rest(prompt_rows=64)) == [1]
    for number in range(301):
        tell(policy, Outcome(one, 1, 1, () if number % 10 else (0,), None))
    assert policy.choose([one], [1], Rest(prompt_rows=64)) == [0]


def test_rows_go_to_who_will_use_them() -> None:
    """One sequence gets all accepted and another nothing: the first has three rows, the second none."""
    policy = Goodput(costs(lambda rows: 20 + 5 * rows), "it", probe_share=0)
    good, bad = sequence(0), sequence(1)
    for _ in range(60):
        tell(policy, Outcome(good, 3, 3, (0, 1, 2), None), Outcome(bad, 3, 3, (), None))
    assert policy.choose([good, bad], [3, 3], Rest()) == [3, 0]
    assert policy.choose([bad, good], [3, 1], Rest()) == [0, 1]


def test_nodes_of_a_tree_are_judged_one_by_one() -> None:
    """The second node is a sibling that is never right, the third is the first one's child and always is: three nodes make
    3 tokens in 12, one makes 2 in 10 and two make 2 in 11."""
    policy, one = Goodput(costs(lambda rows: 8 + rows), "it", tree=True, probe_share=0), sequence()
    for _ in range(300):
        tell(policy, Outcome(one, 4, 4, (0, 2), None))
    assert policy.choose([one], [4], Rest()) == [3]


def test_asking_in_vain_is_no_reason_to_stop() -> None:
    """Lookup finds something in one of ten rounds, and then it is right: it is asked every time, and once that is known
    for all there is."""
    policy, one = Goodput(costs(lambda rows: 20 + rows, draft=0.001), "it"), sequence()
    for number in range(200):
        (length,) = policy.choose([one], [8], Rest())
        assert length >= (8 if number >= 100 and number % 10 == 0 else 1)
        tell(policy, Outcome(one, 8, 8, tuple(range(8))) if number % 10 == 0 else Outcome(one, 8, 0, ()))


def test_bounds_are_kept() -> None:
    """Whatever pays: no more than the request allows, and nothing where it allows nothing."""
    policy = Goodput(costs(lambda rows: 100), "it")
    crowd = [sequence(number) for number in range(3)]
    for one in crowd:
        teach(policy, one, 8, 8, times=20)
    lengths = policy.choose(crowd, [8, 0, 2], Rest())
    assert lengths == [8, 0, 2]
    assert all(
        length <= asked <= bound
        for length, asked, bound in zip(lengths, policy.ask(lengths, [8, 0, 2]), [8, 0, 2], strict=True)
    )


def spent_on_nothing(policy: Goodput, one: RunningSequence, table: CostModel, rounds: int) -> tuple[float, float]:
    """Play rounds in which nothing is accepted; return the time of all and what the drafts in it took."""
    total = extra = 0.0
    for _ in range(rounds):
        (length,) = policy.choose([one], [4], Rest())
        total += table.forward_ns(1, 1 + length)
        extra += table.forward_ns(1, 1 + length) - table.forward_ns(1, 1)
        tell(policy, Outcome(one, length, length, (), None))
    return total, extra


def test_probes_cost_no_more_than_their_share() -> None:
    """Nothing is ever accepted and a second row costs as much as a round: after the first rounds, two hundredths of the
    time go into looking whether that is still so, and some do."""
    table = costs(lambda rows: 1000 * rows)
    policy, one = Goodput(table, "it", probe_share=0.02), sequence()
    spent_on_nothing(policy, one, table, 50)
    total, extra = spent_on_nothing(policy, one, table, 2000)
    assert 0.01 < extra / total <= 0.0205


def test_better_times_are_found_by_probes() -> None:
    """After hundreds of useless rounds everything is accepted: within the time of one probe and a few rounds the whole
    length is drafted again."""
    table = costs(lambda rows: 1000 + 400 * rows)
    policy, one = Goodput(table, "it", probe_share=0.02), sequence()
    spent_on_nothing(policy, one, table, 500)
    lengths = []
    for _ in range(60):
        lengths += policy.choose([one], [4], Rest())
        tell(policy, Outcome(one, lengths[-1], lengths[-1], tuple(range(lengths[-1])), None))
    first = next(number for number, length in enumerate(lengths) if length > 0)
    assert first <= 15  # a probe costs 400 of 1400: one in fifteen rounds
    assert lengths[first + 8 :] == [4] * (60 - first - 8)


def test_where_looking_is_free_better_times_are_found_without_verifying() -> None:
    """A cheap drafter is asked all the time and compared with the text: three right tokens later its drafts are used, and
    until then not one row was spent."""
    policy, one = (
        Goodput(costs(lambda rows: 1000 * rows - 600 * (rows > 2) * (rows - 2), draft=0.001), "it"),
        sequence(),
    )
    for number in range(200):
        (length,) = policy.choose([one], [8], Rest())
        assert policy.ask([length], [8]) == [8]
        assert length == 0 or number < 10
        one.token_ids.append(number % 5)
        draft: tuple[int, ...] = (9,) * 8  # never said
        tell(policy, Outcome(one, 8, length, (), draft[length:]))
    lengths = []
    for number in range(6):
        (length,) = policy.choose([one], [8], Rest())
        lengths.append(length)
        draft = tuple((number + ahead) % 5 for ahead in range(8))
        one.token_ids += draft[: length + 1] if length < 8 else (*draft, 0)
        tell(policy, Outcome(one, 8, length, tuple(range(length)), draft[length:]))
        if length:
            break
    assert lengths[:-1] == [0] * (len(lengths) - 1)
    assert len(lengths) <= 4
    assert lengths[-1] >= 2


def test_an_unknown_drafter_or_share_is_refused() -> None:
    """Costs must have been measured, and shares are shares."""
    with pytest.raises(ValueError, match="no costs of drafter 'that'; measured: it"):
        Goodput(costs(lambda rows: 1), "that")
    with pytest.raises(ValueError, match="allowed: within 0 to 1"):
        Goodput(costs(lambda rows: 1), "it", probe_share=1.5)


# --- whole texts ---------------------------------------------------------------------------------------------------


class Fixed(Goodput):
    """Always the same length: what the controller is compared with."""

    def __init__(self, table: CostModel, length: int) -> None:
        super().__init__(table, "it")
        self._length = length

    def choose(self, sequences: Sequence[RunningSequence], bounds: Sequence[int], rest: Rest) -> list[int]:
        """Learn as the other does, and make no use of it."""
        return [min(self._length, bound) for bound in bounds]

    def ask(self, lengths: Sequence[int], bounds: Sequence[int]) -> list[int]:
        """What is verified."""
        return list(lengths)


def tokens_a_second(policy: Goodput, table: CostModel, texts: Sequence[tuple[list[int], list[int]]]) -> float:
    """Play prompts with known answers one after the other, with lookup as the drafter and the table as the clock."""
    tokens = t_ns = 0.0
    drafter = PromptLookup(8)
    for number, (text, answer) in enumerate(texts):
        one = RunningSequence(number, Request(tuple(text), len(answer) + 1), 10_000)
        drafter.open(number, 10_000)
        drafter.commit([Commit(number, 0, tuple(text))])
        one.extend(answer[:1])
        while len(rest := answer[one.num_output_tokens :]) > 1:
            bounds = [min(8, len(rest) - 1)]
            (length,) = policy.choose([one], bounds, Rest())
            (asked,) = policy.ask([length], bounds)
            draft = drafter.propose([DraftRequest(number, one.token_ids, asked)])[0].token_ids if asked else ()
            used = draft[:length]
            accepted = next((i for i, (a, b) in enumerate(zip(used, rest, strict=False)) if a != b), len(used))
            one.extend(rest[: accepted + 1])
            tokens += accepted + 1
            t_ns += table.forward_ns(1, 1 + len(used))
            outcome = Outcome(one, asked, len(used), tuple(range(accepted)), draft[length:])
            record = RoundRecord(0, int(t_ns), 1, 0, 0, len(used), accepted, 0, 1, 1, 0)
            policy.observe(record, [outcome], 0)
        policy.release(number)
        drafter.release(number)
    return tokens / t_ns


def written(kind: str) -> list[tuple[list[int], list[int]]]:
    """Prompts and answers of four hundred tokens: a copy of the prompt, tokens that repeat by accident alone, or by
    turns."""
    chance = random.Random(kind)

    def free(length: int) -> list[int]:
        return [chance.choice((chance.randrange(12), chance.randrange(2000))) for _ in range(length)]

    texts = []
    for _ in range(4):
        source = free(400)
        parts = {"copy": [source], "free": [free(400)]}
        parts["turns"] = [free(100), source[:100], free(100), source[150:250]]
        texts.append((source, [token for part in parts[kind] for token in part]))
    return texts


CLOCKS: Mapping[str, Callable[[int], float]] = {
    "rows almost free": lambda rows: 36 + rows,
    "rows cost": lambda rows: 30 + 8 * rows,
    "a second row costs a round": lambda rows: 40 if rows == 1 else 78 + 0.5 * rows,
    "rows are all that costs": lambda rows: 2 + 10 * rows,
}


@pytest.mark.parametrize("kind", ["copy", "free", "turns"])
@pytest.mark.parametrize("clock", CLOCKS)
def test_no_fixed_length_would_have_been_much_better(clock: str, kind: str) -> None:
    """Whatever rows cost: at least 0.95 of the best fixed length in hindsight, learning included."""
    table = costs(lambda rows: CLOCKS[clock](rows) * 1e6, draft=1000)
    texts = written(kind)
    best = max(tokens_a_second(Fixed(table, length), table, texts) for length in (0, 1, 2, 3, 4, 6, 8))
    assert tokens_a_second(Goodput(table, "it"), table, texts) >= 0.95 * best


def test_by_turns_it_beats_every_fixed_length() -> None:
    """Free writing and copies in one text, and rows that cost: no single length is right."""
    table = costs(lambda rows: (30 + 8 * rows) * 1e6, draft=1000)
    texts = written("turns")
    best = max(tokens_a_second(Fixed(table, length), table, texts) for length in (0, 1, 2, 3, 4, 6, 8))
    assert tokens_a_second(Goodput(table, "it"), table, texts) > best


SHAPES: Mapping[str, Callable[[int], float]] = {
    "cheap": lambda rows: 1e6 + 1e4 * rows,
    "dear": lambda rows: 1e6 + 5e5 * rows,
    "linear": lambda rows: 1e6 * rows,
}


def knowing(names: Sequence[str], shape: str) -> dict[str, Goodput]:
    """A controller for each drafter, all over one table in which drafting costs little or nothing."""
    grid = {(batch, rows): SHAPES[shape](batch * rows) for batch in BATCHES for rows in SIZES}
    table = Given(grid, {name: {(1, 0): 0, (1, 8): 1e4 * (index % 2)} for index, name in enumerate(names)})
    return {name: Goodput(table, name, tree="tree" in name, probe_share=0.3) for name in names}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ROWS)
def test_greedy_texts_are_those_of_transformers(name: str, shape: str) -> None:
    """Three at once with lengths that change from round to round: token for token."""
    prompts = [prompt(20, 12) + prompt(seed, 9) for seed in (21, 22, 23)]
    right = [greedy("llama", text, 30) for text in prompts]
    drafter = ROWS[name]("llama", 4, [[*text, *answer] for text, answer in zip(prompts, right, strict=True)])
    runner = Runner(lean("llama"), 400, {name: drafter}, lengths=knowing([name], shape))
    running = [runner.add(Request(tuple(text), 30, drafter=name)) for text in prompts]
    while runner.busy:
        runner.step()
    assert [one.output for one in running] == right


@pytest.mark.parametrize("rule", ["standard", "block"])
def test_sampled_texts_are_drawn_from_the_target(rule: Rule) -> None:
    """Chains, trees, drawn drafts and lookup under the controller: frequencies of thousands of texts against the exact
    distribution. A right engine fails this with a chance below 1e-8; seeds and costs are fixed."""
    names = ("draft_model", "dflash2", "eagle3 tree", "prompt_lookup")
    # Small batches, so that lengths follow from what came of other sequences.
    made = generate(names, 300, rule, knowing(names, "cheap"), batch=24)
    for name, by_sampling in made.items():
        assert chi_square(by_sampling) > 1e-9, name
        drafted = {r.num_draft_tokens for group in by_sampling.values() for one in group for r in one.rounds}
        assert len(drafted) > 1, name
    assert set(BUILD) >= set(names) and len(SAMPLINGS) == 3 and len(PROMPT) > 1
