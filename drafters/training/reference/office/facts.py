"""Made-up values: dates, amounts, document numbers, names, and tables with the figures that a summary takes from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, timedelta

from drafters.training.reference.office.grammar import Document

WEEKDAYS = "월화수목금토일"
FIRST_DAY = date(2025, 1, 2)


def _day(document: Document) -> date:
    return FIRST_DAY + timedelta(days=document.rng.randrange(730))


def _date(document: Document) -> str:
    day = _day(document)
    return f"{day.year}. {day.month}. {day.day}.({WEEKDAYS[day.weekday()]})"


def _short_date(document: Document) -> str:
    day = _day(document)
    style = document.rng.choice(["{m}. {d}.({w})", "{m}월 {d}일({w})", "{m}/{d}({w})", "{m}월 {d}일"])
    return style.format(m=day.month, d=day.day, w=WEEKDAYS[day.weekday()])


def _money(document: Document) -> str:
    value = document.rng.randrange(12, 9900) * 10 ** document.rng.choice([3, 4])
    return document.rng.choice([f"{value:,}원", f"{value:,}원", f"{value // 1000:,}천 원", f"{value // 10000:,}만 원"])


def _price(document: Document) -> str:
    return f"{document.rng.randrange(400, 39999) / 100:.2f}"


def _person(document: Document) -> str:
    return document.expand("$surname$given")


def _time(document: Document) -> str:
    return f"{document.rng.randrange(7, 20):02d}:{document.rng.randrange(0, 60, 5):02d}"


def _code(document: Document) -> str:
    letters = "".join(document.rng.choice("ABCDEFGHKLMNPRSTVWX") for _ in range(2))
    return f"{letters}-{document.rng.randrange(1000, 99999)}"


def _path(document: Document) -> str:
    rng = document.rng
    first = rng.choice(["src", "app", "lib", "core", "billing", "orders", "tools", "services", "settle", "common/io"])
    stem = rng.choice(
        ["client", "parser", "report", "cache", "queue", "loader", "export", "policy", "rates", "session"]
    )
    return f"{first}/{stem}{rng.choice(['', '_v2', '_base', 's'])}.{rng.choice(['py', 'py', 'py', 'ts', 'java'])}"


MAKERS: Mapping[str, Callable[[Document], str]] = {
    "date": _date,
    "day": _short_date,
    "iso": lambda document: _day(document).isoformat(),
    "month": lambda document: f"{document.rng.randrange(1, 13)}월",
    "quarter": lambda document: f"{document.rng.randrange(1, 5)}분기",
    "time": _time,
    "n": lambda document: str(document.rng.randrange(2, 60)),
    "big": lambda document: f"{document.rng.randrange(100, 99999):,}",
    "pct": lambda document: f"{document.rng.randrange(1, 400) / 10:.1f}%",
    "money": _money,
    "price": _price,
    "person": _person,
    "who": lambda document: document.expand("$person $rank"),
    "doc_no": lambda document: document.expand(f"$dept-{document.rng.randrange(11, 990)}"),
    "code": _code,
    "ticket": lambda document: str(document.rng.randrange(10000, 99999)),
    "path": _path,
    "name_en": lambda document: document.expand("$first_en $last_en"),
    "line": lambda document: str(document.rng.randrange(3, 300)),
}
"""Values that are made rather than taken from a list."""

MEASURES = (
    ("건수", "건"),
    ("매출", "만 원"),
    ("생산", "개"),
    ("불량", "개"),
    ("집행액", "천 원"),
    ("문의", "건"),
    ("출고", "박스"),
)
MEASURES_EN = (("orders", "orders"), ("sales", "EUR"), ("returns", "items"), ("calls", "calls"), ("units", "units"))


def add_table(document: Document, entity: str, english: bool = False) -> None:
    """Bind ``$table`` (CSV, JSON, pipes or lines) and the figures in it: ``$row1``…, ``$total``, ``$top`` and more.

    Sums, shares and differences are exact, so that a summary can be true.
    """
    rng, bound = document.rng, document.bound
    names: list[str] = []
    while len(names) < rng.randrange(3, 7):
        name = document.expand(f"${entity}")
        if name not in names:
            names.append(name)
    measure, unit = rng.choice(MEASURES_EN if english else MEASURES)
    before = [rng.randrange(20, 2000) for _ in names]
    now = [max(1, round(value * rng.uniform(0.6, 1.6))) for value in before]
    heads = ["name", measure, "previous"] if english else ["구분", f"{measure}({unit})", "전월"]
    rows = [[name, str(new), str(old)] for name, new, old in zip(names, now, before, strict=True)]
    total = [("total" if english else "합계"), str(sum(now)), str(sum(before))]
    bound["table"] = _render(rng.choice(["csv", "json", "pipe", "lines"]), heads, [*rows, total])
    top = max(range(len(names)), key=lambda index: now[index])
    low = min(range(len(names)), key=lambda index: now[index])
    most = max(range(len(names)), key=lambda index: now[index] - before[index])
    change = (sum(now) - sum(before)) / sum(before) * 100
    word = ("up" if change >= 0 else "down") if english else ("증가" if change >= 0 else "감소")
    space = " " if english or unit[0].isascii() or " " in unit else ""
    bound |= {
        "measure": measure,
        "unit": unit,
        "total": f"{sum(now):,}{space}{unit}",
        "previous": f"{sum(before):,}{space}{unit}",
        "change": f"{abs(change):.1f}%",
        "word": word,
        "top": names[top],
        "top_value": f"{now[top]:,}{space}{unit}",
        "top_share": f"{now[top] / sum(now) * 100:.1f}%",
        "low": names[low],
        "low_value": f"{now[low]:,}{space}{unit}",
        "most": names[most],
        "most_from": f"{before[most]:,}{space}{unit}",
        "most_to": f"{now[most]:,}{space}{unit}",
        "list": ", ".join(f"{name} {new:,}{space}{unit}" for name, new in zip(names, now, strict=True)),
        "bullets": "\n".join(f" ㅇ {row[0]}: {row[2]} → {row[1]}{space}{unit}" for row in rows),
    }


def _render(style: str, heads: list[str], rows: list[list[str]]) -> str:
    if style == "csv":
        return "\n".join(",".join(row) for row in [heads, *rows])
    if style == "json":
        return json.dumps({"rows": [dict(zip(heads, row, strict=True)) for row in rows]}, ensure_ascii=False)
    if style == "pipe":
        return "\n".join(" | ".join(row) for row in [heads, *rows])
    return "\n".join(f"{row[0]}: {heads[1]} {row[1]}, {heads[2]} {row[2]}" for row in rows)
