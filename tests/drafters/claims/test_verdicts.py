"""Each of the three verdicts, from figures made by hand, and the rules of the claims on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafters.claims import claim_data, claim_models, claim_precision, claim_shipped
from drafters.claims.bootstrap import Sample
from drafters.claims.catalogue import CLAIMS
from drafters.claims.claim import Found, Judged
from drafters.claims.counts import Row
from drafters.claims.recipes import CODE, ENGLISH, ESSAY, OFFICE
from drafters.claims.scale import Setting, load_scale
from drafters.claims.store import Store
from drafters.claims.verdicts import Verdict, above, below, exactly, verdict_of, within
from tests.drafters.claims.rows import row, rows


class Invented(Found):
    """What a claim would have found, by the name of the measurement."""

    samples: dict[str, Sequence[Row]]

    def sample(self, name: str, form: str = "plain") -> Sample:
        """The rows given for the measurement."""
        return Sample(self.samples[name])


def judged(number: int, samples: dict[str, Sequence[Row]], tmp_path: Path) -> Judged:
    """What a claim makes of these rows; its plan is named by them alone."""
    setting = Setting(load_scale("quick"), tmp_path)
    found = Invented(dict.fromkeys(samples), Store(tmp_path), setting)  # type: ignore[arg-type]
    object.__setattr__(found, "samples", samples)
    return CLAIMS[number].judge(found)


def of(number: int, samples: dict[str, Sequence[Row]], tmp_path: Path) -> Verdict:
    """The verdict on these rows."""
    return verdict_of(judged(number, samples, tmp_path).parts)


def test_limits_are_kept_by_the_whole_interval() -> None:
    """Above, below or within with all of it; where the limit lies inside it, nothing is decided."""
    wide = Sample([row("a", task, accepted=2 * task) for task in range(1, 11)]).acceptance("a")
    low, high = wide.interval or (0, 0)
    middle = (low + high) / 2
    assert [above("k", wide, limit).passed for limit in (low - 0.1, middle, high + 0.1)] == [True, None, False]
    assert [below("k", wide, limit).passed for limit in (low - 0.1, middle, high + 0.1)] == [False, None, True]
    ends = ((low - 0.1, high + 0.1), (low + 0.1, high), (high + 0.1, high + 1))
    assert [within("k", wide, *each).passed for each in ends] == [True, None, False]
    assert [exactly("k", *each).passed for each in ((3, 3), (2, 3), (0, 0))] == [True, False, None]


def test_a_verdict_needs_every_part_and_one_no_decides() -> None:
    """Yes and yes holds, yes and no does not, yes and open says nothing, and neither does nothing at all."""
    yes, no = exactly("k", 1, 1), exactly("k", 0, 1)
    undecided = replace(yes, passed=None)
    assert [verdict_of(parts) for parts in ([yes, yes], [yes, no], [yes, undecided], [])] == [
        "holds", "does_not_hold", "cannot_be_said", "cannot_be_said",
    ]  # fmt: skip


def test_claim_1_by_language(tmp_path: Path) -> None:
    """Korean 1.5 against 2 and 3 holds; one method at 4 in Korean does not; three tasks say nothing."""

    def measured(korean: dict[str, int], tasks: int = 8) -> dict[str, Sequence[Row]]:
        made = []
        for method in ("medusa", "mtp", "eagle3", "dflash", "dflash2"):
            label = f"public-{method}"
            made += rows(label, korean.get(method, 5), tasks, workload=OFFICE)
            made += rows(label, 10, tasks, workload=ENGLISH, language="en") + rows(label, 20, tasks, workload=CODE)
        return {"plain": made, "rtn4": made}

    assert of(1, measured({}), tmp_path) == "holds"
    assert of(1, measured({"mtp": 30}), tmp_path) == "does_not_hold"
    assert of(1, measured({}, 3), tmp_path) == "cannot_be_said"


@pytest.mark.parametrize(
    ("office", "english", "output", "verdict"),
    [
        (0.7, 1.0, "same", "holds"),
        (0.8, 1.0, "same", "does_not_hold"),
        (0.7, 1.1, "same", "does_not_hold"),
        (0.7, 1.0, "other", "does_not_hold"),
    ],
)
def test_claim_2_asks_for_a_quarter_for_the_rest_unchanged_and_for_equal_outputs(
    office: float, english: float, output: str, verdict: str, tmp_path: Path
) -> None:
    """Each of the three can fail it."""
    made = []
    for workload, ratio in ((OFFICE, office), (ENGLISH, english), (CODE, 1.0)):
        made += rows("baseline", workload=workload, rounds=None)
        for method in ("dflash2", "mtp"):
            made += rows(f"public-{method}", workload=workload)
            made += rows(f"adapted-{method}", workload=workload, seconds=ratio, output=output)
    assert of(2, {"plain": made, "rtn4": made}, tmp_path) == verdict


def test_claim_3_compares_text_types(tmp_path: Path) -> None:
    """Twice as fast on office text, not at all on essays, where mtp is ahead of dflash; and with dflash ahead."""

    def measured(mtp: float) -> list[Row]:
        made = [*rows("baseline", workload=OFFICE), *rows("baseline", workload=ESSAY)]
        for method, essay in (("mtp", mtp), ("dflash", 1.0)):
            made += rows(f"adapted-{method}", workload=OFFICE, seconds=0.5)
            made += rows(f"adapted-{method}", workload=ESSAY, seconds=essay)
        return made

    assert of(3, {"plain": measured(0.8)}, tmp_path) == "holds"
    assert of(3, {"plain": measured(1.2)}, tmp_path) == "does_not_hold"


def test_claim_4_asks_what_four_bits_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 2 to 3 by both, at 4 bits 2 and 3 again: holds. With LoRA at 3 as well it does not."""
    monkeypatch.setattr(claim_precision, "_change", lambda found, base, way: [])

    def measured(lora: int) -> list[Row]:
        made = []
        for base in ("grid", "plain"):
            made += rows(base, 10)
            for way, deployed in (("lora", lora), ("full", 20), ("scaled", 20)):
                made += rows(f"{base}-{way}", 20) + rows(f"{base}-{way}-4bit", deployed)
        return made

    assert of(4, {"plain": measured(10)}, tmp_path) == "holds"
    assert of(4, {"plain": measured(20)}, tmp_path) == "does_not_hold"


def test_claim_6_sets_data_against_epochs(tmp_path: Path) -> None:
    """Three doublings of data win 0.6, as many tokens in epochs 0.1; and the other way round."""

    def measured(data: int, epochs: int) -> list[Row]:
        made = rows("before", 5)
        for place, share in enumerate(claim_data.SHARES):
            made += rows(f"data-{share:g}", 10 + data * place)
            made += rows(f"epochs-{share:g}", 10 + epochs * place) if place else []
        return made

    assert of(6, {"plain": measured(2, 0)}, tmp_path) == "holds"
    assert of(6, {"plain": measured(1, 3)}, tmp_path) == "does_not_hold"


@pytest.mark.parametrize(
    ("number", "lengths", "verdict", "workloads"),
    [
        (7, {"before": 5, "target": 12, "people": 10}, "holds", (OFFICE,)),
        (7, {"before": 5, "target": 8, "people": 10}, "does_not_hold", (OFFICE,)),
        (8, {"before": 5, "none": 100, "surrogate": 100, "label": 99.5}, "holds", ("personal",)),
        (8, {"before": 5, "none": 100, "surrogate": 100, "label": 98}, "does_not_hold", ("personal",)),
        (9, {"before": 10, "mixed": 10, "alone": 6}, "holds", (OFFICE, ENGLISH, CODE)),
        (9, {"before": 10, "mixed": 10, "alone": 12}, "does_not_hold", (OFFICE, ENGLISH, CODE)),
        (11, {"baseline": 0, "small": 5, "big": 8}, "does_not_hold", (OFFICE,)),
    ],
)
def test_claims_of_one_comparison(
    number: int, lengths: dict[str, Any], verdict: str, workloads: Sequence[str], tmp_path: Path
) -> None:
    """The sign of the difference, or its size, decides; claim 11 also asks for time, which here is the same: open becomes no
    once the bigger model is as fast."""
    made = [
        each
        for workload in workloads
        for label, accepted in lengths.items()
        for each in rows(label, accepted, workload=workload, seconds=0.9 if label == "big" else 1.0)
    ]
    assert of(number, {"plain": made}, tmp_path) == verdict


def test_claim_10_asks_what_of_the_gain_is_kept_elsewhere(tmp_path: Path) -> None:
    """A gain of 1 at home and of 0.2 elsewhere holds, of 0.8 does not."""

    def measured(foreign: int) -> list[Row]:
        made = []
        for office in claim_data.KINDS:
            made += rows("before", 10, workload=office)
            for kind in claim_data.KINDS:
                made += rows(kind, 20 if kind == office else foreign, workload=office)
        return made

    assert of(10, {"plain": measured(12)}, tmp_path) == "holds"
    found = judged(10, {"plain": measured(18)}, tmp_path)
    assert verdict_of(found.parts) == "does_not_hold"
    kept = next(figure for figure in found.figures if figure.key == "kept_share")
    assert kept.value == pytest.approx(0.8)


def test_claim_12_wants_less_acceptance_and_a_gain_where_text_is_copied(tmp_path: Path) -> None:
    """Both look-ups accept 1.5 against 2 and save a fifth of the time; a slower one fails it."""

    def measured(seconds: float) -> list[Row]:
        made = rows("baseline", rounds=None) + rows("adapted-mtp", 10)
        return made + rows("lookup", 5, seconds=seconds) + rows("ngram", 5, seconds=0.8)

    assert of(12, {"plain": measured(0.8)}, tmp_path) == "holds"
    assert of(12, {"plain": measured(1.1)}, tmp_path) == "does_not_hold"


def test_claim_13_wants_all_to_shrink_and_some_below_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From twice as fast to a tenth slower holds; staying a tenth faster does not."""
    monkeypatch.setattr(claim_shipped, "_predicted", lambda found, form, last, load: iter(()))

    def measured(last: float) -> list[Row]:
        made = []
        for load, seconds in ((1, 0.5), (4, 0.7), (16, 0.9), (32, last)):
            made += rows("baseline", concurrency=load) + rows("lookup", concurrency=load, seconds=seconds)
        return made

    assert of(13, {"plain": measured(1.1)}, tmp_path) == "holds"
    assert of(13, {"plain": measured(0.9)}, tmp_path) == "does_not_hold"


def test_claim_14_wants_the_old_useless_and_the_new_at_half(tmp_path: Path) -> None:
    """2 at home, 1.1 abroad, 1.8 once trained anew: holds; 1.9 abroad without a training does not."""

    def measured(abroad: int) -> dict[str, Sequence[Row]]:
        return {"own-plain": rows("old", 10), "other-plain": [*rows("old", abroad), *rows("new", 8)]}

    assert of(14, measured(1), tmp_path) == "holds"
    assert of(14, measured(9), tmp_path) == "does_not_hold"
    assert claim_models.CLAIMS[1].number == 14


@pytest.mark.parametrize(
    ("forced_taught", "forced", "own", "verdict"),
    [
        (9, 15, 15, "holds"),  # the metric rises, the acceptance does not, and its own lists win half a token
        (9, 25, 15, "does_not_hold"),  # forcing wins a whole token
        (5, 15, 15, "does_not_hold"),  # the metric is lower with it
        (9, 15, 5, "does_not_hold"),  # without a selector as much is accepted
    ],
)
def test_claim_5_sets_the_training_metric_against_the_acceptance(
    forced_taught: int, forced: int, own: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten positions seven teach it on its own lists; three seeds say the same."""
    monkeypatch.setattr(Invented, "folder", lambda self, name: tmp_path / name)
    for label, taught in (("own-lists", 7), ("forced", forced_taught)):
        for seed in (1, 2, 3):
            training = tmp_path / f"{label}-s{seed}"
            training.mkdir()
            line = {"kind": "step", "parts": {"taught": taught, "positions/1": 10}}
            (training / "log.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    made = rows("before", 0)
    for label, accepted in (("own-lists", own), ("forced", forced), ("no-selector", 10)):
        made += [each for seed in (1, 2, 3) for each in rows(label, accepted, seed=seed)]
    assert of(5, {"plain": made}, tmp_path) == verdict


@pytest.mark.parametrize(("first", "verdict"), [(4, "holds"), (9, "does_not_hold")])
def test_claim_15_sets_the_list_against_its_first_place(
    first: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten positions nine have the right token in the list: four of them, or all nine, in its first place."""
    monkeypatch.setattr(Invented, "folder", lambda self, name: tmp_path / name)
    monkeypatch.setattr(Store, "manifest", lambda self, stage: {})
    made: list[Row] = []
    names = [f"{family}-{language}" for family in ("public", "adapted") for language in ("ko", "en")]
    for name in names:
        (tmp_path / name).mkdir()
        lines = ["example,position,positions,first,listed,drafted,unary,selected,oracle"]
        lines += [f"e{number},{at},10,{first},9,10,5,6,9" for number in range(1, 9) for at in (1, 2)]
        (tmp_path / name / "candidates.csv").write_text("\n".join(lines) + "\n", "utf-8")
    for family in ("public", "adapted"):
        made += rows(f"{family}-dflash2", workload=OFFICE) + rows(f"{family}-dflash2", workload=ENGLISH, language="en")
    found = judged(15, {"plain": made, **dict.fromkeys(names, ())}, tmp_path)
    assert verdict_of(found.parts) == verdict
    walks = {each.key: each.value for each in found.figures if each.key.endswith("_walk")}
    assert walks == {"unary_walk": 2.0, "selector_walk": 2.2, "oracle_walk": 2.8}  # 1 + the shares at both positions
