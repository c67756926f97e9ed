"""Predicted beside measured break-evens."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.predict import compare, main, workload
from bench.predict_speed_up import Gain, summary
from tests.analysis.test_predicted import run_of

TOKENS = 181  # 180 tokens are whole rounds at one, two and three drafted tokens: 108, 96 and 90 rounds


def test_shorter_drafts_are_predicted_from_the_longest_alone(tmp_path: Path) -> None:
    """The known engine: within a tenth of what was measured, which itself is interpolated between loads of 4 and 8."""
    (one, two, three), speed_ups, tokens = compare(run_of(tmp_path / "run", lengths=(1, 2, 3), tokens=TOKENS))
    assert [item.num_tokens for item in (one, two, three)] == [1, 2, 3]
    assert [item.used for item in (one, two, three)] == [False, False, True]
    assert one.predicted == pytest.approx(7.40, rel=0.03)
    for item in (one, two, three):
        assert item.error == pytest.approx(0, abs=0.1)
    # a whole draft of three is one of two and the beginning of another, of which the model takes the usual 1.8 tokens
    assert [row[2:] for row in tokens] == [("1", "1.667", "1.667", "+0.0%"), ("2", "1.875", "1.800", "-4.0%")]
    assert {(item.num_tokens, item.used) for item in speed_ups} == {(1, False), (2, False), (3, True)}
    assert len({item.concurrency for item in speed_ups}) > 1
    assert all(item.error == pytest.approx(0, abs=0.05) for item in speed_ups)


def test_the_table_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row a draft length, with the error."""
    folder = run_of(tmp_path / "run", lengths=(1, 2, 3), tokens=TOKENS).path
    assert main([str(folder), "--markdown", str(tmp_path / "table.md")]) == 0
    out = capsys.readouterr().out
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == out
    assert out.count("\n\n") == 3
    assert "%" in out.splitlines()[2]


def test_a_run_of_one_draft_length_is_refused(tmp_path: Path) -> None:
    """At least three are compared."""
    with pytest.raises(SystemExit, match="3 draft lengths"):
        compare(run_of(tmp_path / "run"))


@pytest.mark.parametrize(("engine", "lengths"), [("builtin", [2, 4, 8]), ("llamacpp", [4, 6, 8])])
def test_the_workload_that_is_measured_has_three_fixed_lengths_and_finds_its_tasks(
    tmp_path: Path, engine: str, lengths: list[int]
) -> None:
    """Lengths at which the engine drafts anything; its tasks are named from anywhere."""
    source = tmp_path / "w.yaml"
    source.write_text(yaml.safe_dump({"name": "w", "tasks": "data/w.jsonl", "arms": [], "concurrency": [1]}))
    content = workload(engine, source, 8)
    assert content["arms"][0]["name"] == "baseline"
    assert [next(iter(arm["options"].values())) for arm in content["arms"][1:]] == lengths
    assert Path(content["tasks"]).is_absolute()
    assert content["engine"]["kind"] == engine


def test_vllm_is_started_for_each_length_and_for_all_that_ask_at_once() -> None:
    """One server an arm, that differs in its number of tokens alone; as many sequences as the highest concurrency."""
    content = workload("vllm", Path("workloads/coding-en.yaml"), 32)
    command = content["engine"]["launch"]["command"]
    assert command[command.index("--max-num-seqs") + 1] == "32"
    found = [arm["launch"]["speculative_config"] for arm in content["arms"][1:]]
    assert [item.pop("num_speculative_tokens") for item in found] == [2, 4, 8]
    assert found[0] == found[1] == found[2]
    assert Path(content["tasks"]).is_file()


def test_errors_are_summed_up_by_engine() -> None:
    """Errors of 10 and 20 %, one beyond the model; the side of a speed-up of 1.02 is no matter of chance but of luck."""
    found = [
        Gain("one", "it", 2, False, 1, 1.0, 2.0, 2.2),
        Gain("one", "it", 2, False, 4, 4.0, 0.8, 0.96),
        Gain("one", "it", 2, False, 8, 8.0, 1.02, 0.99),
        Gain("one", "it", 2, False, 16, 16.0, 0.9, None),
    ]
    assert list(summary(found)) == [("one", "it", "3", "10%", "20%", "2 of 2")]
