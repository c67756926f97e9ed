"""Trains the reference target: ``python -m drafters.training.reference.pretrain --data FOLDER --out FOLDER --tokens N``.

Warm-up, a constant rate, and a linear decay over the last part (WSD): a run that was not yet decayed can be prolonged
by giving more tokens. The matrices of the layers are trained by Muon, the rest by AdamW.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from drafters.training.checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from drafters.training.reference import attention
from drafters.training.reference.model import build_target
from drafters.training.reference.packing import CONTEXT, IDS, DataError, Mixture, Part, read_manifest

WEIGHTS: dict[str, float] = {
    "ko": 0.14,
    "ko-code": 0.04,
    "ko-chat": 0.01,
    "en": 0.09,
    "code": 0.08,
    "office-ko": 0.08,
    "essay-ko": 0.04,
    "agent-ko": 0.22,
    "agent-en": 0.11,
    "agent-code": 0.12,
    "recall": 0.08,
}
"""Shares of the training tokens by part. Conversations count most, since they are what the workloads ask for."""
DIALOGUES = ("agent-ko", "agent-en", "agent-code", "recall")
WHOLE = ("ko-chat", "office-ko", "essay-ko", "agent-ko", "agent-en", "agent-code", "recall")
"""Parts whose rows begin with a document."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides the course of a training; kept in the checkpoint."""

    tokens: int
    row_tokens: int = 512
    rows: int = 8
    accumulate: int = 2
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    weight_decay: float = 0.1
    warm_up: int = 60
    decay_share: float = 0.2
    context_weight: float = 0.3
    dialogues: float = 1.0
    """Times the share of `DIALOGUES` in `WEIGHTS`."""
    precision: str = "bf16"
    seed: int = 1

    @property
    def step_tokens(self) -> int:
        """Tokens of one optimizer step."""
        return self.row_tokens * self.rows * self.accumulate


def rate_factor(step: int, tokens_done: int, settings: Settings) -> float:
    """Return the share of the full learning rate: linear up over ``warm_up`` steps, constant, linear down to zero."""
    up = min(1.0, (step + 1) / settings.warm_up)
    left = settings.tokens - tokens_done
    return up * min(1.0, max(0.0, left / (settings.decay_share * settings.tokens)))


def token_losses(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return the loss of each token after the first, in nats, shape [rows * (length - 1)]."""
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state  # [rows, length - 1, hidden]
    logits = model.lm_head(hidden).float().flatten(0, 1)  # [rows * (length - 1), vocabulary]
    return functional.cross_entropy(logits, ids[:, 1:].flatten(), reduction="none")


def split_flags(rows: NDArray[np.uint16], context_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids [rows, length] and the weight of each predicted token, flat."""
    ids = torch.from_numpy((rows & IDS).astype(np.int64))
    weights = np.where(rows[:, 1:] & CONTEXT, np.float32(context_weight), np.float32(1.0)).reshape(-1)
    return ids, torch.from_numpy(weights.astype(np.float32))


class Training:
    """One training run: the model, its optimizers, and its place in the data."""

    def __init__(self, data: Path, settings: Settings, compile_step: bool) -> None:
        manifest = read_manifest(data)
        torch.manual_seed(settings.seed)
        self.data, self.settings = data, settings
        self.tokenizer_sha256 = str(manifest["tokenizer_sha256"])
        self.parts = {name: Part.open(data, f"{name}.train", name in WHOLE) for name in WEIGHTS}
        weights = {
            name: weight * (settings.dialogues if name in DIALOGUES else 1.0) for name, weight in WEIGHTS.items()
        }
        self.mixture = Mixture(self.parts, weights, settings.seed)
        self.model = build_target()
        if settings.precision == "bf16" and attention.register():
            self.model.set_attn_implementation(attention.NAME)
        matrices = [p for n, p in self.model.named_parameters() if p.ndim == 2 and "embed_tokens" not in n]
        chosen = {id(p) for p in matrices}
        rest = [p for p in self.model.parameters() if id(p) not in chosen]
        self.muon = torch.optim.Muon(matrices, lr=settings.muon_rate, weight_decay=settings.weight_decay, momentum=0.95)
        self.adam = torch.optim.AdamW(rest, lr=settings.adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
        self.step, self.tokens_done = 0, 0
        function: Callable[..., torch.Tensor] = torch.compile(token_losses) if compile_step else token_losses
        self._losses = function

    def one_step(self, factor: float | None = None, beside: Callable[[], torch.Tensor] | None = None) -> float:
        """Take one optimizer step and return its mean loss over the tokens that the model writes.

        ``factor`` is the share of the full learning rates, by default that of :func:`rate_factor`. ``beside`` gives a loss
        that is added to the ordinary one.
        """
        settings = self.settings
        if factor is None:
            factor = rate_factor(self.step, self.tokens_done, settings)
        for optimizer, rate in ((self.muon, settings.muon_rate), (self.adam, settings.adam_rate)):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
        own_loss, own_tokens = 0.0, 0
        for _ in range(settings.accumulate):
            ids, weights = split_flags(
                self.mixture.next_batch(settings.rows, settings.row_tokens + 1), settings.context_weight
            )
            with self._precision():
                losses = self._losses(self.model, ids)
            own = weights == 1.0
            own_loss += float(losses.detach()[own].sum())
            own_tokens += int(own.sum())
            ((losses * weights).sum() / weights.sum() / settings.accumulate).backward()  # type: ignore[no-untyped-call]
        if beside is not None:
            with self._precision():
                more = beside()
            more.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in (self.muon, self.adam):
            optimizer.step()  # type: ignore[no-untyped-call]
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens_done += settings.step_tokens
        return own_loss / max(1, own_tokens)

    @torch.no_grad()
    def held_out(self, rows: int = 16) -> dict[str, float]:
        """Return the loss on held-out documents by part, over tokens that the model writes, nats a token."""
        found = {}
        for name in WEIGHTS:
            try:
                part = Part.open(self.data, f"{name}.heldout", name in WHOLE)
            except DataError:
                continue  # a small data folder may hold nothing out
            total, count = 0.0, 0
            for _ in range(max(1, rows // self.settings.rows)):
                batch = np.stack([part.next_row(self.settings.row_tokens + 1) for _ in range(self.settings.rows)])
                ids, weights = split_flags(batch, self.settings.context_weight)
                with self._precision():
                    losses = self._losses(self.model, ids)
                total += float(losses[weights == 1.0].sum())
                count += int((weights == 1.0).sum())
            found[name] = total / max(1, count)
        return found

    def save(self, path: Path, more: Mapping[str, Any] | None = None) -> None:
        """Write the checkpoint, whole or not at all, with entries of whoever trains on besides."""
        save_checkpoint(
            path,
            {
                "settings": asdict(self.settings),
                "tokenizer_sha256": self.tokenizer_sha256,
                "step": self.step,
                "tokens_done": self.tokens_done,
                "data": self.mixture.state(),
                "rng": torch.get_rng_state(),
                "model": self.model.state_dict(),
                "muon": self.muon.state_dict(),
                "adam": self.adam.state_dict(),
                **(more or {}),
            },
        )

    def resume(self, path: Path, keep_position: bool = True) -> None:
        """Go on from a checkpoint; ``keep_position`` is false when the data were built anew with the same tokenizer.

        Raises:
            DataError: if the checkpoint belongs to another tokenizer.
        """
        value = load_checkpoint(path)
        if value["tokenizer_sha256"] != self.tokenizer_sha256:
            raise DataError(f"{path} was trained with another tokenizer than the data in {self.data}; build them alike")
        self.model.load_state_dict(value["model"])
        self.muon.load_state_dict(value["muon"])
        self.adam.load_state_dict(value["adam"])
        self.step, self.tokens_done = value["step"], value["tokens_done"]
        torch.set_rng_state(value["rng"])
        if keep_position:
            self.mixture.restore(value["data"])
        else:
            self.mixture.rows_drawn = value["data"]["rows_drawn"]

    def _precision(self) -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.settings.precision == "bf16" else nullcontext()


@dataclass(slots=True)
class Timers:
    """When the next log line, held-out loss and checkpoint are due, seconds of one monotonic clock."""

    log: float
    held_out: float
    checkpoint: float


def run(training: Training, out: Path, intervals: Timers, say: Callable[[str], None]) -> bool:
    """Train until the tokens are done (true) or the process is asked to stop (false, after a checkpoint)."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: stopped.append(received))
    path = out / "checkpoint.pt"
    now = time.monotonic()
    due = Timers(now, now + intervals.held_out / 2, now + intervals.checkpoint)
    last, tokens_at_last, losses = now, training.tokens_done, []
    while training.tokens_done < training.settings.tokens and not stopped:
        losses.append(training.one_step())
        now = time.monotonic()
        if now >= due.log:
            speed = (training.tokens_done - tokens_at_last) / (now - last)
            hours = (training.settings.tokens - training.tokens_done) / speed / 3600
            say(
                f"step {training.step} tokens {training.tokens_done / 1e6:.2f}M loss {np.mean(losses):.3f}"
                f" rate {rate_factor(training.step, training.tokens_done, training.settings):.2f}"
                f" {speed:.0f} tokens/s, {hours:.1f} h left"
            )
            last, tokens_at_last, losses = now, training.tokens_done, []
            due.log = now + intervals.log
        if now >= due.checkpoint:
            training.save(path)
            due.checkpoint = time.monotonic() + intervals.checkpoint
        if now >= due.held_out:
            _say_held_out(training, out, say)
            due.held_out = time.monotonic() + intervals.held_out
            last = time.monotonic()
            tokens_at_last = training.tokens_done
    training.save(path)
    if not stopped:
        _say_held_out(training, out, say)
    say(f"{'stopped' if stopped else 'done'} at step {training.step}, {training.tokens_done} tokens, {path}")
    return not stopped


def _say_held_out(training: Training, out: Path, say: Callable[[str], None]) -> None:
    found = training.held_out()
    say("held out " + " ".join(f"{name} {loss:.3f}" for name, loss in found.items()))
    line = {"step": training.step, "tokens": training.tokens_done, "held_out_nats": found}
    with (out / "held_out.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 also after SIGTERM, when the checkpoint is written."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training.reference.pretrain", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder made by drafters.training.reference.data")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint and the held-out losses")
    parser.add_argument("--tokens", type=int, required=True, help="tokens in all, those of a resumed run included")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--new-data", action="store_true", help="with --resume: the data folder was built anew")
    parser.add_argument("--no-compile", action="store_true", help="run the step as it is: no C++ compiler at hand")
    defaults = Settings(tokens=0)
    for name, value in asdict(defaults).items():
        if name != "tokens":
            parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    options = parser.parse_args(arguments)
    settings = Settings(**{name: getattr(options, name) for name in asdict(defaults)})
    options.out.mkdir(parents=True, exist_ok=True)
    checkpoint = options.out / "checkpoint.pt"
    if checkpoint.exists() and not options.resume:
        parser.error(f"{checkpoint} exists; give --resume to go on, or another --out")
    lock = (options.out / "lock").open("w")  # held until the process ends
    try:
        lock_training(lock)
        training = Training(options.data, settings, compile_step=not options.no_compile)
        if options.resume and checkpoint.exists():
            training.resume(checkpoint, keep_position=not options.new_data)
    except (DataError, CheckpointError) as error:
        parser.error(str(error))
    (options.out / "tokenizer.json").write_bytes((options.data / "tokenizer.json").read_bytes())
    run(training, options.out, Timers(log=20, held_out=600, checkpoint=300), say_now)
    return 0


def lock_training(lock: IO[str]) -> None:
    """Keep other trainings out of the folder of this open file until it is closed.

    Raises:
        DataError: if another one has it.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise DataError(
            f"another training writes to {Path(lock.name).parent}; end it first (a halted one only after it goes on)"
        ) from error


def say_now(line: str) -> None:
    """Write a line to standard output, the time in front, at once."""
    sys.stdout.write(time.strftime("%H:%M:%S ") + line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
