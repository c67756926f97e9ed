"""The list of sources and the files that it names."""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path

import pytest

from drafters.training.reference.sources import Source, SourceError, is_held_out, load_sources, read_documents


def _source(folder: Path, name: str, lines: list[dict[str, object]]) -> Source:
    data = lzma.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
    (folder / name).write_bytes(data)
    return Source(name, "ko", "train", hashlib.sha256(data).hexdigest(), "MIT", "a test")


def test_list_trains_on_no_copyleft_file_and_on_no_evaluation_set() -> None:
    """The committed list leaves out every file named gpl, gfdl or agpl and the four evaluation sets."""
    trained = {source.file.split(".")[0] for source in load_sources() if source.use == "train"}
    assert len(trained) > 20
    assert not [name for name in trained if name.startswith(("gpl-", "gfdl-", "agpl-"))]
    assert not trained & {"klue-dev", "functionchat-bench", "tau-bench", "bfcl"}


def test_every_source_names_licence_origin_and_hash() -> None:
    """Each entry of the committed list says where a file comes from and under which licence."""
    for source in load_sources():
        assert source.licence and source.origin and len(source.sha256) == 64


def test_text_and_chat_files_are_read(tmp_path: Path) -> None:
    """A text file yields texts, a chat file yields turns."""
    text = _source(tmp_path, "a.ko.jsonl.xz", [{"id": "a/1", "text": "안녕"}])
    chat = _source(tmp_path, "b.ko.chat.jsonl.xz", [{"id": "b/1", "messages": [{"role": "user", "content": "네"}]}])
    assert next(read_documents(tmp_path, text)).text == "안녕"
    assert next(read_documents(tmp_path, chat)).turns == (("user", "네"),)


def test_changed_file_is_refused(tmp_path: Path) -> None:
    """A file whose content is not that of the list is not trained on."""
    source = _source(tmp_path, "a.ko.jsonl.xz", [{"id": "a/1", "text": "안녕"}])
    (tmp_path / source.file).write_bytes(lzma.compress(b"{}\n"))
    with pytest.raises(SourceError, match="sha256"):
        list(read_documents(tmp_path, source))


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A missing file is named in the error."""
    with pytest.raises(SourceError, match=r"c\.ko\.jsonl\.xz is missing"):
        list(read_documents(tmp_path, Source("c.ko.jsonl.xz", "ko", "train", "0" * 64, "MIT", "a test")))


def test_list_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    """A misspelt field of the list is an error that names the entry."""
    path = tmp_path / "list.yaml"
    path.write_text("sources:\n- {file: a, langauge: ko}\n", "utf-8")
    with pytest.raises(SourceError, match="'a'"):
        load_sources(path)


def test_about_a_fiftieth_is_held_out() -> None:
    """Of ten thousand ids, 2 % within a tenth of that fall on the held-out side."""
    assert 160 < sum(is_held_out(f"docs/{number}") for number in range(10_000)) < 240
