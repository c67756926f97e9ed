"""Reports in a real browser: on a phone, on a laptop, on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.wording import LANGUAGES, wording
from tests.reports.browser import Browser
from tests.reports.conftest import RUNS

PHONE, LAPTOP = 390, 1366  # CSS pixels
PAPER = 703  # A4 less its margins: 186 mm
PAPER_HEIGHT = 1016  # 269 mm
Written = dict[tuple[str, str], Path]

# boxes that stick out of the page, but for what scrolls by itself
OUTSIDE = """
[...document.querySelectorAll('h1, h2, p, li, figure, svg, pre, nav, .scroll, .headline')]
  .filter(node => node.getClientRects().length && node.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(node => node.outerHTML.slice(0, 120))
"""
CUT_BY_PAPER = """
[...document.querySelectorAll('table, figure, pre, svg')]
  .filter(node => node.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(node => [Math.round(node.getBoundingClientRect().right), node.textContent.trim().slice(0, 80)])
"""
CUT_IN_TWO = """
[...document.querySelectorAll('figure, table.short, tr')]
  .filter(node => getComputedStyle(node).breakInside !== 'avoid' || node.getBoundingClientRect().height > %d)
  .map(node => node.outerHTML.slice(0, 120))
"""
LABELS_CUT = """
[...document.querySelectorAll('svg text')].filter(text => {
  const [own, all] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
  return own.width && (own.left < all.left - 1 || own.right > all.right + 1 || own.top < all.top - 1 || own.bottom > all.bottom + 1);
}).map(text => text.textContent)
"""
COLOURS = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
every_page = pytest.mark.parametrize(("name", "lang"), [(name, lang) for name in RUNS for lang in LANGUAGES])


def size(browser: Browser) -> Any:
    """Return the width of the page's content and of its window."""
    return browser.value("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")


@every_page
def test_a_page_fits_phone_laptop_and_paper(browser: Browser, written: Written, name: str, lang: str) -> None:
    """No message on the console, no request, nothing sticks out, no label of a chart is cut, nothing is cut by the edge of a sheet."""
    browser.media("screen")
    browser.resize(LAPTOP)
    seen = browser.open(written[name, lang])
    assert size(browser) == [LAPTOP, LAPTOP]
    assert browser.value(OUTSIDE) == []
    assert browser.value(LABELS_CUT) == []
    browser.resize(PHONE, phone=True)
    assert size(browser) == [PHONE, PHONE]
    assert browser.value(OUTSIDE) == []
    browser.media("print")
    browser.resize(PAPER)
    assert browser.value(CUT_BY_PAPER) == []
    assert browser.value(CUT_IN_TWO % PAPER_HEIGHT) == []
    assert seen.console == []
    assert seen.requests == []


@every_page
def test_a_page_can_be_heard(browser: Browser, written: Written, name: str, lang: str) -> None:
    """Headings in order, every chart with a name that says what it shows, every table with a name."""
    browser.media("screen")
    browser.resize(LAPTOP)
    browser.open(written[name, lang])
    heard = browser.accessible()
    levels = browser.value("[...document.querySelectorAll('h1, h2, h3, h4')].map(node => node.tagName)")
    assert levels == ["H1", *["H2"] * (len(levels) - 1)]
    assert [text for role, text in heard if role == "heading"][1] == wording(lang).text("section.verdict")
    charts = [text for role, text in heard if role in ("image", "img")]
    assert len(charts) == browser.value("document.querySelectorAll('svg').length")
    assert all(len(text) > 30 for text in charts)
    tables = [text for role, text in heard if role == "table"]
    assert tables
    assert all(tables)


def test_a_page_is_dark_where_the_reader_wants_it(browser: Browser, written: Written) -> None:
    """The page follows the system; on paper it is always light."""
    browser.open(written["small", "ko"])
    browser.media("screen", prefers_color_scheme="light")
    light = browser.value(COLOURS)
    browser.media("screen", prefers_color_scheme="dark")
    assert browser.value(COLOURS) != light
    browser.media("print", prefers_color_scheme="dark")
    assert browser.value(COLOURS)[0] == light[0]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_page_prints(browser: Browser, written: Written, lang: str) -> None:
    """The browser makes sheets of it."""
    browser.open(written["with_failures", lang])
    browser.media("")
    assert browser.pdf().startswith(b"%PDF-")
