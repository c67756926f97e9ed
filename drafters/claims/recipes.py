"""The stages that claims are made of: texts, answers, states, trainings, measurements, all with the shipped drafters' settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from drafters.claims.scale import Form, Setting, family_settings
from drafters.claims.stages import Cost, Place, Stage
from drafters.training.reference.prompts import LABELS

__all__ = [
    "CODE",
    "ENGLISH",
    "ESSAY",
    "KOREAN",
    "LAST",
    "MIX",
    "OFFICE",
    "Arm",
    "Body",
    "Recipes",
    "checkpoint",
    "length",
    "seeded",
    "shipped",
]

OFFICE, ESSAY, ENGLISH, CODE = "office-ko", "essay-ko", "support-en", "coding-en"
"""Workloads by what they show: Korean office work, Korean free prose, English, code."""
KOREAN = {"office-ko": 220, "agent-ko": 380, "essay-ko": 60}
"""Generated documents by part, where a drafter is to learn Korean office work."""
REPLAYED = {"agent-en": 240, "agent-code": 240}
"""English and code beside them."""
REPLAYED_LABELS = {"agent-en": "en/dialogue", "agent-code": "code/dialogue"}
"""The coding dialogues are what there is of code: a mix counts them as such."""
MIX = "ko=0.5,en=0.28,code=0.22"
LAST = {"stop-on": "nothing"}
"""Kept are the last weights: by a held-out figure those that a training began with may win, and would then be measured in its name."""
PER_ANSWER_TOKEN = 4
"""About so many tokens an example has for each that the target wrote in it."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body of text to learn from: what the target answered, and its states on it."""

    answers: Stage
    states: Stage


@dataclass(frozen=True, slots=True)
class Arm:
    """One drafter in a measurement; ``place`` is its checkpoint or table, where it has one."""

    name: str
    method: str
    place: Place | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def word(self) -> str | Place:
        """As ``drafters evaluate --drafter`` takes it."""
        said = "".join(f",{key}={value}" for key, value in self.options.items())
        if self.place is None:
            return f"{self.name}={self.method}{said}"
        key = "corpus" if self.method == "ngram" else "model"
        begin = f"{self.name}={self.method}{said},{key}="
        return Place(self.place.source, self.place.part, begin, "")


def seeded(label: str, seed: int) -> str:
    """An arm's name for one of several trainings; `drafters.claims.counts` takes it apart."""
    return f"{label}-s{seed}"


@dataclass(frozen=True, slots=True)
class Recipes:
    """Stages at one scale."""

    setting: Setting

    def documents(self, name: str, words: Sequence[str], seed: int = 3) -> Stage:
        """Generated texts or tasks; ``words`` say which (``drafters claims documents``)."""
        return Stage(name, ("claims", "documents", *words, "--seed", str(seed)))

    def corpus(self, name: str, documents: Stage, labels: Mapping[str, str], mask: str = "none") -> Stage:
        """The masked corpus of parts with their language and text type."""
        told: list[str | Place] = ["corpus"]
        for part, label in labels.items():
            told += ["--conversations", Place(documents, f"{part}.jsonl", "", f"={label}")]
        return Stage(name, (*told, "--mask", mask, "--held-out", "0.15", "--seed", "1"))

    def body(
        self,
        name: str,
        corpus: Stage,
        share: float = 1.0,
        *,
        target: Place | None = None,
        layers: str | None = None,
        keep_repetition: bool = False,
    ) -> Body:
        """What the target writes on a corpus, and its states: ``share`` of the scale's tokens."""
        tokens, own = max(1, round(self.setting.scale.answers * share)), target or self.target
        words: list[str | Place] = ["regenerate", "--corpus", Place(corpus), "--target", own]
        words += [
            "--limit-tokens",
            str(tokens),
            "--max-tokens",
            "160",
            "--context-tokens",
            "1536",
            "--concurrency",
            "16",
        ]
        words += ["--temperature", "0", "0.7", "--max-failures", "0.5", "--seed", "1", "--threads", self._threads]
        if keep_repetition:
            words.append("--keep-repetition")
        answers = Stage(f"{name}-answers", tuple(words), Cost(written=tokens))
        return Body(answers, self.states(name, answers, tokens, own, layers))

    def states(
        self, name: str, answers: Stage, tokens: int, target: Place | None = None, layers: str | None = None
    ) -> Stage:
        """The target's states on answers: for all trainings on them one pass of the target."""
        words = ("capture", "--examples", Place(answers), "--target", target or self.target)
        asked = ("--layers", layers or self.setting.scale.layers, "--limit-gib", "24", "--threads", self._threads)
        return Stage(f"{name}-states", (*words, *asked), Cost(captured=PER_ANSWER_TOKEN * tokens))

    def korean(self, share: float = 1.0) -> Body:
        """Korean office documents, dialogues and essays."""
        return self.body("korean", self.korean_corpus(), share)

    def korean_corpus(self) -> Stage:
        """Their corpus."""
        documents = self.documents("korean", [word for part, n in KOREAN.items() for word in ("--part", f"{part}={n}")])
        return self.corpus("korean-corpus", documents, {part: LABELS[part] for part in KOREAN})

    def replayed(self) -> Body:
        """English and code dialogues, of which nothing is to be forgotten."""
        documents = self.documents(
            "replayed", [word for part, n in REPLAYED.items() for word in ("--part", f"{part}={n}")]
        )
        return self.body("replayed", self.corpus("replayed-corpus", documents, REPLAYED_LABELS))

    def train(
        self,
        name: str,
        method: str,
        bodies: Sequence[Body],
        seed: int,
        *,
        tokens: float = 1.0,
        mix: str | None = None,
        start: Place | None = None,
        sets: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        target: Place | None = None,
    ) -> Stage:
        """Train as the shipped drafter of the method was; ``tokens`` times those of the scale, ``sets`` and ``options`` on top."""
        scale, shipped = self.setting.scale, dict(_shipped(method))
        budget = max(1, round(scale.tokens * tokens))
        own = {**shipped.pop("set", {}), **scale.sets.get(method, {})}
        if start is not None:  # a checkpoint brings its own shapes
            own = {key: value for key, value in own.items() if key == "num_tokens"}
        own |= sets or {}
        words: list[str | Place] = ["train", "--method", method, "--target", target or self.target]
        for body in bodies:
            words += ["--examples", Place(body.answers), "--features", Place(body.states)]
        words += [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
        words += ["--start", start] if start is not None else []
        words += ["--mix", mix] if mix is not None else []
        asked = {**family_settings()["train"], **shipped, "evaluations": 2, "held-out-tokens": 6000, **scale.train}
        asked |= {**(options or {}), "tokens": budget, "seed": seed, "threads": scale.threads}
        words += [word for key, value in asked.items() for word in (f"--{key}", str(value))]
        return Stage(seeded(name, seed), tuple(words), Cost(trained=budget))

    def quantize(self, name: str, model: Place, base: Place | None = None, scheme: str = "rtn4") -> Stage:
        """A checkpoint on 4-bit values; with ``base``, what that leaves of the change."""
        words: list[str | Place] = ["quantize", "--model", model, "--scheme", scheme]
        return Stage(name, (*words, *(("--base", base) if base is not None else ())))

    def measure(
        self,
        name: str,
        arms: Sequence[Arm],
        workloads: Sequence[str | Place],
        *,
        form: Form = "plain",
        loads: Sequence[int] | None = None,
        timed: bool = False,
        target: Place | None = None,
    ) -> Stage:
        """A run of the harness with a baseline and these arms, in deployed form.

        ``timed`` repeats every cell and is at concurrency 1 unless ``loads`` says otherwise; acceptance alone does not depend on
        the load, so it is read with several tasks in progress, once.
        """
        scale = self.setting.scale
        loads = loads or ((1,) if timed else (scale.together,))
        repeats = scale.repeats if timed else 1
        counted = scale.tasks if timed else scale.read or scale.tasks
        words: list[str | Place] = ["evaluate", "--target", target or self.target]
        for arm in arms:
            words += ["--drafter", arm.word()]
        for given in workloads:
            words += [
                "--workload",
                Place(self.setting.workloads / f"{given}.yaml") if isinstance(given, str) else given,
            ]
        words += ["--weights", form, "--concurrency", ",".join(map(str, loads)), "--repeats", str(repeats)]
        words += [
            "--limit-tasks",
            str(counted),
            "--limit-steps",
            str(scale.steps),
            "--max-tokens",
            str(scale.max_tokens),
        ]
        words += ["--tool-wait", "none", "--threads", self._threads]
        per_task = scale.steps * scale.max_tokens
        tasks = sum(max(counted, load) + load - 1 for load in loads)
        cost = Cost(measured=per_task * tasks * repeats * (len(arms) + 1) * len(workloads))
        return Stage(f"{name}-{form}", tuple(words), cost)

    @property
    def target(self) -> Place:
        """The target of the setting."""
        return Place(self.setting.target)

    @property
    def _threads(self) -> str:
        return str(self.setting.scale.threads)


def shipped(family: str, method: str) -> Place:
    """A shipped drafter."""
    return Place(f"ref:{family}-{method}")


def checkpoint(stage: Stage) -> Place:
    """What a training or a quantization wrote for the engine."""
    return Place(stage, "checkpoint")


@cache
def _shipped(method: str) -> Mapping[str, Any]:
    settings = family_settings()
    found: dict[str, Any] = {**settings["methods"], "draft_model": settings["shared"]["draft-model"]}.get(method, {})
    return {key: value for key, value in found.items() if key not in ("tokens", "method")}


def length(method: str) -> int:
    """How many tokens a shipped drafter of the method drafts."""
    return int(_shipped(method)["set"]["num_tokens"])
