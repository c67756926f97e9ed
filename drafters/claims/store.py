"""Stages that several claims share: each in a folder named by what decides it, run once, gone on with after a kill.

``FOLDER/stages/<name>-<key>/`` is a stage's own folder with its manifest, ``FOLDER/times.jsonl`` says how long each
start of one took.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from drafters.claims.stages import Place, Stage, in_order, resolved
from drafters.training.folder_lock import lock_of
from drafters.training.stage import MANIFEST, Manifest, StageError, read_manifest

__all__ = ["Store"]

STAGES, TIMES = "stages", "times.jsonl"
PARENT = "DRAFTERS_END_WITH_STDIN"  # see drafters.cli
LET_GO_S = 60.0
INTERRUPTED = 130


class Store:
    """The stages in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def place(self, stage: Stage) -> Path:
        """Where a stage's folder is, or will be. Raises StageError as `Stage.key`."""
        return self.folder / STAGES / f"{stage.name}-{stage.key}"

    def is_done(self, stage: Stage) -> bool:
        """Whether the stage is whole."""
        return (self.place(stage) / MANIFEST).is_file()

    def manifest(self, stage: Stage) -> Manifest:
        """What a finished stage left, after its files were checked. Raises StageError."""
        return read_manifest(self.place(stage), stage.kind)

    def words(self, stage: Stage) -> list[str]:
        """The command line behind ``drafters``, every path absolute."""
        return [*(self._word(word) for word in stage.words), "--out", str(self.place(stage))]

    def command(self, stage: Stage) -> str:
        """The command line, to be pasted."""
        return shlex.join(["drafters", *self.words(stage)])

    def run(self, wanted: Sequence[Stage], say: Callable[[str], None]) -> int:
        """Run what is not done of the stages and of all that they need; ends with the exit code of the first that fails."""
        left = [stage for stage in in_order(wanted) if not self.is_done(stage)]
        if not left:
            return 0
        with self._alone():
            for number, stage in enumerate(left, start=1):
                say(f"[{number}/{len(left)}] {self.place(stage).name}")
                if code := self._run(stage):
                    how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
                    say(f"{self.place(stage).name} {how}; the same command goes on there")
                    return code if code > 0 else 1
        return 0

    def seconds(self, stages: Sequence[Stage]) -> float | None:
        """How long these stages were at work, all starts together; ``None`` where one has no time (copied, or killed hard)."""
        spent = self._spent()
        own = [spent.get(self.place(stage).name) for stage in stages]
        known = [value for value in own if value is not None]
        return sum(known) if len(known) == len(own) else None

    def _word(self, word: str | Place) -> str:
        if isinstance(word, str):
            return word
        path = self.place(word.source) if isinstance(word.source, Stage) else resolved(word.source)
        return f"{word.before}{path / word.part if word.part else path}{word.after}"

    def _command(self, stage: Stage) -> list[str]:
        return [sys.executable, "-m", "drafters.cli", *self.words(stage)]

    def _run(self, stage: Stage) -> int:
        (self.folder / STAGES).mkdir(exist_ok=True)
        begun = time.monotonic()
        child = subprocess.Popen(self._command(stage), stdin=subprocess.PIPE, env=os.environ | {PARENT: "1"})
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.terminate()
            try:
                child.wait(timeout=LET_GO_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            raise
        finally:
            if child.stdin is not None:
                child.stdin.close()
            line = {"stage": self.place(stage).name, "seconds": round(time.monotonic() - begun, 1)}
            with (self.folder / TIMES).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line | {"code": child.returncode}, ensure_ascii=False) + "\n")

    def _spent(self) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        path = self.folder / TIMES
        if path.is_file():
            for text in path.read_text("utf-8").splitlines():
                try:
                    line = json.loads(text)
                except ValueError:
                    continue  # a kill cut it short
                found[line["stage"]] += line["seconds"]
        return dict(found)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = lock_of(self.folder)
            taken = lock.take()
        except OSError as error:
            raise StageError(f"{self.folder} cannot be written: {error.strerror}; give a folder that can") from error
        if not taken:
            raise StageError(
                f"another 'drafters claims' works in {self.folder}; wait for it, end it, or give another --out"
            )
        try:
            yield
        finally:
            lock.free()
