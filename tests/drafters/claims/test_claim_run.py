"""One claim from the command line to its pages, on a tiny target, through the engine in deployed form."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from drafters import cli, reference
from drafters.claims.recipes import CODE, ENGLISH, OFFICE
from drafters.mtp import untrained
from drafters.training.frozen import FrozenTarget
from reports import claims as pages
from tests.drafters.training.sites import sentence, write_tiny_target

SCALE = {
    "seeds": 1, "tasks": 5, "steps": 1, "max_tokens": 6, "repeats": 1, "together": 1, "loads": [1, 2], "methods": ["mtp"],
    "forms": ["plain"], "shipped": ["mtp"], "answers": 10, "tokens": 10, "threads": 1,
}  # fmt: skip
TASKS = 5
SPENT = ((("shared", 240.0), ("a", 60.0)), (("shared", 240.0), ("b", 60.0)))


def workloads(folder: Path) -> Path:
    """Three workloads of five tasks of one step: a reply in Korean."""
    folder.mkdir()
    for name in (OFFICE, ENGLISH, CODE):
        lines: list[object] = [{"prefix": "p", "system": "짧게 답합니다.", "tools": []}]
        for number in range(TASKS):
            step = {
                "kind": "reply", "language": "ko", "messages": [{"role": "user", "content": sentence(number)}],
                "recorded": {"role": "assistant", "content": sentence(40 + number)}, "tool_wait_s": 0.0, "max_tokens": 6,
            }  # fmt: skip
            lines.append(
                {"task": f"t{number}", "title": "t", "genre": "g", "language": "ko", "prefix": "p", "steps": [step]}
            )
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        content = {
            "name": name, "tasks": f"{name}.jsonl", "engine": {"kind": "builtin", "context_tokens": 512},
            "arms": [{"name": "baseline", "method": "none"}], "concurrency": [1], "warm_up": {"steps": 0},
        }  # fmt: skip
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), "utf-8")
    return folder


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with the names that are shipped."""
    folder = tmp_path_factory.mktemp("shipped")
    target = write_tiny_target(folder / "ref-koen")
    untrained(FrozenTarget.load(target), seed=7).save(folder / "adapted-mtp")
    (folder / "ngram").mkdir()
    (folder / "ngram" / "corpus.txt").write_text("5 6 7 8 9\n", "utf-8")
    return folder


def test_a_claim_is_run_judged_and_shown(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict follows the parts, raw counts add up to its figures, a second run starts nothing, and both pages say it."""
    monkeypatch.setenv(reference.ELSEWHERE, str(shipped))
    scale = tmp_path / "tiny.yaml"
    scale.write_text(yaml.safe_dump(SCALE), "utf-8")
    out = tmp_path / "out"
    words = [
        "claims",
        "run",
        "12",
        "--out",
        str(out),
        "--scale",
        str(scale),
        "--workloads",
        str(workloads(tmp_path / "w")),
    ]

    assert cli.run(words) == 0

    found = json.loads((out / "claims" / "12.json").read_text("utf-8"))
    assert found["verdict"] in ("holds", "does_not_hold", "cannot_be_said")
    assert {part["key"] for part in found["parts"]} == {"accepts_less", "worth_it"}
    data = {f"{name}.{end}" for name in (OFFICE, ENGLISH, CODE) for end in ("yaml", "jsonl")}
    assert set(found["files"]) == {"ref-koen", "ref:ngram", "ref:adapted-mtp", *data}
    assert all(str(tmp_path) not in stage["command"] or "w/" in stage["command"] for stage in found["stages"])
    with (out / "counts" / "12.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 3 * TASKS
    own = [row for row in rows if row["label"] == "adapted-mtp" and row["rounds"]]
    length = 1 + sum(int(row["accepted"]) for row in own) / sum(int(row["rounds"]) for row in own)
    shown = next(one for one in found["figures"] if one["key"] == "length" and ["method", "mtp"] in one["names"])
    assert shown["value"] == pytest.approx(length)
    times = (out / "times.jsonl").read_bytes()
    capsys.readouterr()
    assert cli.run(words) == 0
    assert (out / "times.jsonl").read_bytes() == times
    assert f"claim 12: {found['said']['en']['verdict']}" in capsys.readouterr().err

    assert pages.main([str(out), str(out / "report")]) == 0

    korean, english = ((out / "report" / f"claims.{lang}.html").read_text("utf-8") for lang in ("ko", "en"))
    for lang, page in (("ko", korean), ("en", english)):
        said = found["said"][lang]
        assert said["title"] in page
        assert said["advice"] in page
        assert "<svg" in page
        assert "drafters claims run 12" in page
        assert found["files"]["ref-koen"] in page
    assert "판정" in korean
    assert "판정" not in english
    assert (out / "report" / "counts" / "12.csv").read_bytes() == (out / "counts" / "12.csv").read_bytes()
    assert (out / "report" / "figures.csv").read_text("utf-8-sig").count("\n") == len(found["figures"]) + 1
    assert (
        "Scale tiny: 5 tasks a workload where times are compared (1 repeats), 5 where acceptance alone is read"
        in english
    )
    assert "Measured with the float32 target alone" in english

    # two claims that share a stage of four minutes and have one of one minute each: six minutes, and two of one verdict
    stages = [[{**found["stages"][0], "folder": name, "seconds": seconds} for name, seconds in own] for own in SPENT]
    twice = pages.render([{**found, "stages": own} for own in stages], "en")
    assert "shared ones once: 6 min" in twice
    assert f"(tiny): {found['said']['en']['verdict']} 2. " in twice
    unknown = pages.render([{**found, "stages": [{**found["stages"][0], "seconds": None}]}], "en")
    assert "shared ones once: – min" in unknown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["claims", "run", "16"], "allowed: numbers from 1 to 15, or all"),
        (["claims", "run", "all", "1"], "allowed: numbers from 1 to 15, or all"),
        (["claims", "run", "1", "--scale", "huge"], "--scale huge"),
        (["claims", "report", "/none"], "/none holds no claim that was judged"),
        (["claims", "documents", "--kind", "bakery=3"], "'bakery=3'; allowed"),
        (["claims", "documents"], "nothing asked for"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is allowed, before anything is done."""
    if words[1] != "report":
        words = [*words, "--out", str(tmp_path / "out")]
    assert cli.run(words) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
