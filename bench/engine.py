"""The builtin engine beside transformers and llama.cpp, and beside what its own costs and this machine allow.

``python -m bench.engine`` runs the sections (a) to (f) on SmolLM2-135M in float32, one thread each:

(a) one request, lookup in the prompt under the goodput controller, beside transformers' prompt lookup: at least 1.3 times
    its tokens a second over three texts to copy, and over three of free writing
(b) sixteen requests without drafting, beside the better of transformers' static and continuous batching: at least 1.2
(c) without drafting beside llama.cpp's server, both over HTTP: at least 0.6 at batch 1, 1.0 at batch 16
(d) share of a round outside the target's forward and the drafter's work at batch 1: below 10 %
(e) realised speed-up over AL·T_ar/(T_draft + T_verify) at batch 1 and 16: at least 0.9
(f) what a verify forward costs, by sequences and tokens a sequence

Before each run the builtin engine forgets what its controller has learnt from earlier ones, as transformers keeps nothing.

Each section is kept in the file ``--out`` as it ends. A run with the same file leaves out what is in it already, so one
that was broken off goes on; ``--again`` measures the named sections anew. The tables show all that the file holds. Nothing
else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from drafters.engine.large_pages import start_with_large_pages

Data = dict[str, Any]
_MODEL = "smollm2-135m"


def main() -> None:
    """Measure what is asked for and not there yet, then print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="python -m bench.engine"
    )
    parser.add_argument("--sections", default="a,b,c,d,e,f", help="comma-separated; none only prints the file")
    parser.add_argument("--model", type=Path, help="Hugging Face folder; by default made from the pulled model")
    parser.add_argument("--gguf", type=Path, help="the same weights for llama.cpp; by default the pulled model")
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument("--tokens", type=int, default=96, help="for each request in (a); half of them elsewhere")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each arm; in (a) of each prompt, two at most")
    parser.add_argument("--out", type=Path, default=Path("reports/runs/bench-engine.json"))
    parser.add_argument("--again", action="store_true", help="measure the named sections although the file has them")
    arguments = parser.parse_args()
    names = [name for name in arguments.sections.split(",") if name]
    unknown = sorted(set(names) - set("abcdef"))
    if unknown:
        parser.error(f"unknown sections {unknown}; allowed: a, b, c, d, e, f")
    if min(arguments.threads, arguments.rounds) < 1 or arguments.tokens < 8:
        parser.error("allowed: threads and rounds of 1 or more, tokens of 8 or more")
    # Before torch is imported: threads that others start take the number from here.
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(arguments.threads)
    data: Data = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.is_file() else {"sections": {}}
    sections = data["sections"]
    missing = [name for name in names if arguments.again or not sections.get(name, {}).get("complete")]
    if missing:
        measure(data, missing, arguments)
    if not sections:
        parser.error(f"{arguments.out} holds nothing; name sections to measure")
    from bench.engine_tables import report

    print("\n" + report(data))


def measure(data: Data, names: list[str], arguments: argparse.Namespace) -> None:
    """Run the sections one after the other and keep each in the file as it grows."""
    import torch
    import transformers
    from transformers.utils import logging

    from bench.engine_sections import SECTIONS, Lab
    from bench.machine import measure_machine

    quieten: Any = logging.set_verbosity_error
    quieten()
    torch.set_num_threads(arguments.threads)
    gguf, model = _models(arguments)
    settings = {
        "model": str(model),
        "threads": arguments.threads,
        "tokens": arguments.tokens,
        "rounds": arguments.rounds,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    kept = [name for name in data["sections"] if name not in names]
    if kept and data["settings"] != settings:
        raise SystemExit(f"{arguments.out} holds sections measured with other settings; name another file with --out")
    data["settings"] = settings
    lab = Lab(model, gguf, arguments.threads, arguments.tokens, arguments.rounds, _say)
    data["machine"] = dataclasses.asdict(measure_machine(lab.ours.target.hidden_size))
    data["target"] = {"storage": lab.ours.target.storage, "weight_bytes": lab.ours.target.weight_bytes}
    for name in names:
        began = time.monotonic()
        _say(f"({name}) {(SECTIONS[name].__doc__ or '').split(') ', 1)[1].splitlines()[0]}")

        def save(values: Data, name: str = name) -> None:
            data["sections"][name] = values
            _write(arguments.out, data)

        save({**SECTIONS[name](lab, save), "complete": True, "seconds": round(time.monotonic() - began, 1)})
        _say(f"({name}) took {time.monotonic() - began:.0f} s")


def _models(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """The GGUF file and the Hugging Face folder, fetched and converted where they are not there yet."""
    from harness.models import pull, resolve_folder

    told: set[str] = set()

    def progress(stage: str, fraction: float) -> None:
        if stage not in told and fraction < 1.0:
            _say(f"{stage} {_MODEL}")
        told.add(stage)

    gguf: Path = arguments.gguf or pull(_MODEL, progress)
    model: Path = arguments.model or resolve_folder(_MODEL, progress=progress).path
    return gguf, model


def _write(path: Path, data: Data) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=1), encoding="utf-8")
    part.replace(path)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    start_with_large_pages()  # as the engine's server does; transformers in this process and llama.cpp's server have them too
    main()
