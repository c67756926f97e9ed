"""What a chain of stages was asked and how long it took, kept in ``chain.json`` beside the stages. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafters.training.adapt_plan import Link
from drafters.training.stage import StageError, write_whole

__all__ = ["FILE", "ChainRecord", "check_asked"]

FILE = "chain.json"


@dataclass(frozen=True, slots=True)
class ChainRecord:
    """Stage by stage: ``asked`` (its options), ``seconds``, ``starts``, ``done``. Every change is on the disk at once."""

    path: Path
    stages: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, out: Path) -> ChainRecord:
        """Read what is there. Raises StageError for a folder of something else."""
        path = out / FILE
        if not path.exists():
            if any(entry.name != ".lock" for entry in out.iterdir()):
                raise StageError(f"{out} holds files that are not of a chain; give an empty or a new folder")
            return cls(path, {})
        try:
            stages = json.loads(path.read_text("utf-8"))["stages"]
            kept = {name: entry for name, entry in stages.items() if _begun(out / name)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StageError(f"{path} cannot be read ({error}); give a new folder") from error
        return cls(path, kept)

    def begin(self, name: str, asked: list[list[str]]) -> None:
        """A stage starts, once more perhaps; being asked again when all is done is no start."""
        entry = self.stages.get(name, {"seconds": 0.0, "starts": 0, "done": False})
        self.stages[name] = entry | {"asked": asked, "starts": entry["starts"] + (not entry["done"])}
        self._write()

    def remember(self, name: str, seconds: float) -> None:
        """A stage has been at work for so long, all starts together."""
        if not self.stages[name]["done"]:
            self.stages[name]["seconds"] = seconds
            self._write()

    def done(self, name: str) -> None:
        """A stage is whole."""
        self.stages[name]["done"] = True
        self._write()

    def forget_unbegun(self) -> None:
        """Stages that refused their input and took their folder back may be asked anew."""
        for name in [name for name in self.stages if not _begun(self.path.parent / name)]:
            del self.stages[name]
        self._write()

    def seconds(self, name: str) -> float:
        """How long a stage was at work so far."""
        return float(self.stages.get(name, {}).get("seconds", 0.0))

    def starts(self, name: str) -> int:
        """How often a stage was started."""
        return int(self.stages.get(name, {}).get("starts", 0))

    def _write(self) -> None:
        write_whole(self.path, json.dumps({"stages": self.stages}, ensure_ascii=False, indent=2) + "\n")


def _begun(folder: Path) -> bool:
    """Whether anything of a stage is there; an empty folder is none."""
    return folder.is_dir() and any(folder.iterdir())


def check_asked(record: ChainRecord, chain: Sequence[Link], out: Path, site: Path) -> None:
    """Raise StageError where the file now asks for something else than a stage that was begun."""
    links = {link.name: link for link in chain}
    for name, entry in record.stages.items():
        if name not in links:
            raise StageError(
                f"{site} no longer has the stage {name} that {out} holds; give another --out, or remove "
                f"{out / name} and the stages behind it"
            )
        asked = links[name].asked(out)
        if asked == entry["asked"]:
            continue
        then, now = ([" ".join(option) for option in options] for options in (entry["asked"], asked))
        gone = "; ".join(text for text in then if text not in now)
        new = "; ".join(text for text in now if text not in then)
        state = "done" if entry["done"] else "begun"
        raise StageError(
            f"{site} asks {name} for other work than what is already {state}: was {gone or 'without'}, now "
            f"{new or 'without'}; give another --out, or remove {out / name} and the stages behind it"
        )
