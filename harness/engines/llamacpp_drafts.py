"""The check of an arm's draft model for llama.cpp: that it is there and is what the method needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.errors import ModelError
from harness.gguf_header import read_header
from harness.models import is_drafter, resolve, resolve_folder
from harness.workload import Arm, LoadedWorkload

WANTED = {"draft-simple": "model", "draft-dflash": "dflash", "draft-eagle3": "eagle3", "synthetic": "model"}
"""Method → what its draft model must be: a model as any other, or llama.cpp's architecture of this name."""
_FORMS = "the path of a GGUF file, a name from 'harness models list', or a drafter that comes with the package, as ref:public-dflash2"
_ARCHITECTURES = {
    "DFlashDraftModel": "dflash",
    "DFlash2DraftModel": "dflash",
    "LlamaForCausalLMEagle3": "eagle3",
    "Eagle3LlamaForCausalLM": "eagle3",
}


def draft_model_faults(loaded: LoadedWorkload, index: int, arm: Arm, n_max: int | None) -> list[str]:
    """Return the complaints about an arm's draft model; ``n_max`` is how many tokens the arm drafts at most."""
    attached = arm.base_url or loaded.workload.engine.base_url
    at = loaded.where("arms", index, "draft_model")
    if arm.draft_model is None:
        needs = arm.method in WANTED and arm.method != "synthetic" and not attached
        return [f"{at}: {arm.method} needs draft_model: {_FORMS}"] if needs else []
    if arm.method not in WANTED:
        return [f"{at}: {arm.method} takes no draft_model; only {', '.join(WANTED)} do"]
    kind, block = WANTED[arm.method], None
    if not attached:
        try:
            kind, block = _kind(arm.draft_model)
        except ModelError as error:
            return [f"{at}: {error}"]
    if complaint := _complaint(arm, kind):
        return [f"{at}: {complaint}"]
    if kind == "dflash" and block is not None and n_max is not None and n_max >= block:
        return [
            f"{loaded.where('arms', index, 'options', 'n_max')}: n_max is {n_max}, but the block of {arm.draft_model} drafts at most "
            f"{block - 1} tokens; give {block - 1} or less"
        ]
    return []


def _complaint(arm: Arm, kind: str) -> str | None:
    wanted = WANTED[arm.method]
    if kind == wanted:
        return None
    methods = [method for method, needed in WANTED.items() if needed == kind]
    hint = f"its method is {methods[0]}" if methods else "llama.cpp cannot run it; run it on the builtin engine"
    return f"{arm.method} needs a draft model of the kind {wanted!r}, {arm.draft_model} is {kind!r}; {hint}"


def _kind(model: str) -> tuple[str, int | None]:
    """Return what a draft model is (``model``, an architecture for drafts, or a name that no method has) and its block size."""
    if is_drafter(model):  # its file may not be made yet; the folder tells the same
        config = _config(resolve_folder(model).path)
        names = [str(name) for name in config.get("architectures") or []]
        kind = next((_ARCHITECTURES[name] for name in names if name in _ARCHITECTURES), None)
        if kind is None and any(name.endswith("ForCausalLM") for name in names):
            kind = "model"
        return kind or ", ".join(names) or "unnamed", config.get("block_size")
    found = resolve(model, fetch=False)
    if not found.path.is_file():
        return "model", None  # a name from the catalogue that is still to be fetched
    header = read_header(found.path).metadata
    architecture, block = header.get("general.architecture"), header.get("dflash.block_size")
    kind = str(architecture) if architecture in _ARCHITECTURES.values() else "model"
    return kind, block if isinstance(block, int) else None


def _config(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'} cannot be read ({error}); install the package again") from error
    return value if isinstance(value, dict) else {}
