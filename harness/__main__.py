"""``python -m harness`` and the console script."""

from __future__ import annotations

import os
import sys

from harness import cli

_AT_ONCE = ("report",)
"""Commands that leave nothing behind but files, and a gigabyte of figures, which take a quarter of a second to be given back one by one."""


def main() -> None:
    """Run the command of the command line and end with its exit code."""
    code = cli.run(sys.argv[1:])
    if sys.argv[1] in _AT_ONCE:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
