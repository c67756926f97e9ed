"""What the reference drafters learn from, drawn from a corpus of a few documents."""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafters.training.corpus.sources import parse_given
from drafters.training.reference.prompts import COUNTS, LABELS, TEXT_CHARACTERS, main, write
from drafters.training.reference.sources import SourceError, is_held_out

FUNCTION = "def area(width, height):\n    factor = 12\n    size = width * height\n    return size * factor\n"
TEXTS = {
    "docs.ko": ["사용자 설명서의 한 대목이다. " * 5 for _ in range(100)],
    "manual.en": [*(f"Page {number} of the manual. " * 5 for number in range(100)), "long " * 2000],
    "program.code": [FUNCTION] * 5,
    "python.ko-code": [f"예제는 다음과 같다.\n{FUNCTION}"] * 5,
}
SCALE = 0.004
"""Two documents of a part at least."""


def corpus(folder: Path) -> Path:
    """A corpus folder and its list: texts of four languages, and one file of each use that nothing may be taken from."""
    folder.mkdir()
    entries = [_entry(folder, name, [{"text": text} for text in texts]) for name, texts in TEXTS.items()]
    talk = [{"messages": [{"role": "user", "content": "FROM A CHAT"}]}] * 5
    entries.append(_entry(folder, "talks.en.chat", talk))
    for use in ("evaluate", "exclude"):
        entries.append(_entry(folder, f"{use}.en", [{"text": "NOT FOR TRAINING"}] * 50, use=use, reason="a test"))
    (folder / "list.yaml").write_text(yaml.safe_dump({"sources": entries}), "utf-8")
    return folder


def _entry(folder: Path, name: str, lines: list[dict[str, Any]], **more: str) -> dict[str, str]:
    numbered = [json.dumps({"id": f"{name}/{number}", **line}) + "\n" for number, line in enumerate(lines)]
    data = lzma.compress("".join(numbered).encode())
    file, language = f"{name}.jsonl.xz", name.split(".")[1]
    (folder / file).write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    entry = {"file": file, "language": language, "use": "train", "sha256": sha256, "licence": "MIT", "origin": "x"}
    return {**entry, **more}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus."""
    return corpus(tmp_path_factory.mktemp("texts") / "corpus")


def documents(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """All that was written, by file."""
    files = sorted(folder.rglob("*.jsonl"))
    return {
        file.relative_to(folder).as_posix(): [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        for file in files
    }


def test_every_part_becomes_a_file_that_the_corpus_stage_can_be_told(tmp_path: Path, source: Path) -> None:
    """Two documents at least and otherwise the counts by scale; with the labels that ``drafters corpus`` takes."""
    written = write(source, tmp_path, SCALE, sources=source / "list.yaml")
    found = documents(tmp_path)
    assert set(found) == {f"{folder}/{part}.jsonl" for folder, parts in COUNTS.items() for part in parts}
    assert written == {name.removesuffix(".jsonl"): len(lines) for name, lines in found.items()}
    assert (written["public/en"], written["korean/office-ko"], written["korean/ko-code"]) == (4, 3, 2)
    for folder, parts in COUNTS.items():
        for part in parts:
            given = parse_given(f"{tmp_path / folder / part}.jsonl={LABELS[part]}")
            assert f"{given.language}/{given.text_type}" == LABELS[part]


def test_no_held_out_evaluation_or_chat_document_is_taken(tmp_path: Path, source: Path) -> None:
    """With all there are asked for: what the target was never trained on stays unseen here as well."""
    write(source, tmp_path, 1.0, sources=source / "list.yaml")
    found = documents(tmp_path)
    given = {f"{name}/{number}" for name, texts in TEXTS.items() for number in range(len(texts))}
    taken = {document["id"] for lines in found.values() for document in lines} & given
    assert taken == {name for name in given if not is_held_out(name)} != given
    written = "".join(file.read_text("utf-8") for file in tmp_path.rglob("*.jsonl"))
    assert not [text for text in ("FROM A CHAT", "NOT FOR TRAINING") if text in written]


def test_texts_are_cut_and_dialogues_are_messages(tmp_path: Path, source: Path) -> None:
    """Ten thousand characters become six thousand; agent parts end with turns of an assistant."""
    write(source, tmp_path, 1.0, sources=source / "list.yaml")
    found = documents(tmp_path)
    assert max(len(document["text"]) for document in found["public/en.jsonl"]) == TEXT_CHARACTERS
    for name in ("public/agent-en.jsonl", "public/agent-code.jsonl", "korean/agent-ko.jsonl"):
        assert all(document["messages"][-1]["role"] == "assistant" for document in found[name])


def test_the_same_seed_draws_the_same_documents(tmp_path: Path, source: Path) -> None:
    """To the byte; another seed draws others, of the corpus and of the generated ones."""
    for name, seed in (("a", 2), ("b", 2), ("c", 3)):
        write(source, tmp_path / name, SCALE, seed, source / "list.yaml")
    first, same, other = (documents(tmp_path / name) for name in "abc")
    assert first == same
    assert first["public/en.jsonl"] != other["public/en.jsonl"]
    assert first["korean/office-ko.jsonl"] != other["korean/office-ko.jsonl"]


def test_a_list_without_texts_for_a_part_is_told(tmp_path: Path, source: Path) -> None:
    """An empty file would be an empty corpus hours later."""
    listed = yaml.safe_load((source / "list.yaml").read_text("utf-8"))["sources"]
    short = tmp_path / "short.yaml"
    short.write_text(yaml.safe_dump({"sources": [entry for entry in listed if entry["language"] != "ko"]}), "utf-8")
    with pytest.raises(SourceError, match=r"short\.yaml has no texts of 'ko'"):
        write(source, tmp_path / "out", SCALE, sources=short)


def test_the_command_tells_what_it_wrote_and_what_is_wrong(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a file; a corpus that is not that of the list ends with code 2 and no traceback."""
    words = ["--scale", str(SCALE), "--sources", str(source / "list.yaml"), "--out", str(tmp_path)]
    assert main(["--corpus", str(source), *words]) == 0
    assert "public/en: 4 documents\n" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--corpus", str(tmp_path), *words])
    assert ended.value.code == 2
    assert "docs.ko.jsonl.xz is missing" in capsys.readouterr().err
