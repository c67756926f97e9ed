"""What is measured: sections (a) to (f), each a function that returns plain values for the JSON file.

A section's arms take turns, A B C then C B A, in one process on the same threads, so that a drift of the machine reaches
all of them. Each sample is one run of one arm; tables are made of the samples afterwards (`bench.engine_tables`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.engine_arms import (
    BATCH,
    CONTEXT,
    CONTROLLED,
    LOOKUP,
    NGRAMS,
    NUM_TOKENS,
    SHORT_CONTROLLED,
    SHORT_NGRAMS,
    SYNTHETIC,
    Ours,
    Pass,
)
from bench.engine_texts import chat_tokens, copy_requests, free_requests
from bench.peers_http import Answer, ask_all, decode_rate, engine_server, llamacpp_server
from bench.peers_transformers import Generated, Peer
from bench.verify_costs import verify_grid
from drafters.engine.config import EngineConfig

__all__ = ["SECTIONS", "Lab"]

Sample = dict[str, Any]
Prompts = Sequence[tuple[int, ...]]
Outputs = Sequence[Any]
"""What each request of a run wrote: token ids, or text where a server gave no ids."""
Arm = Callable[[Prompts, int], Sample]
"""Runs prompts to so many tokens each and returns what was measured; ``outputs`` is taken out before it is kept."""
Save = Callable[[dict[str, Any]], None]

_WARM_TOKENS = 4
_GAPS = 3  # near-ties looked at for one arm
_PROMPTS = 3  # of each kind in section (a): one text alone may suit one arm
_TURNS = 2  # runs of each of them and arm at most: there and back


@dataclass
class Lab:
    """Settings, and the engines that they name, each loaded when it is first needed.

    ``tokens`` are written for each request in section (a), half of them in the others.
    """

    model: Path
    gguf: Path
    threads: int
    tokens: int
    rounds: int
    say: Callable[[str], None] = field(default=print)

    @functools.cached_property
    def ours(self) -> Ours:
        """The builtin engine in this process."""
        return Ours(self.model, self.threads, self.say)

    @functools.cached_property
    def peer(self) -> Peer:
        """transformers in this process."""
        return Peer(self.model)

    @property
    def fewer(self) -> int:
        """Tokens a request in all sections but (a)."""
        return max(4, self.tokens // 2)

    def prompts(self, texts: Sequence[str]) -> Prompts:
        """The texts as token ids under the chat template."""
        return chat_tokens(self.peer.tokenizer, texts)

    def alternate(
        self,
        arms: Mapping[str, Arm],
        case: str,
        prompts: Prompts,
        tokens: int,
        samples: list[Sample],
        save: Save,
        best_of: Sequence[str] = (),
        prompt: int = 0,
        rounds: int | None = None,
    ) -> dict[str, list[Outputs]]:
        """Warm every arm up, then let them take ``rounds`` turns; returns the outputs of each run.

        ``prompt`` numbers the prompts of a case that come one call each.
        Of the arms ``best_of`` only the best counts: one under half as fast as another runs no second time.
        """
        outputs: dict[str, list[Outputs]] = {name: [] for name in arms}
        running = list(arms)
        for arm in arms.values():
            arm(prompts, min(_WARM_TOKENS, tokens))
        for number in range(rounds or self.rounds):
            for name in running[:: -1 if number % 2 else 1]:
                sample = arms[name](prompts, tokens)
                outputs[name].append(sample.pop("outputs"))
                place = {"case": case, "prompt": prompt, "arm": name, "round": number, "tokens": tokens * len(prompts)}
                samples.append({**place, **sample})
                save({"samples": samples})
                self.say(f"  {case} {prompt}, round {number + 1}, {name}: {_shown(sample)}")
            if best_of:
                rates = {s["arm"]: s["whole_per_s"] for s in samples if s["case"] == case and s["arm"] in best_of}
                running = [name for name in running if rates.get(name, math.inf) >= max(rates.values()) / 2]
        return outputs

    def differences(
        self, outputs: Mapping[str, list[Outputs]], prompts: Prompts, case: str, first: int = 0
    ) -> list[Sample]:
        """Where an arm wrote other tokens than the first arm, and how near a tie the choice was (difference of logits).

        ``first`` is the number of the first prompt.
        """
        reference = next(iter(outputs.values()))[0]
        found: list[Sample] = []
        for name, runs in outputs.items():
            pairs = {(index, tuple(made)) for run in runs for index, made in enumerate(run) if made != reference[index]}
            for index, made in sorted(pairs):
                at = next(i for i, (a, b) in enumerate(zip(reference[index], made, strict=True)) if a != b)
                near = sum(other["arm"] == name for other in found) < _GAPS
                gap = self.peer.top_two_gap([*prompts[index], *made[:at]]) if near else None
                found.append({"case": case, "arm": name, "prompt": first + index, "at": at, "gap": gap})
        return found


def _shown(sample: Sample) -> str:
    rates = {key.removesuffix("_per_s"): value for key, value in sample.items() if key.endswith("_per_s")}
    return ", ".join(f"{what} {rate:.1f} tokens/s" for what, rate in rates.items() if rate is not None)


def _ours(made: Pass, batch: int) -> Sample:
    return {
        "outputs": made.outputs,
        "whole_per_s": sum(map(len, made.outputs)) / made.whole_s,
        "decode_per_s": decode_rate(made.arrivals),
        "sums": made.sums(batch),
    }


def _theirs(made: Generated) -> Sample:
    tokens = sum(map(len, made.outputs))
    decode = (tokens - 1) / made.decode_s if made.decode_s else None
    return {"outputs": made.outputs, "whole_per_s": tokens / made.whole_s, "decode_per_s": decode}


def _http(answers: Sequence[Answer]) -> Sample:
    return {"outputs": [a.text for a in answers], "decode_per_s": decode_rate([a.arrivals for a in answers])}


def one_request(lab: Lab, save: Save) -> dict[str, Any]:
    """(a) Batch 1: lookup under the controller beside transformers' prompt lookup and both without drafting."""
    ours, peer = lab.ours, lab.peer
    arms: dict[str, Arm] = {
        "transformers, plain": lambda p, n: _theirs(peer.generate(p[0], n)),
        "ours, plain": lambda p, n: _ours(ours.run(ours.fresh, p, n), 1),
        "transformers, lookup": lambda p, n: _theirs(peer.generate(p[0], n, NUM_TOKENS)),
        "ours, lookup k 8": lambda p, n: _ours(ours.run(ours.fresh, p, n, LOOKUP), 1),
        "ours, lookup controlled": lambda p, n: _ours(ours.run(ours.fresh, p, n, CONTROLLED), 1),
        "ours, lookup controlled, short": lambda p, n: _ours(ours.run(ours.fresh, p, n, SHORT_CONTROLLED), 1),
    }
    ngrams = {"ours": NGRAMS, "ours, short": SHORT_NGRAMS, "transformers": peer.lookup_ngrams}
    samples: list[Sample] = []
    differences: list[Sample] = []
    for case, texts in (("copy", copy_requests(_PROMPTS)), ("free", free_requests(_PROMPTS))):
        for number, prompt in enumerate(lab.prompts(texts)):
            outputs = lab.alternate(
                arms,
                case,
                [prompt],
                lab.tokens,
                samples,
                lambda values: save({**values, "ngrams": ngrams}),
                prompt=number,
                rounds=min(_TURNS, lab.rounds),
            )
            differences += lab.differences(outputs, [prompt], case, number)
    return {"samples": samples, "differences": differences, "ngrams": ngrams}


def full_batch(lab: Lab, save: Save) -> dict[str, Any]:
    """(b) Sixteen requests without drafting beside transformers' static and continuous batches."""
    ours, peer = lab.ours, lab.peer
    arms: dict[str, Arm] = {
        "ours, plain": lambda p, n: _ours(ours.run(ours.fresh, p, n), BATCH),
        "transformers, static batch": lambda p, n: _theirs(peer.static_batch(p, n)),
        "transformers, continuous batch": lambda p, n: _theirs(peer.continuous_batch(p, n)),
    }
    samples: list[Sample] = []
    prompts = lab.prompts(free_requests(BATCH))
    peers = [name for name in arms if name.startswith("transformers")]
    outputs = lab.alternate(arms, str(BATCH), prompts, lab.fewer, samples, save, best_of=peers)
    return {"samples": samples, "differences": lab.differences(outputs, prompts, str(BATCH))}


def beside_llamacpp(lab: Lab, save: Save) -> dict[str, Any]:
    """(c) Without drafting, one request and sixteen: llama.cpp and this engine over HTTP, and the runner by itself.

    Prompts are in every arm's cache already (the warm-up put them there). One arm runs while the others are idle.
    """
    config = EngineConfig(
        model=lab.model,
        served_name="target",
        threads=lab.threads,
        max_sequences=BATCH,
        context_tokens=CONTEXT,
        cache_tokens=2 * BATCH * CONTEXT,
    )
    ours = lab.ours
    samples: list[Sample] = []
    same: list[Sample] = []
    with (
        llamacpp_server(lab.gguf, lab.threads, BATCH, CONTEXT) as theirs_url,
        engine_server(config.model_dump_json(), lab.threads) as ours_url,
    ):
        lab.say(f"  llama.cpp at {theirs_url}, ours at {ours_url}")
        arms: dict[str, Arm] = {
            "llama.cpp, HTTP": lambda p, n: _http(ask_all(theirs_url, p, n, {"cache_prompt": True})),
            "ours, HTTP": lambda p, n: _http(ask_all(ours_url, p, n, {})),
            "ours, runner": lambda p, n: _ours(ours.run(ours.cached, p, n), len(p)),
        }
        for number in (1, BATCH):
            prompts = lab.prompts(free_requests(number))
            made = {
                name: runs[0]
                for name, runs in lab.alternate(arms, str(number), prompts, lab.fewer, samples, save).items()
            }
            decode = lab.peer.tokenizer.decode
            made["ours, runner"] = [decode(ids, skip_special_tokens=True) for ids in made["ours, runner"]]
            texts = list(zip(made["ours, HTTP"], made["ours, runner"], made["llama.cpp, HTTP"], strict=True))
            same.append(
                {
                    "case": str(number),
                    "runner": sum(a == b for a, b, _ in texts),
                    "llama.cpp": sum(a == c for a, _, c in texts),
                }
            )
    return {"samples": samples, "same_text_as_ours": same}


def shares(lab: Lab, save: Save) -> dict[str, Any]:
    """(d) Batch 1: what of a round's time is neither the target's forward nor the drafter's work."""
    ours = lab.ours
    arms: dict[str, Arm] = {
        "plain": lambda p, n: _ours(ours.run(ours.fresh, p, n), 1),
        "lookup k 8": lambda p, n: _ours(ours.run(ours.fresh, p, n, LOOKUP), 1),
        "lookup controlled": lambda p, n: _ours(ours.run(ours.fresh, p, n, CONTROLLED), 1),
    }
    samples: list[Sample] = []
    lab.alternate(arms, "copy", lab.prompts(copy_requests(1)), lab.fewer, samples, save)
    return {"samples": samples}


def realised(lab: Lab, save: Save) -> dict[str, Any]:
    """(e) Batch 1 and 16: the speed-up that came of drafting, to be held against what acceptance and costs allow."""
    ours = lab.ours

    def arm(drafter: str | None, k: int | None = None) -> Arm:
        return lambda p, n: _ours(ours.run(ours.cached, p, n, drafter, k), len(p))

    arms = {"plain": arm(None)}
    arms |= {f"lookup k {k}": arm(LOOKUP, k) for k in (4, 8)}
    arms |= {f"synthetic k {k}": arm(SYNTHETIC, k) for k in (2, 4, 8)}
    samples: list[Sample] = []
    for number in (1, BATCH):
        lab.alternate(arms, str(number), lab.prompts(copy_requests(number)), lab.fewer, samples, save)
    return {"samples": samples}


def verify_costs(lab: Lab, save: Save) -> dict[str, Any]:
    """(f) Milliseconds of a forward by sequences and tokens a sequence, and what the controller's cost model says."""
    ours = lab.ours
    ours.fresh.reset_drafting()  # the table as measured, whatever sections ran before
    return {"grid": verify_grid(ours.target, ours.costs, max(3, lab.rounds))}


SECTIONS: Mapping[str, Callable[[Lab, Save], dict[str, Any]]] = {
    "a": one_request,
    "b": full_batch,
    "c": beside_llamacpp,
    "d": shares,
    "e": realised,
    "f": verify_costs,
}
