"""The corpus of an n-gram drafter: the target's training answers as lines of token ids, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from drafters.training.batches import Sampler, group_of
from drafters.training.examples import Example
from drafters.training.stage import StageError, write_whole

__all__ = ["CORPUS", "write_corpus"]

CORPUS = "corpus.txt"


def write_corpus(
    path: Path, examples: Sequence[Example], mix: Mapping[str, float] | None, tokens: int, seed: int, limit_bytes: int
) -> dict[str, int | dict[str, int]]:
    """Write what `drafters.specs.NgramSpec.corpus` reads, drawn by language group until ``tokens`` ids, ``limit_bytes``
    or the answers are reached, and return the counts.

    An answer that was written before is left out: repeated counts would say more of the sampling than of the text. A
    group whose answers are all in gives its share to the others. Raises StageError when nothing fits.
    """
    sampler = Sampler(examples, mix, seed)
    known: set[tuple[int, ...]] = set()
    lines: list[str] = []
    ids: dict[str, int] = {}
    size = duplicates = 0
    full = False
    while not full and not all(sampler.rounds.values()):
        example = sampler.draw()
        group = group_of(example.language)
        if sampler.rounds[group]:
            continue  # its second round: the others go on until they have had theirs
        for start, end in example.answers:
            answer = example.token_ids[start:end]
            if answer in known:
                duplicates += 1
                continue
            line = " ".join(map(str, answer)) + "\n"
            full = size + len(line) > limit_bytes or sum(ids.values()) + len(answer) > tokens
            if full:
                break
            known.add(answer)
            lines.append(line)
            size += len(line)
            ids[group] = ids.get(group, 0) + len(answer)
    if not lines:
        raise StageError(f"no answer fits in {tokens} tokens and {limit_bytes} bytes; give more --tokens")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(lines))
    return {"documents": len(lines), "bytes": size, "tokens": ids, "duplicates": duplicates}
