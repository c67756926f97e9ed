"""The claims as plans: every command line is one that its stage takes, and everything it reads is made before."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import pytest

from drafters import reference
from drafters.claims import command
from drafters.claims.catalogue import CLAIMS
from drafters.claims.recipes import Recipes
from drafters.claims.scale import Scale, Setting, load_scale
from drafters.claims.stages import Place, Stage, in_order
from drafters.claims.store import Store
from drafters.claims.words import LANGUAGES, words
from drafters.training.batches import parse_mix
from drafters.training.methods import METHODS
from drafters.training.stage import StageError
from drafters.training.train_inputs import method_settings

DRAFTERS = ("medusa", "mtp", "eagle3", "dflash", "dflash2")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store in an empty folder, with files in the places of all shipped models."""
    shipped = tmp_path / "shipped"
    for name in (
        "ref-koen",
        "draft-model",
        *(f"{family}-{one}" for family in ("public", "adapted") for one in DRAFTERS),
    ):
        (shipped / name).mkdir(parents=True)
        (shipped / name / "config.json").write_text("{}", "utf-8")
        (shipped / name / "model.safetensors").write_bytes(name.encode())
    (shipped / "ngram").mkdir()
    (shipped / "ngram" / "corpus.txt").write_text("1 2\n", "utf-8")
    monkeypatch.setenv(reference.ELSEWHERE, str(shipped))
    return Store(tmp_path / "out")


def recipes(scale: str = "quick") -> Recipes:
    """At a committed scale."""
    return Recipes(Setting(load_scale(scale), Path("workloads").resolve()))


def parsed(words: list[str]) -> argparse.Namespace:
    """A command line as the real stage reads it; ends the program where that does not."""
    parser = argparse.ArgumentParser()
    module = command if words[0] == "claims" else importlib.import_module(f"drafters.training.{words[0]}_stage")
    module.add_arguments(parser)
    return parser.parse_args(words[1:])


@pytest.mark.parametrize("number", sorted(CLAIMS))
def test_every_command_line_is_one_that_its_stage_takes(number: int, store: Store) -> None:
    """At both scales, settings of trainings included; what a stage reads comes before it, and no folder is used twice."""
    for scale in ("quick", "full"):
        stages = list(in_order(list(CLAIMS[number].plan(recipes(scale)).values())))
        assert len({store.place(stage) for stage in stages}) == len(stages)
        made: set[Stage] = set()
        for stage in stages:
            assert set(stage.needs) <= made
            made.add(stage)
            options = parsed(store.words(stage))
            assert options.out == store.place(stage)
            if stage.kind == "train" and options.method in METHODS:
                method_settings(options.method, options.set, options.seed)
            if stage.kind == "evaluate":
                names = [text.partition("=")[0] for text in options.drafter]
                assert len(set(names)) == len(names)
                assert all(path.is_file() for path in options.workload[0] if "workloads" in path.parts)


def test_there_are_fifteen_claims_with_words_in_both_languages(store: Store) -> None:
    """Titles, statements, advice for every verdict; the labels of both languages have the same keys."""
    assert list(CLAIMS) == list(range(1, 16))
    assert len({claim.name for claim in CLAIMS.values()}) == 15
    keys = []
    for lang in LANGUAGES:
        spoken = words(lang)
        for number in CLAIMS:
            own = spoken.claim(number)
            assert all(own[key] for key in ("title", "claim", "how"))
            assert set(own["advice"]) == {"holds", "does_not_hold", "cannot_be_said"}
        labels = [sorted(spoken.claim(number).get("labels", {})) for number in CLAIMS]
        keys.append([*labels, *(sorted(spoken.texts[name]) for name in ("names", "labels", "rules"))])
    assert keys[0] == keys[1]


def test_claims_share_stages(store: Store) -> None:
    """Four claims learn from the same Korean answers: one folder."""
    folders = set()
    for number in (4, 5, 7, 9):
        stages = in_order(list(CLAIMS[number].plan(recipes()).values()))
        folders |= {store.place(stage).name for stage in stages if stage.name == "korean-answers"}
    assert len(folders) == 1


def test_the_key_follows_content_and_inputs(store: Store, tmp_path: Path) -> None:
    """Another file at the same place, or another stage behind it, is other work; another name is not."""
    file = tmp_path / "a"
    file.write_text("1", "utf-8")
    first = Stage("x", ("corpus", "--documents", Place(file)))
    assert Stage("y", first.words).key == first.key
    behind = Stage("z", ("regenerate", "--corpus", Place(first)))
    other = Stage("x", ("corpus", "--documents", Place(file), "--seed", "2"))
    assert Stage("z", ("regenerate", "--corpus", Place(other))).key != behind.key
    second = tmp_path / "b"
    second.write_text("2", "utf-8")
    assert Stage("x", ("corpus", "--documents", Place(second))).key != first.key


def test_a_missing_drafter_is_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not shipped, and what is."""
    monkeypatch.setenv(reference.ELSEWHERE, str(tmp_path))
    missing = Stage("x", ("train", "--start", Place("ref:public-none")))
    with pytest.raises(StageError, match="no drafter ref:public-none"):
        Store(tmp_path / "out").run([missing], lambda line: None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [("none.yaml", "No such file"), ("text: [", "No such file"), ("empty", "holds no mapping"), ("odd", "seeds")],
)
def test_a_scale_that_is_none_is_refused(given: str, says: str, tmp_path: Path) -> None:
    """With what is allowed."""
    (tmp_path / "empty").write_text("", "utf-8")
    (tmp_path / "odd").write_text("seeds: 0\n", "utf-8")
    with pytest.raises(StageError, match=says):
        load_scale(str(tmp_path / given))


def test_seeds_of_the_command_line_are_those_of_the_scale() -> None:
    """In place of its own."""
    assert isinstance(load_scale("quick", 1), Scale)
    assert load_scale("quick", 1).seeds == 1


def test_every_mix_can_be_served(store: Store) -> None:
    """Each language group of a training's mix has documents in one of the corpora behind it."""
    for claim in CLAIMS.values():
        for stage in in_order(list(claim.plan(recipes()).values())):
            if stage.kind != "train" or "--mix" not in stage.words:
                continue
            behind = [each for each in in_order([stage]) if each.kind == "corpus"]
            given = [str(word.after) for each in behind for word in each.words if isinstance(word, Place)]
            groups = {after.removeprefix("=").split("/")[0].partition("+")[0] for after in given}
            assert set(parse_mix(str(stage.words[stage.words.index("--mix") + 1]))) <= groups
