"""The figures of the drafter families as tables, sentences, CSV, Markdown and one HTML page, in Korean and in English."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from bench.families_figures import Figures
from bench.families_input import command
from bench.families_tables import markdown_table, missing_classes, signed, tables
from reports.sections import Headline, Section, page
from reports.tables import write_frame
from reports.trust import started
from reports.wording import LANGUAGES, UNKNOWN, Wording, interval, wording

__all__ = ["draft_lengths", "headlines", "run_lines", "subtitle", "words_of", "write_all"]

CSV = {
    "families": ("language_group", "text_type"),
    "families_change": ("language_group", "text_type"),
    "families_lossless": (),
}


def words_of(lang: str) -> Wording:
    """Return the texts of the reports with those of this benchmark over them. Raises UsageError for an unknown language."""
    known = wording(lang)
    own: dict[str, str] = yaml.safe_load(Path(__file__).with_name(f"families.{lang}.yaml").read_text("utf-8"))
    return Wording(lang, {**known.texts, **own})


def write_all(figures: Figures, folder: Path) -> list[Path]:
    """Write the CSV files, ``families.{lang}.md`` and ``families.{lang}.html`` and return their paths."""
    frames = (figures.table, figures.change, figures.lossless)
    made = [
        write_frame(frame, folder / f"{name}.csv", pooled)
        for (name, pooled), frame in zip(CSV.items(), frames, strict=True)
    ]
    for lang in LANGUAGES:
        words = words_of(lang)
        for ending, text in (("md", _markdown(figures, words)), ("html", _html(figures, words))):
            made.append(folder / f"families.{lang}.{ending}")
            made[-1].write_text(text, "utf-8", newline="\n")
    return made


def headlines(figures: Figures, words: Wording) -> list[Headline]:
    """Return what the run says in sentences, each with how certain it is."""
    found = [*_changes(figures, words), *_speeds(figures, words)]
    frame = figures.lossless
    if frame.height:
        values = {
            "n": frame["n_steps"].sum(), "identical": frame["n_identical"].sum(), "planned": frame["n_planned"].max(),
            "distinct": frame["n_distinct"].min(), "arms": frame["arm"].n_unique(), "loads": ", ".join(map(str, figures.loads)),
        }  # fmt: skip
        same = figures.unchanged
        found.append(_said(words, "same" if same else "same_partly", "clear" if same else "limited", values))
    return found


def _changes(figures: Figures, words: Wording) -> list[Headline]:
    office = figures.change.filter((pl.col("language_group") == "ko") & (pl.col("text_type") == "office"))
    found = []
    for row in office.sort("acceptance_length_after", descending=True).head(1).iter_rows(named=True):
        low, high = row["acceptance_length_change_low"], row["acceptance_length_change_high"]
        values = {
            "after_arm": row["arm_after"], "before_arm": row["arm_before"], "after": row["acceptance_length_after"],
            "before": row["acceptance_length_before"], "change": signed(row["acceptance_length_change"]), "low": signed(low),
            "high": signed(high), "n": row["n_tasks"],
        }  # fmt: skip
        found.append(_said(words, "change", _level(low, high, 0.0), values))
    return found


def _speeds(figures: Figures, words: Wording) -> list[Headline]:
    whole = figures.table.filter(pl.col("language_group").is_null())
    found = []
    for load in figures.loads:
        name = f"speed_up_{load}"
        ranked = whole.filter(pl.col(name).is_not_null()).sort(name, descending=True).to_dicts()
        if not ranked:
            continue
        best, worst = ranked[0], ranked[-1]
        shown = [interval(row[name], row[f"{name}_low"], row[f"{name}_high"], "x") for row in (best, worst)]
        values = {
            "load": load, "arm": best["arm"], "speed_up": shown[0], "worst": worst["arm"], "worst_speed_up": shown[1],
        }  # fmt: skip
        found.append(_said(words, "speed", _level(best[f"{name}_low"], best[f"{name}_high"], 1.0), values))
    return found


def _level(low: float | None, high: float | None, nothing: float) -> str:
    if low is None or high is None:
        return "unknown"
    return "clear" if low > nothing or high < nothing else "unsure"


def _said(words: Wording, key: str, level: str, values: dict[str, Any]) -> Headline:
    return Headline(words.text(f"said.{key}", **values), level, words.text(f"certainty.means.{level}"))


def run_lines(figures: Figures, words: Wording) -> list[str]:
    """Say what was run: tasks, versions, and what the run's own checks found."""
    workloads = figures.manifest["workloads"]
    first = workloads[0]
    lines = [
        words.text(
            "run.counts",
            workloads=", ".join(str(item["name"]) for item in workloads),
            tasks=sum(item["n_tasks"] for item in workloads),
            steps=sum(item["n_steps"] for item in workloads),
            repeats=first["repeats"],
            waits=first["replay"]["tool_wait"],
            max_tokens=first["sampling"]["max_tokens"],
        )
    ]
    versions = figures.manifest.get("versions") or {}
    told = ", ".join(f"{name} {value}" for name, value in versions.items() if value)
    if told:
        lines.append(words.text("run.versions", versions=told))
    counts: dict[str, int] = {}
    for finding in figures.findings:
        if finding.severity != "note":
            counts[finding.code] = counts.get(finding.code, 0) + 1
    items = ", ".join(f"{words.optional(f'mark.{code}') or code} ×{count}" for code, count in counts.items())
    lines.append(words.text("run.findings", items=items) if counts else words.text("run.no_findings"))
    return lines


def draft_lengths(figures: Figures) -> str:
    """Return each arm's drafted tokens a round, arms of one length together: ``4: public-medusa, …``."""
    found: dict[str, list[str]] = {}
    for arm in figures.manifest["workloads"][0]["arms"]:
        count = (arm.get("options") or {}).get("num_tokens")
        if count is not None:
            found.setdefault(str(count), []).append(arm["name"])
    return "; ".join(f"{count}: {', '.join(names)}" for count, names in sorted(found.items()))


def subtitle(figures: Figures, words: Wording) -> str:
    """Return the line below the title: model, machine, time."""
    machine = figures.manifest.get("machine") or {}
    first = figures.manifest["workloads"][0]
    told = ", ".join(str(machine[key]) for key in ("processor", "cores") if machine.get(key)) or platform.machine()
    model = (first.get("engine") or {}).get("model")
    return words.text("subtitle", model=model, machine=told, created=started(figures.manifest))


def _html(figures: Figures, words: Wording) -> str:
    found = tables(figures, words)
    lengths = words.text("lengths", items=draft_lengths(figures)) if draft_lengths(figures) else ""
    missing = missing_classes(figures, words)
    sections = [
        Section(
            name,
            words.text(f"section.{name}"),
            words.text(f"lead.{name}", num_tokens=lengths),
            tables=(found[name],) if found[name].rows else (),
            notes=(missing,) if missing and name == "families" else (),
        )
        for name in ("families", "survival", "change", "lossless")
    ]
    run = Section(
        "run", words.text("section.run"), words.text("lead.run"), bullets=tuple(run_lines(figures, words)),
        code=((words.text("run.command"), command(figures.manifest)),),
    )  # fmt: skip
    content = {
        "title": words.text("title"),
        "subtitle": subtitle(figures, words),
        "headlines": headlines(figures, words),
        "nothing": None,
        "sections": [*sections, run],
    }
    return page(words, content)


def _markdown(figures: Figures, words: Wording) -> str:
    found = tables(figures, words)
    lengths = words.text("lengths", items=draft_lengths(figures)) if draft_lengths(figures) else ""
    parts = [f"# {words.text('title')}", subtitle(figures, words)]
    parts += [f"- {line.text}" for line in headlines(figures, words)]
    for name, content in found.items():
        parts += [f"## {words.text(f'section.{name}')}", words.text(f"lead.{name}", num_tokens=lengths).strip()]
        parts.append(markdown_table(content) if content.rows else UNKNOWN)
        missing = missing_classes(figures, words)
        if name == "families" and missing:
            parts.append(missing)
    parts += [
        f"## {words.text('section.run')}",
        *(f"- {line}" for line in run_lines(figures, words)),
        f"```\n{command(figures.manifest)}\n```",
    ]
    return "\n\n".join(parts) + "\n"
