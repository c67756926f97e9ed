"""The whole chain on a tiny target: from documents to a report, killed twice on the way, and refused where it must be."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafters.training import adapt_stage
from drafters.training.adapt_plan import links
from drafters.training.chain_record import ChainRecord, check_asked
from drafters.training.site import load_site
from drafters.training.stage import StageError, digest
from tests.drafters.training.sites import write_site, write_start, write_tiny_target

LONGEST_S = 600.0
STAGES = ["01-corpus", "02-regenerate", "03-train", "04-evaluate", "05-compare"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a drafter to start from and a site's file."""
    folder = tmp_path_factory.mktemp("site")
    write_start(folder / "start", write_tiny_target(folder / "target"))
    write_site(folder, drafter={"method": "medusa", "start": "start", "num_tokens": 2})
    return folder


def adapt(place: Path, out: str) -> subprocess.Popen[str]:
    """Start the chain in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "drafters.cli", "adapt", str(place / "site.yaml"), "--out", str(place / out)],
        stderr=(place / f"{out}.log").open("a"),
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def ended(child: subprocess.Popen[str], place: Path, out: str) -> dict[str, Any]:
    """Wait for the chain's end; return what it wrote."""
    assert child.wait(LONGEST_S) == 0, (place / f"{out}.log").read_text("utf-8")[-3000:]
    found: dict[str, Any] = json.loads((place / out / "adapt.json").read_text("utf-8"))
    return found


@contextlib.contextmanager
def whole(child: subprocess.Popen[str]) -> Iterator[None]:
    """Leave no process behind, whatever a test finds."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def until(child: subprocess.Popen[str], file: Path, lines: int) -> None:
    """Wait until a stage has written so many lines."""
    end = time.monotonic() + LONGEST_S
    while not file.exists() or file.read_text("utf-8", errors="replace").count("\n") < lines:
        assert child.poll() is None, "the chain ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.02)


def of_the_work(out: Path) -> dict[str, str]:
    """Hashes of what the stages hand on."""
    files = ("01-corpus/conversations.jsonl", "02-regenerate/examples.jsonl", "03-train/checkpoint")
    return {file: digest(out / file) for file in files}


@pytest.fixture(scope="module")
def uninterrupted(place: Path) -> dict[str, Any]:
    """The result of a chain that nothing happened to."""
    child = adapt(place, "plain")
    with whole(child):
        return ended(child, place, "plain")


def test_one_command_leads_from_documents_to_a_report(place: Path, uninterrupted: dict[str, Any]) -> None:
    """Every stage has its folder, its time and its hash; baseline, before and after ran on the same steps."""
    found = uninterrupted

    assert [stage["name"] for stage in found["stages"]] == STAGES
    assert all(stage["seconds"] > 0 and stage["starts"] == 1 for stage in found["stages"])
    assert found["measured"]["arms"] == ["baseline", "before", "after"]
    pooled = found["measured"]["acceptance"][0]
    assert (pooled["workload"], pooled["language"], pooled["tasks"]) == (None, None, 6)
    assert found["measured"]["outputs"] == {arm: {"steps": 6, "identical": 6} for arm in ("before", "after")}
    assert found["target"]["sha256"] == digest(place / "target")
    assert (place / "plain/04-evaluate/run/report.html").is_file()
    assert (place / "plain/05-compare/compare.txt").read_text("utf-8")


def test_killed_twice_the_chain_ends_where_an_uninterrupted_one_does(
    place: Path, uninterrupted: dict[str, Any]
) -> None:
    """Killed with its stage while answers are written, then alone while it trains: corpus, answers, weights and
    acceptance are those of the chain that ran through."""
    first = adapt(place, "killed")
    with whole(first):
        until(first, place / "killed/02-regenerate/partial.jsonl", 4)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()

    second = adapt(place, "killed")
    with whole(second):
        until(second, place / "killed/03-train/log.jsonl", 6)
        os.kill(second.pid, signal.SIGKILL)  # its stage notices, ends, and the next chain waits for that
        second.wait()
        third = adapt(place, "killed")
        with whole(third):
            found = ended(third, place, "killed")

    starts = {stage["name"]: stage["starts"] for stage in found["stages"]}
    assert starts == {"01-corpus": 1, "02-regenerate": 2, "03-train": 2, "04-evaluate": 1, "05-compare": 1}
    assert of_the_work(place / "killed") == of_the_work(place / "plain")
    assert found["measured"]["acceptance"] == uninterrupted["measured"]["acceptance"]


def begun(place: Path, out: Path) -> Path:
    """A site's copy, with a chain whose first two stages are recorded as begun."""
    shutil.copytree(place, out, ignore=shutil.ignore_patterns("plain*", "killed*"))
    loaded = load_site(out / "site.yaml")
    chain = out / "chain"
    for link in links(loaded, chain)[:2]:
        link.folder.mkdir(parents=True)
        (link.folder / "request.json").write_text("{}", "utf-8")
        record = ChainRecord.read(chain) if (chain / "chain.json").exists() else ChainRecord(chain / "chain.json", {})
        record.begin(link.name, link.asked(chain))
    return out / "site.yaml"


def asked_again(site: Path) -> None:
    """Check the site's file against what is begun."""
    chain = site.parent / "chain"
    check_asked(ChainRecord.read(chain), links(load_site(site), chain), chain, site)


def changed(site: Path, old: str, new: str) -> Path:
    """The file with a text replaced, which must be there."""
    text = site.read_text("utf-8")
    assert old in text
    site.write_text(text.replace(old, new), "utf-8")
    return site


def test_a_changed_file_is_refused_where_the_stage_is_begun(place: Path, tmp_path: Path) -> None:
    """The message says which stage, what it was, what it is now and what to do."""
    site = changed(begun(place, tmp_path / "copy"), "max_tokens: 16", "max_tokens: 24")

    with pytest.raises(StageError, match=r"asks 02-regenerate .* was --max-tokens 16, now --max-tokens 24.*remove"):
        asked_again(site)


def test_a_file_changed_for_later_stages_goes_on(place: Path, tmp_path: Path) -> None:
    """What is not begun yet may still be changed."""
    asked_again(changed(begun(place, tmp_path / "copy"), "tokens: 60000", "tokens: 50000"))


def test_a_removed_stage_is_asked_anew(place: Path, tmp_path: Path) -> None:
    """Once its folder is gone, a stage may be another one."""
    site = changed(begun(place, tmp_path / "copy"), "max_tokens: 16", "max_tokens: 24")
    shutil.rmtree(site.parent / "chain/02-regenerate")

    asked_again(site)


def test_a_moved_folder_is_the_same_chain(place: Path, tmp_path: Path) -> None:
    """Options are remembered with paths within the chain's folder told from it."""
    site = begun(place, tmp_path / "copy")
    chain = site.parent / "chain"
    moved = chain.rename(tmp_path / "elsewhere")

    check_asked(ChainRecord.read(moved), links(load_site(site), moved), moved, site)


def refused(site: Path, out: Path) -> str:
    """What the stage says to bad input, in this process."""
    parser = argparse.ArgumentParser()
    adapt_stage.add_arguments(parser)
    with pytest.raises(StageError) as caught:
        adapt_stage.run(parser.parse_args([str(site), "--out", str(out)]), lambda line: None)
    return str(caught.value)


def test_a_wrong_setting_is_found_before_the_long_stages(place: Path, tmp_path: Path) -> None:
    """A setting that the method does not have is refused with its line; no folder is made."""
    site = write_site(
        tmp_path, target={"model": str(place / "target")}, drafter={"method": "medusa", "settings": {"headz": 3}}
    )

    said = refused(site, tmp_path / "out")

    assert said.startswith(f"{site}:")
    assert "headz" in said
    assert not (tmp_path / "out").exists()


def test_an_option_that_a_stage_does_not_have_is_found_before_the_first_one(place: Path, tmp_path: Path) -> None:
    """Every stage's command line is tried before anything runs."""
    site = write_site(
        tmp_path, target={"model": str(place / "target")}, train={"tokens": 100, "options": {"no-such-thing": 1}}
    )

    assert "'drafters train' says: unrecognized arguments: --no-such-thing" in refused(site, tmp_path / "out")


def test_a_folder_of_something_else_is_refused(place: Path, tmp_path: Path) -> None:
    """Nothing is mixed into a folder that holds other files."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine", "utf-8")

    assert "holds files that are not of a chain" in refused(place / "site.yaml", tmp_path / "out")


def test_the_plan_shows_every_command_line_and_does_nothing(place: Path, tmp_path: Path) -> None:
    """What the file leaves open as a comment, then one line a stage; no folder is made."""
    parser = argparse.ArgumentParser()
    adapt_stage.add_arguments(parser)
    options = parser.parse_args([str(place / "site.yaml"), "--out", str(tmp_path / "out"), "--plan"])
    note, *said = adapt_stage.plan(options)

    assert note.startswith("# train.mix: none, as not all sources say their language, or all hold one")
    assert len(said) == len(STAGES)
    assert " train --method medusa " in said[2]
    assert not (tmp_path / "out").exists()


def test_the_plan_can_be_pasted(place: Path, tmp_path: Path) -> None:
    """It goes to standard output, a command a line and nothing before it but comments of a shell."""
    words = ["adapt", str(place / "site.yaml"), "--out", str(tmp_path / "out"), "--plan"]
    done = subprocess.run([sys.executable, "-m", "drafters.cli", *words], capture_output=True, text=True, check=False)

    lines = [line for line in done.stdout.splitlines() if not line.startswith("# ")]
    assert (done.returncode, done.stderr, len(lines)) == (0, "", len(STAGES))
    assert all(line.startswith(f"{sys.executable} -m ") for line in lines)


def test_a_stage_that_took_its_folder_back_may_be_asked_anew(place: Path, tmp_path: Path) -> None:
    """A refused corpus leaves an empty folder: the corrected file is no other work."""
    site = begun(place, tmp_path / "copy")
    chain = site.parent / "chain"
    record = ChainRecord.read(chain)
    (chain / "02-regenerate/request.json").unlink()
    record.forget_unbegun()

    assert list(record.stages) == list(ChainRecord.read(chain).stages) == ["01-corpus"]
    asked_again(changed(site, "max_tokens: 16", "max_tokens: 24"))


def test_a_stage_that_is_done_takes_no_more_time(tmp_path: Path) -> None:
    """Being asked again and answering that all is done counts neither as a start nor as work."""
    record = ChainRecord(tmp_path / "chain.json", {})
    for seconds in (4.0, 9.0):
        record.begin("01-corpus", [])
        record.remember("01-corpus", seconds)
    record.done("01-corpus")
    record.begin("01-corpus", [])
    record.remember("01-corpus", 99.0)

    assert (record.starts("01-corpus"), record.seconds("01-corpus")) == (2, 9.0)


def test_what_is_left_is_told_from_the_stages_that_are_over(place: Path, tmp_path: Path) -> None:
    """Corpus and answers, 31 parts of the time, took 62 seconds: training, 45 parts, measuring, 20, and comparing, 1, take
    about 132. Before that, and where a stage takes longer than that, nothing is claimed."""
    chain = links(load_site(place / "site.yaml"), tmp_path)
    record = ChainRecord(tmp_path / "chain.json", {})
    for link, seconds in zip(chain, (2.0, 60.0), strict=False):
        record.begin(link.name, [])
        record.remember(link.name, seconds)

    assert adapt_stage.left(record, chain, 1) == "1:02 so far, what is left is not known"
    assert adapt_stage.left(record, chain, 2) == "1:02 so far, roughly 2:12 left"
    record.begin(chain[2].name, [])
    record.remember(chain[2].name, 500.0)
    assert adapt_stage.left(record, chain, 2).endswith("what is left is not known")
