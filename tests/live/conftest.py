"""Options and the model of the tests with real servers.

``make test-engines`` runs them; ``make test-engines ENGINES=--quick`` is a pass of some minutes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.models import resolve, resolve_folder
from tests.live.running import ROOT, Place

MODELS = ROOT / ".models"
REPORTS = Path("reports/runs/engines")
CONTEXT = 5120


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; they are known only where this folder is named on the command line."""
    group = parser.getgroup("real servers")
    group.addoption(
        "--quick", action="store_true", help="two tasks a cell, short answers, concurrency 1 and 2, one repeat"
    )
    group.addoption(
        "--reports", type=Path, default=REPORTS, help=f"folder for the runs and their reports (default {REPORTS})"
    )
    group.addoption(
        "--target", default="smollm2-135m", help="the model: a name of `harness models list`, or a Hugging Face folder"
    )
    group.addoption("--report-lang", default="en", choices=("ko", "en"), help="language of the reports (default en)")


@pytest.fixture(scope="session")
def place(pytestconfig: pytest.Config) -> Place:
    """Where and how long the servers are measured."""
    reports: Path = pytestconfig.getoption("--reports")
    reports.mkdir(parents=True, exist_ok=True)
    return Place(reports, quick=pytestconfig.getoption("--quick"), lang=pytestconfig.getoption("--report-lang"))


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> str:
    """The model's Hugging Face folder, by a path below the repository: the reports name it, and no folder of this machine."""
    name = pytestconfig.getoption("--target")
    folder = resolve_folder(name).path
    MODELS.mkdir(exist_ok=True)
    link = MODELS / Path(name).name
    link.unlink(missing_ok=True)
    link.symlink_to(folder.resolve(), target_is_directory=True)
    return link.relative_to(ROOT).as_posix()


@pytest.fixture(scope="session")
def context(target: str) -> int:
    """Tokens of context for each request: what the tasks need with a tokenizer of English, or all that the model has."""
    config = json.loads((ROOT / target / "config.json").read_text(encoding="utf-8"))
    return min(CONTEXT, int(config["max_position_embeddings"]))


@pytest.fixture(scope="session")
def gguf(pytestconfig: pytest.Config) -> Path:
    """The same model as a GGUF file; a name of the catalogue has one."""
    return resolve(pytestconfig.getoption("--target")).path
