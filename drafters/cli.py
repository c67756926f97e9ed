"""The command line of the training pipeline: the only place in ``drafters`` that prints and sets exit codes.

Exit codes: 0 done · 2 bad input, nothing was changed · 3 a threshold was missed · 4 the engine failed · 1 a defect of this
program · 130 interrupted, what is done is kept and the same command continues it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import ModuleType

from drafters.training.stage import StageError, take_back_unworked

__all__ = ["STAGES", "main", "run"]

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EPILOG = (
    "exit codes: 0 done, 2 bad input, 3 threshold missed, 4 engine failed, 1 defect of this program, 130 interrupted"
)
STAGES: Mapping[str, str] = {
    "corpus": "read documents and conversations, mask them, write the corpus",
    "regenerate": "let the target write the answers that a drafter is to learn",
    "capture": "store the target's hidden states for training without the target",
    "train": "train a drafter on the target's answers",
    "quantize": "put a target or a drafter on 4-bit values; with --base, what that leaves of a change",
    "evaluate": "measure drafters in deployed form with the harness",
    "adapt": "the whole chain from one YAML: corpus to a report before and after",
    "export": "write target and drafter as GGUF",
    "claims": "fifteen claims about drafters, each tested by one command",
}
"""Stage → what it does, shown without loading it. Its module is ``drafters.training.<stage>_stage``, or in `ELSEWHERE`."""
ELSEWHERE: Mapping[str, str] = {"claims": "drafters.claims.command"}
PARENT = "DRAFTERS_END_WITH_STDIN"
"""Set by a program that starts a stage and keeps its standard input open: the stage ends when that closes."""
ERRORS = {
    "drafters.specs": ("SpecError",),
    "drafters.engine.target": ("TargetError",),
    "drafters.engine.text": ("TextError",),
    "drafters.training.checkpoints": ("CheckpointError",),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run one stage and return its exit code; every deliberate error becomes one message on standard error."""
    followed = os.environ.pop(PARENT, None) is not None
    try:
        name = next((word for word in argv if not word.startswith("-")), None)
        module = _module(name) if name in STAGES else None
        options = _parser(name, module).parse_args(argv)
        assert module is not None  # the parser lets no other name through
        _end_as_interrupt(followed)
        if getattr(options, "plan", False):
            for line in module.plan(options):
                print(line)  # to be pasted, so without the time
            sys.stdout.flush()
            return 0
        return _run(module.run, options)
    except KeyboardInterrupt:
        how = "" if followed else f", continue with: drafters {shlex.join(argv)}"
        print(f"interrupted; what is done is kept{how}", file=sys.stderr, flush=True)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away; nothing is left to say
        return 0
    except _input_errors() as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(stage: Callable[[argparse.Namespace, Callable[[str], None]], int], options: argparse.Namespace) -> int:
    """Run a stage. Where it refuses its input and has done nothing yet, its folder is free again for the corrected command."""
    try:
        return stage(options, _say)
    except _input_errors():
        if isinstance(out := getattr(options, "out", None), Path):
            with suppress(OSError):  # the refusal is what is to be told
                take_back_unworked(out)
        raise


def _parser(name: str | None, module: ModuleType | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="drafters", description="Train drafters on your own documents and measure them.", epilog=EPILOG
    )
    commands = parser.add_subparsers(title="stages", required=True, metavar="STAGE")
    for stage, text in STAGES.items():
        command = commands.add_parser(stage, help=text, description=text[:1].upper() + text[1:] + ".", epilog=EPILOG)
        if stage == name and module is not None:
            module.add_arguments(command)
    return parser


def _module(stage: str | None) -> ModuleType:
    name = ELSEWHERE.get(stage or "", f"drafters.training.{stage}_stage")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise StageError(f"this installation has no stage {stage!r}; install the whole package") from error
        raise StageError(
            f"the package {error.name} is missing; install it with: pip install 'spec-harness[builtin]'"
        ) from error


def _say(line: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {line}", file=sys.stderr, flush=True)


def _input_errors() -> tuple[type[BaseException], ...]:
    """Errors of input, those of modules that were never loaded left out: they cannot have been raised."""
    loaded = [(sys.modules.get(module), names) for module, names in ERRORS.items()]
    return (StageError, *(getattr(module, name) for module, names in loaded if module is not None for name in names))


def _end_as_interrupt(followed: bool) -> None:
    def interrupt(number: int, frame: object) -> None:
        if followed:  # the terminal has told the chain as well, and the chain tells its stage: once is enough
            for other in SIGNALS:
                signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt  # the way out of Ctrl-C: what is begun is left so that it can be continued

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup a hangup stays ignored
            signal.signal(number, interrupt)
    if followed:
        threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # whoever started this stage was killed; two must not write one folder


if __name__ == "__main__":
    main()
