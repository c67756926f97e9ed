"""Findings about servers whose settings differ in more than the drafter."""

from __future__ import annotations

from typing import Any

from harness.analysis.plan import WorkloadPlan
from harness.analysis.server_flags import findings
from reports import servers
from reports.wording import wording

PLAN = WorkloadPlan(
    "office", "w.yaml", None, "0", (), {"base": "none", "one": "ngram", "two": "eagle3"}, (1,), 2, 0.0, "recorded", {}, (), None
)  # fmt: skip


def manifest(**arms: dict[str, str] | None) -> dict[str, Any]:
    """Return a manifest whose arms have these settings, ``None``: unknown."""
    described = {
        arm: {"flags": {"source": None if values is None else "command", "values": values or {}}}
        for arm, values in arms.items()
    }
    return {"engine": {"arms": described, "probed": {}}}


def test_only_what_is_not_the_drafters_is_found() -> None:
    """One arm differs in the drafter alone, the other in two settings more: it alone is named, with both values of each."""
    one = {"dtype": "bf16", "speculative-config": "x"}
    two = {"dtype": "fp8", "max-num-seqs": "8", "speculative-config": "y"}
    (found,) = findings(manifest(base={"dtype": "bf16"}, one=one, two=two), [PLAN])
    assert (found.code, found.severity, found.arm) == ("flags_differ", "warning", "two")
    assert found.values == {"n_flags": 2, "flags": "dtype: bf16 → fp8, max-num-seqs: – → 8"}


def test_unknown_settings_are_said_to_be_unknown() -> None:
    """A server that tells nothing is no server with the same settings."""
    (found,) = findings(manifest(base={"dtype": "bf16"}, one=None), [PLAN])
    assert (found.code, found.severity, found.arm) == ("flags_unknown", "note", "one")
    assert list(findings({"engine": {"arms": {"base": {"method": "none"}, "one": None}}}, [PLAN])) == []
    assert list(findings({"engine": None}, [PLAN])) == []


def test_the_page_shows_every_arm_beside_the_others() -> None:
    """What is not the drafter's stands first with a mark, in both languages; a note says it in a sentence."""
    given = manifest(base={"dtype": "bf16"}, one={"dtype": "fp8", "spec-type": "x"})
    assert servers.flags(given, wording("en")).rows == (
        ("dtype", "⚠ not the drafter", "bf16", "fp8"), ("spec-type", "the drafter", "–", "x"),
    )  # fmt: skip
    assert servers.note(given, wording("en")) == (
        "⚠ The servers differ in more than the drafter (dtype): a speed-up is that of both together."
    )
    assert "드래프터 외에도" in (servers.note(given, wording("ko")) or "")
    same = manifest(base={"dtype": "bf16"}, one={"dtype": "bf16", "spec-type": "x"})
    assert servers.note(same, wording("en")) == "The servers' settings differ in nothing but the drafter."
    assert servers.note({"engine": {"arms": {}}}, wording("en")) is None


def test_the_page_shows_what_servers_told() -> None:
    """A fact that a server did not tell stands with the reason and what would let it."""
    given = manifest(base={}, one={})
    known = {"value": "0.32.0", "how": "/version", "remedy": None}
    asked = {"value": None, "how": "the answer held none", "remedy": "--per-request-spec-decode-metrics"}
    given["engine"]["probed"] = {"base": {"version": known, "extra_body": {}}, "one": {"version": asked}, "two": None}
    assert servers.facts(given, wording("en")).rows == (
        ("version", "0.32.0", "– (the answer held none; --per-request-spec-decode-metrics)"),
    )  # fmt: skip
