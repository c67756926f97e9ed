"""``log.jsonl`` of a training, one object a line, and the line that its watcher sees."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.training.stage import StageError, write_whole

if TYPE_CHECKING:
    from drafters.training.loop import Training

__all__ = ["LOG", "Log"]

LOG = "log.jsonl"


class Log:
    """Sums between log lines, and where they go; kept by the first process alone."""

    def __init__(self, out: Path, training: Training, seconds: float, say: Callable[[str], None]) -> None:
        """Lines that were written after the checkpoint which ``training`` continues from are dropped: those of later
        steps, and the evaluation of the same step if it is still to be made."""
        self._path, self._seconds, self._say = out / LOG, seconds, say
        self._length = None
        kept = []
        if self._path.exists():
            for line in self._path.read_text("utf-8").splitlines():
                value = _read(line)
                if value is None or value["step"] > training.step:
                    continue
                if value["kind"] == "held_out":
                    if value["step"] == training.step and training.evaluation_due:
                        continue
                    self._length = value["judged"]["acceptance_length"]
                kept.append(line)
        write_whole(self._path, "".join(line + "\n" for line in kept))
        self._sums: dict[str, list[float]] = {}
        self._at = time.monotonic()
        self._tokens = training.tokens_done

    def step(self, training: Training, sums: Mapping[str, Sequence[float]]) -> None:
        """Take a step's sums; write a line when it is time."""
        for name, numbers in sums.items():
            known = self._sums.get(name, [0.0] * len(numbers))
            self._sums[name] = [a + b for a, b in zip(known, numbers, strict=True)]
        self._sums["steps"] = [self._sums.get("steps", [0.0])[0] + 1]
        now = time.monotonic()
        if now - self._at >= self._seconds:
            self._line(training, now)

    def held_out(self, training: Training, report: Mapping[str, Any], best: bool) -> None:
        """Write a held-out report."""
        self.write_out(training)
        self._length = report["judged"]["acceptance_length"]
        self._write({"kind": "held_out", "step": training.step, "tokens": training.tokens_done, "best": best, **report})
        self._at, self._tokens = time.monotonic(), training.tokens_done  # evaluation is not training time

    def write_out(self, training: Training) -> None:
        """Write what is left, as a checkpoint is written: sums kept in memory would be missing after a restart."""
        if self._sums:
            self._line(training, time.monotonic())

    def _line(self, training: Training, now: float) -> None:
        sums, self._sums = self._sums, {}
        total, weight = sums["loss"]
        tokens = training.tokens_done - self._tokens
        speed = tokens / (now - self._at) if tokens > 0 and now > self._at else None
        self._at, self._tokens = now, training.tokens_done
        shares = [a / d if d else None for a, d in zip(sums["accepted"], sums["drafted"], strict=True)]
        loss = total / weight if weight else None
        self._write(
            {
                "kind": "step",
                "step": training.step,
                "tokens": training.tokens_done,
                "loss": loss,
                "weight": weight,
                "weight_by_language": _named(sums, "weight/"),
                "accepted_by_position": shares,
                "parts": _named(sums, "part/"),
                "rate_factor": sums["factor"][0] / sums["steps"][0],
                "gradient_norm": sums["norm"][0] / sums["steps"][0],
                "tokens_per_second": speed,
            }
        )
        left = training.settings.tokens - training.tokens_done
        length = "unknown" if self._length is None else f"{self._length:.2f}"
        self._say(
            f"step {training.step}, {training.tokens_done / 1e6:.2f} of {training.settings.tokens / 1e6:.2f} M tokens, "
            f"loss {'unknown' if loss is None else f'{loss:.4f}'}, held-out acceptance length {length}"
            + ("" if speed is None else f", {speed:,.0f} tokens/s, {max(0.0, left / speed / 60):.1f} min left")
        )

    def _write(self, value: Mapping[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(value, ensure_ascii=False) + "\n")
        except OSError as error:
            raise StageError(
                f"{self._path} cannot be written: {error.strerror}; free some space and run the command again"
            ) from error


def _named(sums: Mapping[str, Sequence[float]], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): numbers[0] for name, numbers in sorted(sums.items()) if name.startswith(prefix)}


def _read(line: str) -> dict[str, Any] | None:
    """A line, or ``None`` for one that was cut short."""
    try:
        value: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return value
