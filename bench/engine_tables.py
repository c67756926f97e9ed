"""Samples of the engine benchmark → the tables and verdicts that are printed. Computes from plain values alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from bench.machine import Machine

__all__ = ["report"]

Values = Mapping[str, Any]
_MISSING = "–"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure beside its limit: ``value`` is to be at least ``floor`` (or below ``ceiling``), and what bounds it."""

    section: str
    what: str
    value: float | None
    bound: str
    floor: float | None = None
    ceiling: float | None = None

    def row(self) -> list[str]:
        """Cells of the final table."""
        limit = f"≥ {self.floor:g}" if self.floor is not None else f"< {self.ceiling:g}"
        if self.value is None:
            return [self.section, self.what, _MISSING, limit, "not measured", self.bound]
        good = self.value >= self.floor if self.floor is not None else self.value < (self.ceiling or 0.0)
        return [self.section, self.what, f"{self.value:.3f}", limit, "reached" if good else "NOT reached", self.bound]


class _Section:
    """One section's samples, by case and arm."""

    def __init__(self, section: Values) -> None:
        self.samples: Sequence[Values] = section["samples"]

    def values(self, case: str, arm: str, key: str) -> list[float]:
        """One figure of each run, in order; runs without it left out."""
        found = (s.get(key) for s in self.samples if s["case"] == case and s["arm"] == arm)
        return [value for value in found if value is not None]

    def median(self, case: str, arm: str, key: str) -> float | None:
        """Median over the runs."""
        values = self.values(case, arm, key)
        return statistics.median(values) if values else None

    def ratio(self, case: str, arm: str, other: str, key: str) -> float | None:
        """Ratio of the medians of two arms."""
        above, below = self.median(case, arm, key), self.median(case, other, key)
        return None if above is None or not below else above / below

    def arms(self, case: str) -> list[str]:
        """Arms of a case, in order of appearance."""
        return list(dict.fromkeys(s["arm"] for s in self.samples if s["case"] == case))

    def cases(self) -> list[str]:
        """Cases in order of appearance."""
        return list(dict.fromkeys(s["case"] for s in self.samples))

    def sums(self, case: str, arm: str) -> dict[str, float]:
        """The rounds of all runs of an arm, added up."""
        total: dict[str, float] = {}
        for sums in (s["sums"] for s in self.samples if s["case"] == case and s["arm"] == arm):
            for key, value in sums.items():
                total[key] = total.get(key, 0) + value
        return total

    def common(self, case: str, arm: str, other: str) -> list[tuple[Values, Values]]:
        """The runs that both arms have made, of the same prompt in the same round."""
        runs: dict[str, dict[Any, Values]] = {arm: {}, other: {}}
        for s in self.samples:
            if s["case"] == case and s["arm"] in runs:
                runs[s["arm"]][s["prompt"], s["round"]] = s
        return [(s, runs[other][key]) for key, s in runs[arm].items() if key in runs[other]]

    def prompts(self, case: str, arm: str) -> dict[int, list[Values]]:
        """The runs of an arm by prompt."""
        found: dict[int, list[Values]] = {}
        for s in self.samples:
            if s["case"] == case and s["arm"] == arm:
                found.setdefault(s["prompt"], []).append(s)
        return found

    def rates(self) -> str:
        """Table of tokens a second: median and extremes of the whole call, median of the decoding alone."""
        rows = []
        for case in self.cases():
            for arm in self.arms(case):
                whole = self.values(case, arm, "whole_per_s")
                spread = f"{min(whole):.1f}–{max(whole):.1f}" if whole else None
                decode = self.median(case, arm, "decode_per_s")
                rows.append([case, arm, self.median(case, arm, "whole_per_s"), spread, decode])
        return tabulate(
            rows,
            ["case", "arm", "whole call, tokens/s", "from – to", "decoding, tokens/s"],
            floatfmt=".1f",
            missingval=_MISSING,
        )


def _pooled(samples: Sequence[Values]) -> float | None:
    """Tokens a second over some runs together: all tokens over all seconds of the whole calls."""
    seconds = sum(s["tokens"] / s["whole_per_s"] for s in samples)
    return sum(s["tokens"] for s in samples) / seconds if seconds else None


def _pooled_ratio(pairs: Sequence[tuple[Values, Values]]) -> float | None:
    """Ratio of the pooled rates of two arms that made the same runs."""
    above, below = _pooled([one for one, _ in pairs]), _pooled([other for _, other in pairs])
    return None if above is None or not below else above / below


def report(data: Values) -> str:
    """Everything that the file holds, section by section, then all ratios beside their limits."""
    lines = [_setup(data)]
    verdicts: list[Verdict] = []
    for name, render in _RENDER.items():
        if name in data["sections"]:
            text, found = render(data["sections"][name], data)
            whole = "" if data["sections"][name].get("complete") else " (broken off)"
            lines += ["", f"({name}){whole} {text}"]
            verdicts += found
    if verdicts:
        head = ["", "figure", "value", "limit", "", "what bounds it"]
        lines += ["", tabulate([verdict.row() for verdict in verdicts], head, disable_numparse=True)]
    return "\n".join(lines)


def _setup(data: Values) -> str:
    machine, target, settings = Machine(**data["machine"]), data["target"], data["settings"]
    floor_ms = _floor_ms(data, 1)
    vector_ms = 1e3 * target["weight_bytes"] / machine.vector_bytes_per_s
    return (
        f"{settings['threads']} thread(s), torch {settings['torch']}, transformers {settings['transformers']}; "
        f"target: {target['storage']}, {target['weight_bytes'] / 1e6:.0f} MB a pass\n"
        f"machine: memory read at {machine.read_bytes_per_s / 1e9:.1f} GB/s ({machine.vector_bytes_per_s / 1e9:.1f} by torch's own "
        f"matrix-vector product), {machine.flops_per_s / 1e9:.0f} GFLOP/s in large products\n"
        f"so a forward of one row takes {floor_ms:.1f} ms at least ({vector_ms:.1f} with that product): memory allows "
        f"{1e3 / floor_ms:.1f} tokens/s without drafting at batch 1; a forward of 16 rows takes {_floor_ms(data, 16):.1f} ms at least"
    )


def _floor_ms(data: Values, rows: int) -> float:
    machine = Machine(**data["machine"])
    return 1e3 * machine.forward_floor_s(data["target"]["weight_bytes"], rows)


def _forward_bound(data: Values, sums: Mapping[str, float], rows: int) -> str:
    """How much of the time is the forward, and how near it is to what the machine allows."""
    if not sums.get("rounds"):
        return "no full rounds"
    mean = sums["forward_ns"] / sums["rounds"] / 1e6
    share = sums["forward_ns"] / sums["wall_ns"]
    return f"forward {share:.0%} of a round, {mean:.1f} ms for {rows} row(s); machine's floor {_floor_ms(data, rows):.1f} ms"


def _drafting_bound(sums: Mapping[str, float], plain: Mapping[str, float]) -> str:
    if not sums.get("rounds") or not plain.get("rounds"):
        return "no rounds"
    cost = (sums["forward_ns"] / sums["rounds"]) / (plain["forward_ns"] / plain["rounds"])
    return (
        f"{sums['tokens'] / sums['rounds']:.2f} tokens a round, {sums['drafting_rounds'] / sums['rounds']:.0%} of rounds draft; "
        f"a forward costs {cost:.2f} plain ones"
    )


def _differences(section: Values) -> str:
    found = section.get("differences")
    if not found:
        return "all arms wrote the same tokens" if found is not None else "not compared"
    shown = [f"{d['arm']} ({d['case']} {d['prompt']}, token {d['at']}, {_gap(d['gap'])})" for d in found[:6]]
    return f"{len(found)} answers differ from the first arm's: " + "; ".join(shown)


def _gap(gap: float | None) -> str:
    return "gap not computed" if gap is None else f"logits {gap:.1e} apart"


def _one_request(section: Values, data: Values) -> tuple[str, list[Verdict]]:
    s = _Section(section)
    lines = [
        "batch 1, greedy; judged on the whole call, prompt included: all tokens over all seconds of a case's prompts"
    ]
    lines += [
        "the controller starts each run from the costs measured at the start, as transformers keeps nothing either"
    ]
    if ngrams := section.get("ngrams"):
        said = "; ".join(f"{who}: {longest} down to {shortest}" for who, (shortest, longest) in ngrams.items())
        lines.append(f"tokens that a lookup compares: {said}")
    lines += [_by_prompt(s), _differences(section)]
    verdicts = []
    controlled, theirs = "ours, lookup controlled", "transformers, lookup"
    for case in s.cases():
        plain = s.sums(case, "ours, plain")
        pairs = s.common(case, controlled, theirs)
        each = [
            _pooled_ratio([pair for pair in pairs if pair[0]["prompt"] == number])
            for number in s.prompts(case, controlled)
        ]
        bound = f"by prompt {', '.join(map(_number, each))}; {_drafting_bound(s.sums(case, controlled), plain)}"
        verdicts.append(
            Verdict("a", f"{case}: controller / transformers lookup", _pooled_ratio(pairs), bound, floor=1.3)
        )
        for arm, other in (
            ("ours, lookup controlled, short", theirs),
            (controlled, "ours, plain"),
            ("ours, lookup k 8", "ours, plain"),
            ("ours, plain", "transformers, plain"),
            (theirs, "transformers, plain"),
        ):
            lines.append(f"{case}: {arm} / {other}: {_number(_pooled_ratio(s.common(case, arm, other)))}")
        lines.append(f"{case}: ours, plain: {_forward_bound(data, plain, 1)}")
        allowed = 1e3 / _floor_ms(data, 1)
        reached = ((arm, s.median(case, arm, "decode_per_s")) for arm in ("ours, plain", "transformers, plain"))
        shares = ", ".join(f"{arm} decodes at {rate / allowed:.0%} of that" for arm, rate in reached if rate)
        lines.append(f"{case}: memory allows {allowed:.1f} tokens/s without drafting; {shares}")
    return "\n".join(lines), verdicts


def _by_prompt(s: _Section) -> str:
    """Table of tokens a second over the whole calls: all prompts of a case together, and each by itself."""
    rows = []
    for case in s.cases():
        for arm in s.arms(case):
            by_prompt = s.prompts(case, arm)
            together = _pooled([sample for samples in by_prompt.values() for sample in samples])
            rates = "  ".join(f"{_pooled(samples) or 0.0:.1f}" for samples in by_prompt.values())
            rows.append([case, arm, together, rates])
    return tabulate(rows, ["case", "arm", "tokens/s", "by prompt"], floatfmt=".1f", missingval=_MISSING)


def _full_batch(section: Values, data: Values) -> tuple[str, list[Verdict]]:
    s = _Section(section)
    peers = [(s.median("16", arm, "whole_per_s") or 0.0, arm) for arm in s.arms("16") if arm.startswith("transformers")]
    best = max(peers, default=(0.0, "–"))[1]
    bound = _forward_bound(data, s.sums("16", "ours, plain"), 16)
    verdict = Verdict("b", f"ours / {best}", s.ratio("16", "ours, plain", best, "whole_per_s"), bound, floor=1.2)
    head = "16 requests at once, greedy, no drafting; judged on the whole call, prompts included"
    return "\n".join([head, s.rates(), _differences(section)]), [verdict]


def _beside_llamacpp(section: Values, data: Values) -> tuple[str, list[Verdict]]:
    s = _Section(section)
    lines = ["no drafting; tokens/s from the last first token to the first last one, so without prompts", s.rates()]
    verdicts = []
    for case, floor in (("1", 0.6), ("16", 1.0)):
        runner = s.ratio(case, "ours, HTTP", "ours, runner", "decode_per_s")
        bound = _forward_bound(data, s.sums(case, "ours, runner"), int(case))
        bound += f"; HTTP keeps {_number(runner)} of the runner's rate"
        ratio = s.ratio(case, "ours, HTTP", "llama.cpp, HTTP", "decode_per_s")
        verdicts.append(Verdict("c", f"batch {case}: ours / llama.cpp, both over HTTP", ratio, bound, floor=floor))
    for same in section.get("same_text_as_ours", ()):
        lines.append(
            f"batch {same['case']}: the same text as ours over HTTP: llama.cpp {same['llama.cpp']}, runner {same['runner']}"
        )
    return "\n".join(lines), verdicts


def _shares(section: Values, data: Values) -> tuple[str, list[Verdict]]:
    s = _Section(section)
    verdicts, rows = [], []
    for arm in s.arms("copy"):
        sums = s.sums("copy", arm)
        if not sums.get("rounds"):
            continue
        share = sums["outside_ns"] / sums["wall_ns"]
        each = {key: sums[key] / sums["rounds"] / 1e6 for key in ("wall_ns", "forward_ns", "draft_ns", "outside_ns")}
        rows.append([arm, sums["rounds"], *each.values(), f"{share:.1%}"])
        bound = f"{each['outside_ns']:.2f} ms of {each['wall_ns']:.1f} ms a round"
        verdicts.append(Verdict("d", f"{arm}: share outside forwards", share, bound, ceiling=0.1))
    head = ["arm", "rounds", "round, ms", "target forward, ms", "drafter, ms", "outside, ms", "outside"]
    title = (
        "batch 1: a round's wall time outside the target's forward and the drafter's work, the caller's loop included"
    )
    return "\n".join([title, tabulate(rows, head, floatfmt=".3f")]), verdicts


def _realised(section: Values, data: Values) -> tuple[str, list[Verdict]]:
    s = _Section(section)
    verdicts, rows = [], []
    for case in s.cases():
        worst: tuple[float, str] | None = None
        for arm in s.arms(case)[1:]:
            plain, sums = s.sums(case, "plain"), s.sums(case, arm)
            if not plain.get("rounds") or not sums.get("rounds"):
                continue
            each = {key: sums[key] / sums["rounds"] / 1e6 for key in ("draft_ns", "forward_ns", "wall_ns")}
            t_ar = plain["wall_ns"] / plain["rounds"] / 1e6
            length = 1 + sums["accepted"] / (sums["rounds"] * int(case))
            predicted = length * t_ar / (each["draft_ns"] + each["forward_ns"])
            speed_up = (sums["tokens"] / sums["wall_ns"]) / (plain["tokens"] / plain["wall_ns"])
            ratio = speed_up / predicted
            rows.append([case, arm, length, t_ar, each["draft_ns"], each["forward_ns"], predicted, speed_up, ratio])
            worst = min(worst or (ratio, arm), (ratio, arm))
        value, arm = worst or (None, _MISSING)
        bound = f"worst arm: {arm}; the rest is time outside forwards"
        verdicts.append(Verdict("e", f"batch {case}: realised / AL·T_ar/(T_draft+T_verify)", value, bound, floor=0.9))
    head = ["batch", "arm", "AL", "T_ar, ms", "T_draft, ms", "T_verify, ms", "allowed", "realised", "ratio"]
    title = (
        "speed-up over no drafting, rounds in which the whole batch decoded. AL = tokens a sequence and round, rounds without a\n"
        "draft included; T_ar a whole round without drafting; T_draft the drafter's work and T_verify the target's forward, a round.\n"
        "Text of the synthetic arms is not the target's."
    )
    return "\n".join([title, tabulate(rows, head, floatfmt=".3f")]), verdicts


def _verify_costs(section: Values, data: Values) -> tuple[str, list[Verdict]]:
    cells = {(cell["batch"], cell["rows_per_sequence"]): cell for cell in section["grid"]}
    batches, rows = sorted({b for b, _ in cells}), sorted({r for _, r in cells})
    made = []
    for batch in batches:
        one = cells[batch, 1]["measured_ms"]
        shown = (cells[batch, r]["measured_ms"] for r in rows)
        made.append([batch, *(f"{ms:.1f} ({ms / one:.2f})" for ms in shown)])
    head = ["batch", *(f"{r} token{'s' * (r > 1)}" for r in rows)]
    lines = ["a verify forward, ms (and times one of one token at the same batch), by sequences and tokens a sequence"]
    lines.append(tabulate(made, head))
    errors = sorted(abs(c["model_ms"] / c["measured_ms"] - 1) for c in cells.values() if c["model_ms"] is not None)
    if errors:
        lines.append(
            f"the cost model is off by {statistics.median(errors):.0%} at the median, {errors[-1]:.0%} at worst"
        )
    return "\n".join(lines), []


def _number(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.2f}"


_RENDER: Mapping[str, Callable[[Values, Values], tuple[str, list[Verdict]]]] = {
    "a": _one_request,
    "b": _full_batch,
    "c": _beside_llamacpp,
    "d": _shares,
    "e": _realised,
    "f": _verify_costs,
}
