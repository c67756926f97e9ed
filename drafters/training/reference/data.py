"""Builds the tokenized data of the reference target: ``python -m drafters.training.reference.data --corpus F --out F``."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from drafters.training.reference.office import PARTS as GENERATED
from drafters.training.reference.office import generate
from drafters.training.reference.packing import encode, write_part
from drafters.training.reference.sources import LIST, Document, is_held_out, load_sources, read_documents
from drafters.training.reference.tokenizer import VOCABULARY, render_chat, train_tokenizer

CHAT = "ko-chat"


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m drafters.training.reference.data", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with the files of sources.yaml")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="how many generated documents, 1 = the default counts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json to keep instead of training one")
    options = parser.parse_args(arguments)
    build(options.corpus, options.out, options.scale, options.seed, options.tokenizer)
    return 0


def build(corpus: Path, out: Path, scale: float, seed: int, tokenizer_file: Path | None = None) -> None:
    """Train the tokenizer if none is given, tokenize every part, and write the manifest last."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "manifest.json").unlink(missing_ok=True)
    trained: dict[str, list[Document]] = {}
    held: dict[str, list[Document]] = {}
    for source in load_sources():
        if source.use != "train":
            continue
        part = f"{source.language}-chat" if source.is_chat else source.language
        for document in read_documents(corpus, source):
            (held if is_held_out(document.id) else trained).setdefault(part, []).append(document)
    code = [document.text or "" for document in trained.get("code", [])]
    passages = {name: [document.text or "" for document in trained.get(name, [])] for name in ("ko", "en", "ko-code")}
    for part in GENERATED:
        for is_held, side in ((False, trained), (True, held)):
            side[part] = list(generate(part, scale, seed, held_out=is_held, code=code, passages=passages))
        _say(f"generated {part}: {len(trained[part])} documents, {len(held[part])} held out")
    tokenizer = Tokenizer.from_file(str(tokenizer_file)) if tokenizer_file else train_tokenizer(_sample(trained))
    tokenizer.save(str(out / "tokenizer.json"))
    tokens: dict[str, dict[str, int]] = {}
    for index, part in enumerate(sorted(trained)):
        counts: dict[str, int] = {}
        for name, documents in (("train", trained[part]), ("heldout", held.get(part, []))):
            counts[name] = write_part(out, f"{part}.{name}", encode(tokenizer, documents), seed + index)
        tokens[part] = counts
        characters = sum(len(_text(document)) for document in trained[part])
        _say(f"{part}: {counts}, {characters / max(1, counts['train']):.2f} characters a token")
    manifest = {
        "list_sha256": hashlib.sha256(LIST.read_bytes()).hexdigest(),
        "tokenizer_sha256": hashlib.sha256((out / "tokenizer.json").read_bytes()).hexdigest(),
        "vocabulary": VOCABULARY,
        "seed": seed,
        "scale": scale,
        "tokens": tokens,
    }
    (out / "manifest.json").write_text(json.dumps(manifest, ensure_ascii=False, indent=2) + "\n", "utf-8")


def _sample(trained: dict[str, list[Document]], limit: int = 2_500_000) -> Iterator[str]:
    """Take texts for the tokenizer, at most ``limit`` characters a part, spread over its documents."""
    for part in sorted(trained):
        total = sum(len(_text(document)) for document in trained[part])
        step = max(1, round(total / limit))
        for document in trained[part][::step]:
            yield _text(document)


def _text(document: Document) -> str:
    if document.text is not None:
        return document.text
    return "".join(text for text, _ in render_chat(document.turns or ()))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
