"""llama-server by address: two that run already, with and without a drafter, on all tasks of two workloads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from harness.engines.llamacpp_options import engine_config
from harness.engines.llamacpp_server import LISTENING
from harness.workload import Arm, load
from tests.live.running import ROOT, Place, check_counts, check_figures

SLOTS = 8
WORKLOADS = [ROOT / f"workloads/servers/llama-server/{name}.yaml" for name in ("office-ko", "coding-en")]


@contextmanager
def llama_server(model: Path, arm: Arm, log: Path, context: int) -> Iterator[str]:
    """Run a llama.cpp server for an arm and give its address; its parent is this process, not the harness."""
    config = {
        **engine_config(arm), "model": str(model), "draft_model": None, "n_parallel": SLOTS, "context_tokens": context, "threads": 1,
        "attention": "engine", "cache_ram_mib": 0, "slot_save_path": None,
    }  # fmt: skip
    command = [sys.executable, "-m", "harness.engines.llamacpp_server", "--config", json.dumps(config)]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        )
    assert process.stdout is not None
    try:
        address = next((line for line in process.stdout if line.startswith(LISTENING)), "")
        assert address, f"the server ended; see {log}"
        yield address.removeprefix(LISTENING).strip()
    finally:
        process.terminate()
        process.wait(30)


def at(workload: Path, addresses: dict[str, str], folder: Path) -> str:
    """Write the workload with these addresses into a folder, and return where it is."""
    content = yaml.safe_load(workload.read_text(encoding="utf-8"))
    for arm in content["arms"]:
        arm["base_url"] = addresses[arm["name"]]
    content["tasks"] = os.path.relpath(workload.parent / content["tasks"], folder)
    path = folder / workload.name
    path.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return os.path.relpath(path, ROOT)


def test_llama_server_by_url(place: Place, gguf: Path, context: int) -> None:
    """Servers that somebody else started: the same records, and acceptance equal to llama.cpp's counters to the token."""
    folder = ROOT / place.reports / "llama-server-files"
    folder.mkdir(parents=True, exist_ok=True)
    baseline, drafting = load(WORKLOADS[0]).workload.arms
    with (
        llama_server(gguf, baseline, folder / "baseline.log", context) as one,
        llama_server(gguf, drafting, folder / "ngram.log", context) as two,
    ):
        files = [at(path, {baseline.name: one, drafting.name: two}, folder) for path in WORKLOADS]
        run = place.run("llama-server", files, "--context-tokens", str(context), resumable=False)
    assert run.manifest["engine"]["attached"] is True
    check_counts(run, drafting.name)
    check_figures(run, drafting.name)
