"""Draws the pictures of the README from the tests' example run: ``python -m tests.reports.pictures``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from reports.page import render
from tests.reports import sample
from tests.reports.browser import Browser

FOLDER = Path(__file__).parents[2] / "reports" / "published"
PICTURES = {  # name: language, width and height in CSS pixels, colours
    "report-laptop.png": ("en", 1180, 1000, "light"),
    "report-phone.png": ("ko", 390, 1000, "dark"),
}
MOST_BYTES = 300_000


def main() -> None:
    """Write the pictures; a page is shown from its top.

    Raises:
        ValueError: if a picture is larger than a README should have.
    """
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        for name, (lang, width, height, colours) in PICTURES.items():
            page = Path(folder) / f"{name}.html"
            page.write_text(render(sample.small(), lang), encoding="utf-8")
            browser.resize(width, height, phone=width < 600)
            browser.media("screen", prefers_color_scheme=colours)
            browser.open(page)
            browser.value("window.scrollTo(0, 0)")
            data = browser.picture(whole=False)
            if len(data) > MOST_BYTES:
                raise ValueError(f"{name} has {len(data):,} bytes, more than {MOST_BYTES:,}")
            (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
