"""A process that starts over for large pages."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from drafters.engine.large_pages import start_with_large_pages
start_with_large_pages()
print(os.environ.get("GLIBC_TUNABLES"), os.getpid(), sys.argv[1:], sys.flags.dev_mode)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library is told")
@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.perturb=0", "glibc.malloc.perturb=0:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_it_starts_over_once_with_its_own_command_line(told: str | None, expected: str, tmp_path: Path) -> None:
    """The setting is added to what the user has set and never replaces it; number, arguments and options stay."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    environment |= {"PYTHONPATH": str(Path.cwd())} | ({} if told is None else {"GLIBC_TUNABLES": told})
    command = [sys.executable, "-X", "dev", str(program), "one", "--two"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        printed = process.communicate(timeout=60)[0]
    assert printed == f"{expected} {process.pid} ['one', '--two'] True\n"
