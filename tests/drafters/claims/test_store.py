"""The store: stages run once, share their outputs, and go on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drafters.claims import store as store_module
from drafters.claims.stages import Place, Stage
from drafters.claims.store import Store
from drafters.training.stage import StageError

FIRST = Stage("first", ("toy", "--steps", "1"))
SECOND = Stage("second", ("toy", "--steps", "3", Place(FIRST, "done")))
PROGRAM = """
import signal, sys
from pathlib import Path
from drafters.claims import store as module
from tests.drafters.claims.test_store import SECOND, toy_command
module.Store._command = toy_command
signal.signal(signal.SIGTERM, signal.default_int_handler)
try: sys.exit(module.Store(Path(sys.argv[1])).run([SECOND], lambda line: None))
except KeyboardInterrupt: sys.exit(130)
"""


def toy_command(self: Store, stage: Stage) -> list[str]:
    """The toy in place of the real program."""
    return [sys.executable, "-m", "tests.drafters.claims.toy", *self.words(stage)]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose stages are toys."""
    monkeypatch.setattr(store_module.Store, "_command", toy_command)
    return Store(tmp_path / "out")


def test_a_killed_claim_goes_on_where_it_was(store: Store) -> None:
    """The finished stage is not started again, the one begun keeps its steps, and both starts' time counts."""
    first = subprocess.Popen([sys.executable, "-c", PROGRAM, str(store.folder)])
    begun = store.place(SECOND) / "done"
    deadline = time.monotonic() + 120
    while not begun.exists() and first.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 130
    assert store.is_done(FIRST)
    assert not store.is_done(SECOND)

    said: list[str] = []
    assert store.run([SECOND], said.append) == 0

    assert said == [f"[1/1] {store.place(SECOND).name}"]
    assert [len((store.place(stage) / "starts").read_text("utf-8").split()) for stage in (FIRST, SECOND)] == [1, 2]
    assert store.manifest(SECOND).counts == {"steps": 3}
    lines = [json.loads(line) for line in (store.folder / "times.jsonl").read_text("utf-8").splitlines()]
    assert [line["stage"] for line in lines] == [store.place(stage).name for stage in (FIRST, SECOND, SECOND)]
    assert store.seconds([FIRST, SECOND]) == pytest.approx(sum(line["seconds"] for line in lines))
    assert store.run([SECOND], said.append) == 0
    assert len(said) == 1


def test_a_stage_that_fails_ends_the_claim_with_its_code(store: Store) -> None:
    """What it said passes through, and nothing behind it is started."""
    broken = Stage("broken", ("toy", "--steps", "none"))
    behind = Stage("behind", ("toy", "--steps", "1", Place(broken)))
    said: list[str] = []
    assert store.run([behind], said.append) == 1
    assert "ended with exit code 1; the same command goes on there" in said[-1]
    assert not store.place(behind).exists()


def test_two_claims_do_not_work_in_one_folder(store: Store) -> None:
    """The second is told so; the time of a stage that was never run is not known."""
    import fcntl

    store.folder.mkdir(parents=True)
    held = os.open(store.folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(StageError, match="another 'drafters claims' works in"):
            store.run([FIRST], lambda line: None)
    finally:
        os.close(held)
    assert store.seconds([FIRST]) is None
