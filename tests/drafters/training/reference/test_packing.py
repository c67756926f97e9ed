"""Rows of tokenized data and their positions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drafters.training.reference.packing import (
    CONTEXT,
    IDS,
    DataError,
    Mixture,
    Part,
    encode,
    read_manifest,
    write_part,
)
from drafters.training.reference.sources import Document
from drafters.training.reference.tokenizer import train_tokenizer


def _part(ends: list[int], whole: bool) -> Part:
    return Part("p", np.arange(ends[-1], dtype=np.uint16), np.array(ends), whole)


def test_text_runs_on_over_rows() -> None:
    """Rows of a running part take up every token once, in order, then begin anew."""
    part = _part([3, 7], whole=False)
    assert [part.next_row(4).tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 0]]
    assert part.epoch == 1


def test_conversation_cut_by_a_row_starts_the_next_one() -> None:
    """A conversation that no longer fits is shown from its begin in the next row."""
    part = _part([3, 7], whole=True)
    assert [part.next_row(4).tolist() for _ in range(2)] == [[0, 1, 2, 3], [3, 4, 5, 6]]


def test_conversation_longer_than_a_row_is_cut_and_left() -> None:
    """One that fills a whole row and more does not come for ever."""
    part = _part([6, 8], whole=True)
    assert part.next_row(4).tolist() == [0, 1, 2, 3]
    assert part.next_row(2).tolist() == [6, 7]


def test_context_is_marked_and_answers_are_not() -> None:
    """Only what the assistant writes, its end included, is free of the mark."""
    tokenizer = train_tokenizer(["ab cd"], 300)
    (ids,) = encode(tokenizer, [Document("d", turns=(("user", "ab"), ("assistant", "cd")))])
    own = "".join(tokenizer.decode([int(i) & IDS], skip_special_tokens=False) for i in ids if not i & CONTEXT)
    assert own == "cd<|im_end|><|endoftext|>"


def test_mixture_resumes_where_it_was(tmp_path: Path) -> None:
    """Batches after a restore are those that would have come."""
    for name in "ab":
        write_part(tmp_path, name, [np.full(5, ord(name) + n, np.uint16) for n in range(9)], seed=1)

    def fresh() -> Mixture:
        parts = {name: Part.open(tmp_path, name, whole=False) for name in "ab"}
        return Mixture(parts, {"a": 0.5, "b": 0.5}, seed=3)

    first = fresh()
    first.next_batch(3, 7)
    state = first.state()
    expected = first.next_batch(3, 7)
    second = fresh()
    second.restore(state)
    assert (second.next_batch(3, 7) == expected).all()


def test_file_cut_short_is_refused(tmp_path: Path) -> None:
    """A part whose tokens end before its index does is not trained on."""
    write_part(tmp_path, "a", [np.arange(8, dtype=np.uint16)], seed=1)
    (tmp_path / "a.ids").write_bytes(b"\0\0\0\0")
    with pytest.raises(DataError, match="build it again"):
        Part.open(tmp_path, "a", whole=False)


def test_folder_without_manifest_was_not_built_to_the_end(tmp_path: Path) -> None:
    """The manifest is written last; without it the folder is not used."""
    with pytest.raises(DataError, match=r"manifest\.json is missing"):
        read_manifest(tmp_path)
