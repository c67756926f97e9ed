"""The parts of which a page is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from reports.charts import Chart
from reports.tables import Table
from reports.wording import Wording


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page: ``notes`` say what is missing and why, ``bullets`` are a plain list, ``code`` command lines."""

    id: str
    title: str
    lead: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    detail: bool = False  # set in smaller type
    sign: bool = False  # with lines for date, name and signature where it is printed


@dataclass(frozen=True, slots=True)
class Headline:
    """One sentence of the verdict with how certain it is."""

    text: str
    certainty: str
    certainty_text: str


def page(words: Wording, content: Mapping[str, Any]) -> str:
    """Return the whole page as text; ``content`` fills the template: title, subtitle, headlines, nothing, sections."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(resources.files("reports").joinpath("template.html").read_text(encoding="utf-8"))
    return template.render(lang=words.lang, words=words, svg=Markup, **content)
