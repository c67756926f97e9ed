"""The child process behind one arm: llama.cpp's server out of the package xllamacpp, on loopback.

``python -m harness.engines.llamacpp_server --config '{"model": …}'`` listens on a port of the kernel's choice, prints
``SYSTEM`` with the features of the CPU and ``LISTENING http://127.0.0.1:PORT`` once the model is loaded, and runs until SIGTERM,
SIGINT or the end of its parent.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from typing import Any

from harness.engines.process import die_with_parent

LISTENING = "LISTENING "
SYSTEM = "SYSTEM "
_TYPE_PREFIX = "COMMON_SPECULATIVE_TYPE_"
_WARNINGS = 2  # the engine's verbosity: errors and warnings, no line per request


def parameters(binding: Any, config: dict[str, Any]) -> Any:
    """Return the binding's ``CommonParams`` for a config; ``binding`` is the module xllamacpp.

    Keys: ``model``, ``n_parallel``, ``context_tokens`` (per request), ``threads``, ``type`` (drafter or ``None``), ``settings``
    (dotted path below ``speculative`` → value), ``draft_model`` (path or ``None``), ``cache_ram_mib``, ``slot_save_path`` (or ``None``),
    ``attention`` (``engine``, or ``float32`` for K/V in float32 and no flash attention).

    Raises:
        AttributeError: naming a setting that this version of the binding does not have.
    """
    params = binding.CommonParams()
    params.model.path = config["model"]
    params.n_parallel = config["n_parallel"]
    params.n_ctx = config["n_parallel"] * config["context_tokens"]
    params.cont_batching = True
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    params.use_jinja = True
    params.ui = False
    params.verbosity = _WARNINGS
    params.cache_ram_mib = config["cache_ram_mib"]
    if config["slot_save_path"] is not None:
        params.slot_save_path = config["slot_save_path"]
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = config["threads"]
    speculative = params.speculative
    if config["attention"] == "float32":
        params.flash_attn_type = binding.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        for cache in (params, speculative.draft):
            cache.cache_type_k = cache.cache_type_v = binding.ggml_type.GGML_TYPE_F32
    for cpu in (speculative.draft.cpuparams, speculative.draft.cpuparams_batch):
        cpu.n_threads = config["threads"]
    if config["type"] is not None:
        name = _TYPE_PREFIX + config["type"].upper().replace("-", "_")
        speculative.types = [getattr(binding.common_speculative_type, name)]
    if config["draft_model"] is not None:
        speculative.draft.mparams.path = config["draft_model"]
    for path, value in config["settings"].items():
        *parents, last = path.split(".")
        place = speculative
        for parent in parents:
            place = getattr(place, parent)
        setattr(place, last, value)
    return params


def main() -> int:
    """Serve until told to stop; the exit code is 0 then, and 1 with a reason on standard error if the server did not start."""
    die_with_parent()
    parser = argparse.ArgumentParser(description="llama.cpp server for one arm, started by the harness")
    parser.add_argument("--config", required=True, help="JSON object, see the module's parameters()")
    config = json.loads(parser.parse_args().config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        import xllamacpp
    except ImportError as error:
        sys.stderr.write(f"cannot import xllamacpp ({error}); install 'spec-harness[llamacpp]'\n")
        return 1
    try:
        server = xllamacpp.Server(parameters(xllamacpp, config))
    except (RuntimeError, AttributeError) as error:
        sys.stderr.write(f"the server did not start: {error}\n")
        return 1
    sys.stdout.write(f"{SYSTEM}{xllamacpp.get_system_info()}\n{LISTENING}{server.listening_address}\n")
    sys.stdout.flush()
    stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
