"""Pages that several tests look at, rendered once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from reports.page import render
from tests.reports import sample
from tests.reports.browser import Browser

RUNS = {
    make.__name__: make
    for make in (sample.small, sample.with_failures, sample.never_crossing, sample.one_cell, sample.empty)
}


class Pages:
    """The page of each run of ``RUNS`` in each language, rendered when it is first asked for."""

    @cache  # noqa: B019 - one object for the whole session
    def __getitem__(self, key: tuple[str, str]) -> str:
        name, lang = key
        return render(RUNS[name](), lang)


@pytest.fixture(scope="session")
def pages() -> Pages:
    """Return the pages of all runs."""
    return Pages()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return a browser for the whole session: starting one takes longer than all it is asked."""
    with Browser() as started:
        yield started


@pytest.fixture(scope="session")
def written(pages: Pages, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Return the same pages as files."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name in RUNS:
        for lang in ("ko", "en"):
            path = folder / f"{name}.{lang}.html"
            path.write_text(pages[name, lang], encoding="utf-8")
            found[name, lang] = path
    return found
