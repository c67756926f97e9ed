"""The console script: exit codes, messages, and what it does not load."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drafters import cli


def drafters(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "drafters.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | more)


@pytest.mark.parametrize("stage", cli.STAGES)
def test_every_stage_says_what_it_does(stage: str) -> None:
    """The table's stages are modules of that name with everything the command line needs."""
    module = importlib.import_module(cli.ELSEWHERE.get(stage, f"drafters.training.{stage}_stage"))

    assert stage == module.NAME
    assert callable(module.run)
    assert callable(module.add_arguments)


def test_help_loads_no_torch() -> None:
    """The list of stages comes without any stage's packages."""
    code = (
        "import sys\nfrom drafters import cli\ntry:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "adapt" in done.stdout


def test_help_of_a_stage_shows_its_options() -> None:
    """A stage's own module describes its options."""
    done = drafters("quantize", "--help")

    assert done.returncode == 0
    assert "--scheme" in done.stdout


def test_bad_input_is_one_message_and_exit_2(tmp_path: Path) -> None:
    """No traceback: what is wrong and what to do."""
    done = drafters("quantize", "--model", str(tmp_path), "--scheme", "rtn4", "--out", str(tmp_path / "out"))

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path} lacks config.json")
    assert "Traceback" not in done.stderr


def test_an_unknown_stage_is_refused() -> None:
    """The stages that there are are listed."""
    done = drafters("trian")

    assert done.returncode == 2
    assert "regenerate" in done.stderr


STUCK = """
import sys, types
module = types.ModuleType("drafters.training.corpus_stage")
module.add_arguments = lambda parser: parser.add_argument("--out")
def run(options, say):
    {body}
module.run = run
sys.modules[module.__name__] = module
from drafters import cli
cli.main(["corpus", "--out", "my folder"])
"""
WAITS = 'say("at work"); import time; time.sleep(60)'


def stuck(**more: str) -> subprocess.Popen[str]:
    """A stage that has begun and waits."""
    child = subprocess.Popen(
        [sys.executable, "-c", STUCK.format(body=WAITS)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | more,
    )
    assert child.stderr is not None
    assert "at work" in child.stderr.readline()
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_to_continue(number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end with 130 and the command that goes on."""
    child = stuck()
    child.send_signal(number)
    _, said = child.communicate(timeout=20)

    assert child.returncode == 130
    assert "continue with: drafters corpus --out 'my folder'" in said


def test_a_stage_of_a_chain_ends_when_the_chain_is_gone() -> None:
    """The chain's end closes the stage's standard input: nobody writes the folder any longer."""
    child = stuck(**{cli.PARENT: "1"})
    assert child.stdin is not None
    child.stdin.close()
    child.stdin = None
    _, said = child.communicate(timeout=20)

    assert child.returncode == 130
    assert "continue with" not in said  # the chain says that, with its own command


def test_a_defect_shows_its_traceback() -> None:
    """What no one foresaw is exit code 1 with everything that helps to mend it."""
    done = subprocess.run(
        [sys.executable, "-c", STUCK.format(body="raise ZeroDivisionError")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_lines_carry_the_time() -> None:
    """Progress goes to standard error, each line with hours, minutes and seconds."""
    done = subprocess.run(
        [sys.executable, "-c", STUCK.format(body='say("here"); return 0')], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0
    assert done.stderr[2] == done.stderr[5] == ":"
    assert done.stderr[8:] == " here\n"


REFUSES = """from pathlib import Path; from drafters.training.stage import StageError, begin
    begin(Path(options.out), "corpus", {{}}, {{"seed": 1}}); {work}raise StageError("no")"""


@pytest.mark.parametrize(("work", "left"), [("", []), ('(Path(options.out) / "a").write_text("a"); ', ["a"])])
def test_a_refusal_after_the_beginning_leaves_the_folder_free_unless_work_is_there(
    tmp_path: Path, work: str, left: list[str]
) -> None:
    """Exit code 2 says that nothing was changed; what was done stays with its request."""
    code = STUCK.format(body=REFUSES.format(work=work))
    code = code.replace('add_argument("--out")', 'add_argument("--out", type=__import__("pathlib").Path)')
    code = code.replace("my folder", str(tmp_path / "out"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (2, "error: no\n")
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == ([".lock", *left, "request.json"] if left else [])


def test_the_advice_of_a_refused_corpus_can_be_followed(tmp_path: Path) -> None:
    """One document cannot be held out: with --held-out 0 the same folder is used."""
    (tmp_path / "documents").mkdir()
    text = "The pump of line 4 was replaced on Monday, and the report of the shift says that nothing else was found.\n"
    (tmp_path / "documents/report.txt").write_text(text * 4, "utf-8")
    words = ["corpus", "--documents", str(tmp_path / "documents"), "--mask", "none", "--out", str(tmp_path / "out")]
    refused = drafters(*words)
    assert (refused.returncode, list((tmp_path / "out").iterdir())) == (2, []), refused.stderr
    assert "--held-out 0" in refused.stderr

    done = drafters(*words, "--held-out", "0")

    assert done.returncode == 0, done.stderr
