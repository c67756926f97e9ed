"""The drafters that come with the package: each loads to the bit, fits the target and changes nothing of what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.families_input import ShippedDrafter, available, known, load_settings
from bench.families_reload import check
from drafters import mtp, reference
from drafters.checkpoint import Checkpoint
from drafters.engine.assembly import Assembled, assemble
from drafters.engine.config import EngineConfig
from drafters.engine.sequence import Request, RunningSequence
from drafters.engine.target import DecoderModel
from drafters.specs import parse_spec

TOKENS = 24
TASKS = (
    "다음 글을 그대로 옮겨 쓰세요.\n주간 업무 보고\n1. 물류팀 재고 조사를 완료하였습니다.\n2. 물류팀 재고 조사 결과를 보고하였습니다.",
    "Copy this code as it is.\ndef total(items):\n    return sum(items)\n\ndef mean(items):\n    return sum(items) / len(items)\n",
)


def engine(names: list[ShippedDrafter]) -> Assembled:
    """Return an engine with the target of the package and these drafters."""
    specs = {
        one.name: {
            "spec": parse_spec(
                {
                    "method": one.method,
                    "num_tokens": one.num_tokens,
                    "corpus" if one.method == "ngram" else "model": reference.drafter(one.name),
                }
            )
        }
        for one in names
    }
    config = EngineConfig.model_validate(
        {"model": reference.target(), "drafters": specs, "context_tokens": 256, "max_sequences": 1}
    )
    return assemble(config)


def written(made: Assembled, drafter: str | None) -> list[RunningSequence]:
    """Return the greedy answers to both tasks, each alone."""
    found = []
    for task in TASKS:
        prompt = tuple(made.text.encode(made.text.chat([{"role": "user", "content": task}])))
        found.append(made.runner.add(Request(prompt, TOKENS, drafter=drafter)))
        while made.runner.busy:
            made.runner.step()
    return found


def assert_lossless(names: list[ShippedDrafter]) -> dict[str, int]:
    """Check that each drafter leaves every token as it is, and return how many drafted tokens were accepted of each."""
    made = engine(names)
    plain = [sequence.output for sequence in written(made, None)]
    assert all(len(tokens) == TOKENS for tokens in plain)
    accepted = {}
    for one in names:
        answers = written(made, one.name)
        assert [sequence.output for sequence in answers] == plain, one.name
        rounds = [turn for sequence in answers for turn in sequence.rounds]
        assert sum(turn.num_draft_tokens for turn in rounds) > 0, one.name
        accepted[one.name] = sum(turn.num_accepted_tokens for turn in rounds)
    return accepted


def test_a_fresh_drafter_of_the_target_passes_the_same_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrained weights reload to the bit, logits among what is compared, and cost no token, accepted or not."""
    (tmp_path / reference.TARGET).symlink_to(reference.target())
    model = DecoderModel.load(reference.target(), torch.float32)
    mtp.untrained(model).save(tmp_path / "public-mtp")
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path))
    (one,) = available(reference.drafters(), load_settings())
    told = check(one)
    assert told.same
    assert (told.n_tokens, told.n_logits) == (3, 3)
    assert_lossless([one])


def test_a_checkpoint_that_comes_back_otherwise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One weight moved by a part in a million between two loads is no longer the same."""
    (tmp_path / reference.TARGET).symlink_to(reference.target())
    model = DecoderModel.load(reference.target(), torch.float32)
    mtp.untrained(model).save(tmp_path / "public-mtp")
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path))
    load = Checkpoint.load

    def spoilt(folder: Path, prefix: str = "") -> object:
        made = load(folder, prefix)
        if folder.parent != tmp_path:
            next(iter(made.tensors.values())).mul_(1 + 1e-6)
        return made

    monkeypatch.setattr(Checkpoint, "load", spoilt)
    (one,) = available(reference.drafters(), load_settings())
    told = check(one)
    assert (told.twice, told.saved, told.same) == (True, False, False)


def shipped() -> list[ShippedDrafter]:
    """Return the drafters of the package that the settings know."""
    names = set(reference.drafters())
    return [one for one in known(load_settings()) if one.name in names]


def test_every_drafter_of_the_settings_is_shipped_and_no_other() -> None:
    """Both families, the draft model and the table: none is missing, and nothing is there that the benchmark would not
    measure."""
    assert {one.name for one in known(load_settings())} == set(reference.drafters())
    assert len(shipped()) == 12


def test_every_shipped_checkpoint_reloads_to_the_bit() -> None:
    """Loaded twice, saved and loaded again: all products are equal, the logits among them."""
    found = [check(one) for one in shipped()]
    assert [told.name for told in found if not told.same] == []


def test_every_shipped_drafter_is_lossless_and_accepted() -> None:
    """24 greedy tokens of a Korean and an English task to copy are those without a drafter, some of them drafted."""
    accepted = assert_lossless(shipped())
    assert [name for name, count in accepted.items() if not count] == []
