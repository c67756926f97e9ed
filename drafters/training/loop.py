"""The training loop: steps over batches, held-out evaluations, checkpoints that a later process continues bit for bit.

A step draws examples until they hold its tokens, puts those of like length together, shares the parts among the processes
and sums: the gradient is that of (sum of all losses) / (sum of all weights), however many processes there are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from drafters.training.batches import Features, Sampler, rows_of
from drafters.training.checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from drafters.training.distributed import World
from drafters.training.evaluation import (
    HELD_OUT_NOTE,
    HeldOut,
    held_out_report,
    judged,
    losses_of,
    numbers_of,
    weights_by_group,
)
from drafters.training.frozen import FrozenTarget
from drafters.training.log import Log
from drafters.training.loop_settings import Intervals, LoopSettings, rate_factor
from drafters.training.method import Method
from drafters.training.stage import StageError

__all__ = ["STATE", "Training", "run_loop", "save_state"]

STATE = "state.pt"


class Training:
    """One training run: the method, its optimizers, and its place in the data."""

    def __init__(
        self,
        method: Method,
        target: FrozenTarget,
        sampler: Sampler,
        held_out: HeldOut,
        settings: LoopSettings,
        features: Features | None = None,
        world: World | None = None,
    ) -> None:
        self.method, self.target, self.sampler, self.held_out = method, target, sampler, held_out
        self.settings, self.features, self.world = settings, features, world or World()
        self.parameters = [parameter for parameter in method.module.parameters() if parameter.requires_grad]
        self.world.spread(self.parameters)
        self.optimizers = _optimizers(method.module, settings, target.vocab_size)
        self._rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]
        self.step = self.tokens_done = self.evaluated = self.since_best = 0
        self.first: dict[str, Any] | None = None  # report of the evaluation before the first step
        self.best: dict[str, Any] | None = None  # report, step and weights of the best evaluation

    def one_step(self, stop: bool = False) -> dict[str, list[float]]:
        """Take one optimizer step and return the sums of all processes; ``stop`` in it says how many want to end."""
        settings = self.settings
        drawn = self.sampler.draw_tokens(settings.rows * settings.row_tokens)
        tokens = sum(len(example.token_ids) for example in drawn)
        # the rate of the step's middle: that of its beginning is 0 in the first one, that of its end in the last
        middle = self.tokens_done + min(tokens, settings.tokens - self.tokens_done) / 2
        factor = rate_factor(middle / settings.tokens, settings.warm_up, settings.schedule)
        for optimizer, rates in zip(self.optimizers, self._rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
        own: dict[str, list[float]] = {"stop": [float(stop)]}
        for place, part in self.world.share(rows_of(drawn, settings.row_tokens)):
            seed = f"{settings.seed}/{self.step}/{place}"
            losses = losses_of(
                self.method, self.target, part, self.features, settings.precision, seed, settings.states_precision
            )
            if losses.total.requires_grad:  # a part without a place to learn from has no gradient
                losses.total.backward()  # type: ignore[no-untyped-call]
            for name, numbers in {**numbers_of(losses), **weights_by_group(losses, part)}.items():
                own[name] = [a + b for a, b in zip(own.get(name, [0.0] * len(numbers)), numbers, strict=True)]
        sums = self.world.sum(own)
        self.world.sum_gradients(self.parameters)
        weight = sums["loss"][1]
        for parameter in self.parameters:
            if parameter.grad is not None and weight:
                parameter.grad.div_(weight)
        norm = float(clip_grad_norm_(self.parameters, settings.clip))
        if not math.isfinite(norm):
            raise StageError(
                f"the gradient of step {self.step} is not finite; give a lower --rate, or --precision fp32, "
                "and a new folder"
            )
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens_done += tokens
        return {**sums, "norm": [norm], "factor": [factor]}

    @property
    def finished(self) -> bool:
        """Whether the tokens are done, or no better evaluation came for too long."""
        settings = self.settings
        return self.tokens_done >= settings.tokens or 0 < settings.patience <= self.since_best

    @property
    def evaluation_due(self) -> bool:
        """Whether the next evaluation's tokens are done; a question of tokens, never of time."""
        done = min(1.0, self.tokens_done / self.settings.tokens)
        return self.evaluated <= math.floor(done * self.settings.evaluations + 1e-9)

    def evaluate(self, tell: Callable[[int, int], None] = lambda done, parts: None) -> dict[str, Any]:
        """Evaluate the held-out examples, keep the weights if they are the best so far, and return the report."""
        settings = self.settings
        found = self.held_out.evaluate(self.method, self.target, self.features, self.world, tell)
        (whole, _), report = judged(found), held_out_report(found)
        if whole.loss is None:
            raise StageError("the held-out examples have no place to score: their answers are too short; give others")
        if not math.isfinite(whole.loss):
            raise StageError(f"the held-out loss is {whole.loss}; give a lower --rate and a new folder")
        length = 0.0 if settings.stop_on == "loss" else whole.acceptance_length or 0.0
        score = [length, -whole.loss]  # of equal lengths the lower loss is better: at first nothing is accepted
        if self.best is None or score > self.best["score"] or settings.stop_on == "nothing":
            self.since_best = 0
            # cloned: state_dict shares memory with the weights that training goes on to change
            weights = {name: value.detach().clone() for name, value in self.method.module.state_dict().items()}
            self.best = {"score": score, "step": self.step, "report": report, "weights": weights}
        else:
            self.since_best += 1
        if self.first is None:
            self.first = report
        self.evaluated = math.floor(min(1.0, self.tokens_done / settings.tokens) * settings.evaluations + 1e-9) + 1
        return report

    def use_best(self) -> None:
        """Go back to the weights of the best evaluation."""
        if self.best is not None:
            self.method.module.load_state_dict(self.best["weights"])

    def state(self) -> dict[str, Any]:
        """Everything that a later process needs to go on."""
        return {
            "step": self.step,
            "tokens_done": self.tokens_done,
            "evaluated": self.evaluated,
            "since_best": self.since_best,
            "first": self.first,
            "best": self.best,
            "data": self.sampler.state(),
            "module": self.method.module.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to where a training of the same settings stood."""
        self.method.module.load_state_dict(state["module"])
        for optimizer, value in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(value)
        self.sampler.restore(state["data"])
        self.step, self.tokens_done = state["step"], state["tokens_done"]
        self.evaluated, self.since_best = state["evaluated"], state["since_best"]
        self.first, self.best = state["first"], state["best"]


def run_loop(
    training: Training, out: Path, intervals: Intervals, say: Callable[[str], None], stopped: Sequence[int]
) -> bool:
    """Train, from the checkpoint in ``out`` if one is there, until it is finished (true) or ``stopped`` is not empty in
    any process (false, after a checkpoint)."""
    world, path = training.world, out / STATE
    state = world.first(lambda: _read_state(path))
    if state is not None:
        training.restore(state)
        say(f"continued at step {training.step}, {training.tokens_done:,} of {training.settings.tokens:,} tokens")
    log = Log(out, training, intervals.log, say) if world.rank == 0 else None
    saved = time.monotonic()
    asked = False
    while not (training.finished or asked):
        if training.evaluation_due:
            _evaluate(training, path, log, say, stopped)
            continue
        sums = training.one_step(bool(stopped))
        asked = sums["stop"][0] > 0
        if log is not None:
            log.step(training, sums)
            if asked or time.monotonic() - saved >= intervals.checkpoint:
                log.write_out(training)
                save_state(path, training)
                saved = time.monotonic()
    if asked:
        return False
    if training.evaluation_due:
        _evaluate(training, path, log, say, stopped)
    if log is not None:
        log.write_out(training)
        save_state(path, training)
    return True


def save_state(path: Path, training: Training) -> None:
    """Write the checkpoint, whole or not at all. Raises StageError when the disk is full."""
    try:
        save_checkpoint(path, training.state())
    except (OSError, RuntimeError) as error:  # torch's writer turns a full disk into a RuntimeError
        raise StageError(f"{path} cannot be written ({error}); free some space and run the command again") from error


def _read_state(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        return load_checkpoint(path)
    except CheckpointError as error:
        raise StageError(f"{error}, or start in a new folder") from error


def _evaluate(
    training: Training, path: Path, log: Log | None, say: Callable[[str], None], stopped: Sequence[int]
) -> None:
    if log is not None:
        log.write_out(training)
        save_state(path, training)  # who asks to stop meanwhile waits for no evaluation
    started = told = time.monotonic()

    def tell(done: int, parts: int) -> None:
        nonlocal told
        if stopped:
            raise KeyboardInterrupt
        now = time.monotonic()
        if now - told >= 5.0:
            told = now
            say(f"held-out examples: {done} of {parts} parts, {(now - started) / done * (parts - done):.0f} s left")

    report = training.evaluate(tell)
    best = training.best is not None and training.best["step"] == training.step
    if log is not None:
        log.held_out(training, report, best)
    whole = report["judged"]
    length = "unknown" if whole["acceptance_length"] is None else f"{whole['acceptance_length']:.3f}"
    at = "" if whole["temperature"] is None else f" of temperature {whole['temperature']:g}"
    say(
        f"held out after step {training.step}{at}: loss {whole['loss']:.4f}, acceptance length {length}"
        f" ({HELD_OUT_NOTE}){', the best so far' if best else ''}"
    )


def _optimizers(module: nn.Module, settings: LoopSettings, vocab_size: int) -> list[torch.optim.Optimizer]:
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    matrices: list[nn.Parameter] = []
    if settings.optimizer == "muon":
        # Muon is for maps between hidden states; embeddings, heads and codebooks are rows for tokens, whatever they are
        # called where they have one for each token of the target.
        rows = ("embed", "lm_head", "codebook")
        matrices = [
            p
            for name, p in named
            if p.ndim == 2 and p.shape[0] != vocab_size and not any(word in name for word in rows)
        ]
    chosen = {id(parameter) for parameter in matrices}
    rest = [parameter for _, parameter in named if id(parameter) not in chosen]
    made: list[torch.optim.Optimizer] = []
    if matrices:
        made.append(
            torch.optim.Muon(matrices, lr=settings.muon_rate, weight_decay=settings.weight_decay, momentum=0.95)
        )
    if rest:
        decay = settings.weight_decay
        made.append(torch.optim.AdamW(rest, lr=settings.rate, betas=(0.9, 0.95), weight_decay=decay))
    return made
