"""``python -m harness`` and the console script."""

from __future__ import annotations

import os
import sys

from harness.errors import INTERRUPTED

_REPORT = "report"
_ALLOCATOR = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:3000,muzzy_decay_ms:-1,narenas:2")
"""Read by polars when it is loaded: memory that a step of the analysis gives back stays with the process for the next one. Otherwise the
system takes it and clears it again, a twentieth of the time that a large report takes. That no thread has a store of its own takes the
tenth of memory back that this costs."""


def main() -> None:
    """Run the command of the command line and end with its exit code."""
    reporting = sys.argv[1:2] == [_REPORT]
    if reporting:
        os.environ.setdefault(*_ALLOCATOR)
    try:
        from harness import cli

        code = cli.run(sys.argv[1:])
    except KeyboardInterrupt:  # so early that the command line could not answer it
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    if (
        reporting
    ):  # it leaves files and a gigabyte of figures, which take a quarter of a second to be given back one by one
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
