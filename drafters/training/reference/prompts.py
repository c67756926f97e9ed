"""Writes what the reference drafters learn from: ``python -m drafters.training.reference.prompts --corpus F --out F``.

Two folders of JSON lines for ``drafters corpus``: ``public`` (English and code, as published drafters are trained) and
``korean`` (office documents, dialogues, essays, manuals). The answers in them are only places where the target is to give
its own. Dialogues are drawn with another seed than those the target was trained on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from drafters.training.reference.office import PARTS, generate
from drafters.training.reference.sources import LIST, Document, SourceError, is_held_out, load_sources, read_documents
from drafters.training.stage import write_whole

SEED = 2
"""Of the generated documents and of the draw among the corpus's; the target was trained with seed 1."""
TEXT_CHARACTERS = 6_000
"""Longer texts of the corpus are cut; the target's context ends not far beyond."""
COUNTS = {
    "public": {"en": 900, "code": 500, "agent-en": 900, "agent-code": 700},
    "korean": {"ko": 500, "ko-code": 200, "office-ko": 700, "essay-ko": 300, "agent-ko": 1100},
}
"""Documents by folder and part at scale 1."""
LABELS = {
    "en": "en/docs", "code": "code/code", "agent-en": "en/dialogue", "agent-code": "en+code/dialogue", "ko": "ko/docs",
    "ko-code": "ko+code/docs", "office-ko": "ko/office", "essay-ko": "ko/essay", "agent-ko": "ko/office",
}  # fmt: skip
"""Language and text type of each part, as ``drafters corpus`` is told them."""


def write(corpus: Path, out: Path, scale: float, seed: int = SEED, sources: Path = LIST) -> dict[str, int]:
    """Write both folders; returns how many documents each file has.

    Raises:
        SourceError: if a file of the list is missing or another one, or the list has no texts for a part.
    """
    texts: dict[str, list[Document]] = {}
    for source in load_sources(sources):
        if source.use == "train" and not source.is_chat:
            own = [document for document in read_documents(corpus, source) if not is_held_out(document.id)]
            texts.setdefault(source.language, []).extend(own)
    code = [document.text or "" for document in texts.get("code", [])]
    passages = {name: [document.text or "" for document in texts.get(name, [])] for name in ("ko", "en", "ko-code")}
    written: dict[str, int] = {}
    for folder, parts in COUNTS.items():
        for part, count in parts.items():
            wanted = max(2, round(count * scale))
            if part not in PARTS:
                if not (own := texts.get(part, [])):
                    raise SourceError(f"{sources} has no texts of {part!r} to train on; add a source with some")
                rng = random.Random(f"{part}/{seed}")
                documents: Sequence[Document] = rng.sample(own, min(wanted, len(own)))
            else:
                made = generate(part, 1.0, seed, held_out=False, code=code, passages=passages)
                documents = [document for document, _ in zip(made, range(wanted), strict=False)]
            path = out / folder / f"{part}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, "".join(_lines(documents)))
            written[f"{folder}/{part}"] = len(documents)
    return written


def _lines(documents: Iterable[Document]) -> Iterable[str]:
    for document in documents:
        value: dict[str, object] = {"id": document.id}
        if document.turns is None:
            value["text"] = (document.text or "")[:TEXT_CHARACTERS]
        else:
            value["messages"] = [{"role": role, "content": content} for role, content in document.turns]
        yield json.dumps(value, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training.reference.prompts", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with the files of sources.yaml")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--sources", type=Path, default=LIST, help="list of the corpus's files (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        written = write(options.corpus, options.out, options.scale, sources=options.sources)
    except SourceError as error:
        parser.error(str(error))
    for name, count in written.items():
        sys.stderr.write(f"{name}: {count} documents\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
