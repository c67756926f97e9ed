"""Temperature, top-k and top-p by hand and against transformers; picking a token from a uniform."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from drafters.sampling import UniformDraw, distribution, draw_siblings, pick, round_uniforms


def logits_of(*probs: float) -> Tensor:
    """Logits whose softmax is ``probs``."""
    return torch.tensor([probs], dtype=torch.float64).log()


def one_row(logits: Tensor, temperature: float, top_k: int, top_p: float) -> list[float]:
    """The slow twin: one row in plain Python, token by token."""
    scores: list[float] = logits.tolist()
    best = max(range(len(scores)), key=lambda token: (scores[token], -token))
    if temperature == 0:
        return [1.0 if token == best else 0.0 for token in range(len(scores))]
    weights = [math.exp((score - scores[best]) / temperature) for score in scores]
    if 0 < top_k < len(scores):
        kth = sorted(scores, reverse=True)[top_k - 1]
        weights = [weight if score >= kth else 0.0 for weight, score in zip(weights, scores, strict=True)]
    if top_p < 1:
        total, mass, kept = math.fsum(weights), 0.0, set()
        for token in sorted(range(len(scores)), key=lambda token: (-weights[token], token)):
            if mass < top_p * total:
                kept.add(token)
            mass += weights[token]
        weights = [weight if token in kept else 0.0 for token, weight in enumerate(weights)]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


@pytest.mark.parametrize(
    ("top_k", "top_p", "wanted"),
    [
        (0, 1.0, (0.4, 0.3, 0.2, 0.1)),
        (2, 1.0, (4 / 7, 3 / 7, 0, 0)),
        (0, 0.65, (4 / 7, 3 / 7, 0, 0)),
        (0, 0.75, (4 / 9, 3 / 9, 2 / 9, 0)),
        (0, 0.01, (1, 0, 0, 0)),
        (3, 0.75, (4 / 7, 3 / 7, 0, 0)),  # top-k first: of .9 left, .7 are .78
        (9, 1.0, (0.4, 0.3, 0.2, 0.1)),
    ],
)
def test_filters_keep_the_most_probable_tokens(top_k: int, top_p: float, wanted: tuple[float, ...]) -> None:
    """Of (.4 .3 .2 .1) top-k keeps the first so many, then top-p the fewest that reach its share of the rest."""
    assert distribution(logits_of(0.4, 0.3, 0.2, 0.1), 1.0, top_k, top_p)[0].tolist() == pytest.approx(wanted)


def test_temperature_two_takes_the_square_root() -> None:
    """At temperature 2 the odds 16 : 1 become 4 : 1, before any filter."""
    assert distribution(logits_of(16 / 17, 1 / 17), 2.0)[0].tolist() == pytest.approx([0.8, 0.2])
    assert distribution(logits_of(16 / 17, 1 / 17), 2.0, top_p=0.9)[0].tolist() == pytest.approx([0.8, 0.2])


def test_temperature_zero_takes_the_lowest_of_equal_ids() -> None:
    """Greedy is one-hot at the lowest id of the largest logit, whatever the filters say."""
    assert distribution(torch.tensor([[1.0, 5.0, 5.0]]), 0.0, 2, 0.5).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("temperature", [1e-50, 1e-45, 1e-30, 1e-6])
def test_tiny_temperature_ends_in_the_argmax(temperature: float) -> None:
    """A temperature near 0 gives the argmax and never NaN, in float32 as in float64."""
    for dtype in (torch.float32, torch.float64):
        logits = torch.tensor([[-3.0, 80.0, 79.0]], dtype=dtype)
        assert distribution(logits, temperature).tolist() == [[0, 1, 0]]


def test_equal_tokens_at_the_nucleus_edge_stay_by_lowest_id() -> None:
    """Of four equal tokens a nucleus of one half keeps ids 0 and 1; top-k keeps all that equal its last one."""
    even = torch.zeros(1, 4, dtype=torch.float64)
    assert distribution(even, top_p=0.5).tolist() == [[0.5, 0.5, 0, 0]]
    assert distribution(even, top_k=2).tolist() == [[0.25] * 4]


def test_masked_tokens_never_come_back() -> None:
    """A logit of -inf stays at probability 0 under every filter, also when fewer tokens are left than top-k keeps."""
    logits = torch.tensor([[0.0, -math.inf, 0.0, -math.inf]])
    for top_k, top_p in ((0, 1.0), (3, 1.0), (0, 0.9), (3, 0.9)):
        assert distribution(logits, 1.0, top_k, top_p).tolist() == [[0.5, 0, 0.5, 0]]


def test_rows_have_their_own_parameters() -> None:
    """A batch with parameters row by row gives, row by row, what the slow twin gives, equal logits included."""
    generator = torch.Generator().manual_seed(1)
    heats, counts, masses = [0.0, 0.5, 1.0, 1.7] * 9, [0, 1, 3, 50, 7] * 7 + [0], [1.0, 0.3, 0.9] * 12
    logits = (torch.randn(36, 40, generator=generator, dtype=torch.float64) * 4).round()  # round: many ties
    got = distribution(logits, heats, counts, masses)
    for row in range(36):
        wanted = one_row(logits[row], heats[row], counts[row], masses[row])
        assert got[row].tolist() == pytest.approx(wanted, abs=1e-14)  # rounding of forty-term sums
        alone = distribution(logits[row : row + 1], heats[row], counts[row], masses[row])
        assert torch.equal(got[row], alone[0])


def test_flat_and_peaked_rows_share_a_batch() -> None:
    """Half of 4,096 equal tokens is a nucleus of 2,048, next to a row whose nucleus is one token."""
    flat = torch.zeros(2, 4096, dtype=torch.float64)
    flat[1, 5] = 20.0
    first, second = distribution(flat, top_p=0.5)
    assert first.nonzero().squeeze(1).tolist() == list(range(2048))
    assert second.nonzero().squeeze(1).tolist() == [5]


@pytest.mark.parametrize("top_p", [1e-9, 0.5, 0.99, 0.999999, 1 - 1e-7])
def test_nucleus_of_a_large_vocabulary_is_that_of_a_full_sort(top_p: float) -> None:
    """Over 30,000 tokens with a long tail, narrow and almost complete nuclei keep what the slow twin keeps, and a row
    gets the same bits alone as next to flatter ones.
    """
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(3, 30_000, generator=generator, dtype=torch.float64) * torch.tensor([[4.0], [1.0], [8.0]])
    got = distribution(logits, top_p=top_p)
    for row in range(3):
        wanted = torch.tensor(one_row(logits[row], 1.0, 0, top_p), dtype=torch.float64)
        assert torch.equal(got[row], distribution(logits[row : row + 1], top_p=top_p)[0])
        assert torch.equal(got[row] > 0, wanted > 0)


def test_filters_agree_with_transformers() -> None:
    """On logits without ties the result is what the warpers of transformers give, applied in its order."""
    warpers = pytest.importorskip("transformers.generation.logits_process")
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(20, 60, generator=generator, dtype=torch.float64) * 3
    for temperature, top_k, top_p in ((0.7, 10, 0.9), (1.0, 60, 0.5), (1.3, 5, 0.99), (2.0, 1, 0.1)):
        scores = warpers.TemperatureLogitsWarper(temperature)(None, logits)
        scores = warpers.TopKLogitsWarper(top_k)(None, scores)
        scores = warpers.TopPLogitsWarper(top_p)(None, scores)
        wanted = torch.softmax(scores, dim=-1)
        # The two sum in another order, so probabilities may differ by rounding, never in which tokens stay.
        got = distribution(logits, temperature, top_k, top_p)
        assert torch.equal(got > 0, wanted > 0)
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=0)


def test_bfloat16_logits_give_float32_and_float64_stays() -> None:
    """Half-precision logits are widened before the softmax; float64 is kept for exact tests."""
    assert distribution(torch.zeros(1, 4, dtype=torch.bfloat16)).dtype == torch.float32
    assert distribution(torch.zeros(1, 4, dtype=torch.float64), 0.0).dtype == torch.float64
    assert distribution(torch.zeros(0, 4)).shape == (0, 4)


def test_logits_are_left_as_they_were() -> None:
    """The caller's logits are not written to by any filter."""
    logits = torch.tensor([[3.0, 2.0, 1.0]])
    distribution(logits, 0.5, 1, 0.5)
    assert logits.tolist() == [[3, 2, 1]]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "message"),
    [
        (-1.0, 0, 1.0, "temperature -1.0"),
        (math.nan, 0, 1.0, "temperature nan"),
        (math.inf, 0, 1.0, "temperature inf"),
        (1.0, -1, 1.0, "top_k -1"),
        (1.0, 0, 0.0, "top_p 0.0"),
        (1.0, 0, 1.1, "top_p 1.1"),
    ],
)
def test_parameters_out_of_range_are_refused(temperature: float, top_k: int, top_p: float, message: str) -> None:
    """The error names what was given."""
    with pytest.raises(ValueError, match=message):
        distribution(torch.zeros(1, 3), temperature, top_k, top_p)


@pytest.mark.parametrize("bad", [[-math.inf, -math.inf], [math.nan, 0.0], [math.inf, 0.0]])
def test_row_without_a_distribution_is_refused(bad: list[float]) -> None:
    """A row that masks every token, or holds NaN or infinity, is named instead of sampled from."""
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="row 1"):
            distribution(torch.tensor([[0.0, 0.0], bad]), temperature)


def test_wrong_number_of_parameters_is_refused() -> None:
    """Three rows with two temperatures are an error."""
    with pytest.raises(ValueError, match="2 values of temperature given for 3 rows"):
        distribution(torch.zeros(3, 2), [1.0, 1.0])


# --- picking -------------------------------------------------------------------------------------------------------


def test_pick_inverts_the_cumulative_sum() -> None:
    """Of (.25 .5 0 .25) uniforms below .25 give 0, below .75 give 1, the rest 3; token 2 never comes."""
    uniforms = torch.tensor([0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53], dtype=torch.float64)
    weights = torch.tensor([[0.25, 0.5, 0.0, 0.25]]).expand(6, 4)
    assert pick(weights, uniforms).tolist() == [0, 0, 1, 1, 3, 3]


def test_pick_ends_on_the_last_token_with_mass() -> None:
    """The largest uniform gives the last token with mass, never an id past it, though the sum is not exactly 1."""
    largest = torch.tensor([1 - 2**-53], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        weights = torch.rand(1, 9, generator=generator, dtype=torch.float64) * 1.7
        weights[:, 6:] = 0.0
        assert pick(weights, largest).tolist() == [5]


def test_row_without_mass_gives_no_token() -> None:
    """`pick` marks such a row with -1 and `UniformDraw` refuses it."""
    assert pick(torch.zeros(1, 3), torch.tensor([0.5])).tolist() == [-1]
    with pytest.raises(ValueError, match="without mass"):
        UniformDraw(iter([0.5])).choose(torch.zeros(3))


def test_round_takes_one_uniform_more_than_the_draft_is_long() -> None:
    """Whatever the outcome of a round, the generator moves on by the same count, so the next round's are the same."""
    one, other = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    first = round_uniforms(one, 3) + round_uniforms(one, 1)
    assert len(first) == 6
    assert first == round_uniforms(other, 5)
    assert all(0 <= value < 1 for value in first)


def test_siblings_are_distinct_and_come_with_their_own_rows() -> None:
    """From (.5 .25 .25 0), token 0 first: then the rest is (0 .5 .5 0), and after token 1 only token 2 is left."""
    tokens, rows = draw_siblings(torch.tensor([0.5, 0.25, 0.25, 0.0]), 5, UniformDraw(iter([0.1, 0.1, 0.1])))
    assert tokens == (0, 1, 2)
    assert rows.tolist() == [[0.5, 0.25, 0.25, 0], [0, 0.5, 0.5, 0], [0, 0, 1, 0]]
