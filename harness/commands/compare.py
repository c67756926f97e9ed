"""`harness compare`: its arguments, and from folders to a comparison and its files. The command line prints what comes back."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from harness.analysis.compare import ArmPair, Comparison

LONGEST_NAME = 80  # of a folder, before what tells apart names that begin alike


@dataclass(frozen=True, slots=True)
class Compared:
    """What the command line says at the end: tables and sentences, the page, the verdict."""

    text: str
    page: Path
    verdict: str


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument(
        "before", type=Path, metavar="RUN_BEFORE", help="a run folder; alone, with --arms, two of its arms"
    )
    command.add_argument("after", type=Path, nargs="?", metavar="RUN_AFTER", help="the run folder to compare with it")
    command.add_argument(
        "--arms",
        nargs="+",
        type=_pair,
        metavar="BEFORE=AFTER",
        help="which arm of the one to compare with which of the other (default: those of one name, and the only ones with a drafter)",
    )
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: a folder in RUN_AFTER)")
    command.add_argument("--lang", choices=("ko", "en"), help="language of the report (default: that of the run after)")


def compare(args: argparse.Namespace) -> Compared:
    """Compare, write the files and return what is to be said.

    Raises:
        UsageError: if the runs have nothing in common, an arm is not there, or the folder to write to is somebody else's.
        RunFolderError: if a folder is no run, is damaged, or cannot be written.
    """
    from harness.analysis.compare import compare_runs
    from harness.store import RunFolder
    from reports import comparison as rendered

    before = RunFolder.open(args.before)
    after = None if args.after is None else RunFolder.open(args.after)
    if after is not None and after.path.resolve() == before.path.resolve():
        raise UsageError(f"{args.before} twice: to compare two arms of one run, give it once with --arms before=after")
    if args.out is not None:
        _refuse_foreign(args.out, rendered.FILES, rendered.PAGE)
    result = compare_runs(before, after, args.arms)
    last = before if after is None else after
    lang = args.lang or last.manifest.get("lang") or "en"
    page = rendered.write_all(result, args.out or last.path / _name(result, args.arms), lang)
    return Compared(rendered.console(result, lang), page, rendered.headline(result, lang))


def _refuse_foreign(out: Path, own: Collection[str], page: str) -> None:
    """Refuse a folder that holds other things than an earlier comparison, so that none of them is written over or mixed up with it.

    Hidden files, which desktops leave everywhere, do not count.
    """
    try:
        there = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"--out {out}: {error.strerror}; give a folder that is new, empty or of an earlier comparison"
        ) from error
    foreign = [name for name in there if name not in own or page not in there]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UsageError(
            f"--out {out} holds files that no comparison wrote ({foreign[0]}{more}); give a folder that is new, empty or of an earlier "
            "comparison"
        )


def _pair(text: str) -> ArmPair:
    before, equals, after = text.partition("=")
    if not equals or not before or not after or "=" in after:
        raise argparse.ArgumentTypeError(f"{text!r} is no pair of arms; for example public=adapted")
    return before, after


def _name(result: Comparison, asked: Sequence[ArmPair] | None) -> str:
    """Return the name of the folder: another one for other runs and other pairs, so that no comparison overwrites another."""
    pairs = "-".join("=".join(pair) for pair in asked or ())
    if result.within:
        return _short(f"compared-{pairs}")
    before, after = (Path(side.path).resolve() for side in (result.before, result.after))
    stem = f"compared-with-{before.name}"
    if before.parent != after.parent:  # runs that are part of something else often share their name
        stem = f"compared-with-{before.parent.name}-{before.name}-{_digest(str(before))}"
    return _short(f"{stem}-{pairs}" if pairs else stem)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}-{_digest(name)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
