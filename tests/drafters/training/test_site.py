"""The site's file: what is read, and what every complaint says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from drafters.training.adapt_defaults import told
from drafters.training.adapt_plan import links
from drafters.training.site import drafter_spec, load_site
from drafters.training.stage import StageError
from tests.drafters.training.sites import write_site

EXAMPLE = Path(__file__).parents[3] / "examples/site.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what looks like a target and a drafter."""
    for name in ("target", "drafter"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}", "utf-8")
        (tmp_path / name / "model.safetensors").write_bytes(b"")
    return tmp_path


def changed(folder: Path, old: str, new: str) -> Path:
    """The site's file with a text replaced, which must be there."""
    path = write_site(folder)
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    return path


def complaint(path: Path) -> str:
    """What loading says."""
    with pytest.raises(StageError) as caught:
        load_site(path)
    return str(caught.value)


def line_of(path: Path, text: str) -> int:
    """Number of the first line that holds a text."""
    return next(number for number, line in enumerate(path.read_text("utf-8").splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("max_tokens: 16", "max_token: 16", "", "unknown key 'regenerate.max_token'; did you mean 'max_tokens'"),
        ("method: medusa", "method: medusae", "", "drafter.method is 'medusae'"),
        ("tokens: 60000", "tokens: 0", "", "train.tokens is 0"),
        ("tokens: 60000", "passes: 0", "", "train.passes is 0"),
        ("tokens: 60000", "tokens: 6\n  passes: 1", "train:", "tokens and passes both give the budget"),
        ("rows: 4", "rows: four", "", "train.rows is 'four'"),
        ("held_out: 0.25", "held_out: 1.0", "", "corpus.held_out is 1.0"),
        ("language: ko", "language: korean", "path: documents", "language is 'korean'; allowed: ko, en, code"),
        ("path: documents", "path: nowhere", "", "no file or folder 'nowhere'"),
        ("- workload.yaml", "- other.yaml", "", "no file or folder 'other.yaml'"),
        ("model: target", "model: ref-xx", "", "target.model is 'ref-xx': no model folder"),
        ("num_tokens: 2", "num_tokens: 900", "drafter:", "'num_tokens' is 900"),
        ("name: tiny", "name: a b", "", "name is 'a b'"),
    ],
)
def test_a_wrong_entry_is_told_with_file_and_line(folder: Path, old: str, new: str, line: str, says: str) -> None:
    """Every complaint begins with the file and the line, or the nearest section that holds the key."""
    path = changed(folder, old, new)

    said = complaint(path)

    assert says in said
    match = re.match(rf"{re.escape(str(path))}:(\d+): ", said)
    assert match is not None
    assert int(match[1]) == line_of(path, line or new)


def test_all_faults_are_told_at_once(folder: Path) -> None:
    """Two files that are not there make two lines."""
    path = changed(folder, "path: documents", "path: nowhere")
    path.write_text(path.read_text("utf-8").replace("- workload.yaml", "- other.yaml"), "utf-8")

    assert len(complaint(path).splitlines()) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", ":1: a mapping of keys is needed, not an empty file"),
        (b"- a\n", ":1: a mapping of keys is needed"),
        (b"name: a\nname: b\n", ":2: key 'name' appears twice"),
        (b"name: [a\n", "not YAML"),
        ("name: 현장".encode("cp949"), ":1: not UTF-8"),
    ],
)
def test_what_is_no_site_file_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    """Empty, another shape, a key twice, broken YAML and cp949 each have their message."""
    path = tmp_path / "site.yaml"
    path.write_bytes(content)

    assert says in complaint(path)


def test_a_missing_section_is_named(folder: Path) -> None:
    """Without documents there is nothing to learn."""
    path = write_site(folder)
    text = path.read_text("utf-8")
    path.write_text(text[: text.index("corpus:")] + text[text.index("regenerate:") :], "utf-8")

    assert "key 'corpus' is missing; add it" in complaint(path)


def test_an_ngram_table_takes_no_start(folder: Path) -> None:
    """A table of counts has no weights to go on from."""
    path = write_site(folder, drafter={"method": "ngram", "start": "drafter"})

    assert "an ngram table is counted anew" in complaint(path)


def arguments(path: Path, **wanted: Any) -> dict[str, list[str]]:
    """Stage's folder → its command line."""
    return {link.name: link.argv() for link in links(load_site(path), Path("/out"))}


def test_the_chain_of_a_plain_drafter_has_four_stages(folder: Path) -> None:
    """Corpus, answers, training and the measurement, each with what the one before wrote."""
    found = arguments(write_site(folder))

    assert list(found) == ["01-corpus", "02-regenerate", "03-train", "04-evaluate"]
    assert found["01-corpus"][1:3] == ["--documents", f"{folder / 'documents'}=ko/office"]
    assert found["03-train"][found["03-train"].index("--examples") + 1] == "/out/02-regenerate"
    assert "after=medusa,model=/out/03-train/checkpoint,num_tokens=2" in found["04-evaluate"]
    assert not any(word.startswith("before=") for word in found["04-evaluate"])


def test_a_4_bit_drafter_is_measured_with_the_values_it_has_when_deployed(folder: Path) -> None:
    """Start and result are both quantized, the change is reported, and the plain one is measured beside them."""
    path = write_site(folder, drafter={"method": "medusa", "start": "drafter", "weights": "nf4"})
    found = arguments(path)

    assert list(found) == [
        "01-corpus",
        "02-regenerate",
        "03-train",
        "04-quantize",
        "05-quantize-start",
        "06-evaluate",
        "07-compare",
    ]
    assert found["04-quantize"][-4:] == ["--base", str(folder / "drafter"), "--out", "/out/04-quantize"]
    drafters = [word for word in found["06-evaluate"] if "=medusa," in word]
    assert drafters == [
        "before=medusa,model=/out/05-quantize-start/checkpoint",
        "after=medusa,model=/out/04-quantize/checkpoint",
        "after-plain=medusa,model=/out/03-train/checkpoint",
    ]


def test_stored_features_and_two_runs_add_their_stages(folder: Path) -> None:
    """Capture stands before training; two runs of their own are compared at the end."""
    path = write_site(
        folder,
        drafter={"method": "medusa", "start": "drafter"},
        capture={"layers": [1, 2]},
        target={"model": "target", "weights": "rtn4"},
        evaluate={"workloads": ["workload.yaml"], "two_runs": True},
    )
    found = arguments(path)

    assert list(found)[2] == "03-capture"
    assert list(found)[5:] == ["06-compare", "07-evaluate-before", "08-evaluate-after", "09-compare-runs"]
    assert "1,2" in found["03-capture"]
    assert all("rtn4" in found[name] for name in ("02-regenerate", "03-capture", "04-train", "05-evaluate"))


def test_the_example_is_complete() -> None:
    """Every file and model that the example names is there."""
    assert load_site(EXAMPLE).site.name == "site-office"


def test_the_examples_documents_are_small_and_many() -> None:
    """Enough to learn from, few enough to ship."""
    files = [file for file in (EXAMPLE.parent / "site").rglob("*") if file.is_file()]
    records = [file for file in files if file.name.startswith("agents-")]

    assert sum(file.stat().st_size for file in files if file not in records) < 400_000
    assert sum(file.stat().st_size for file in records) < 1_000_000
    assert 60 <= len(list((EXAMPLE.parent / "site/documents/ko").iterdir())) <= 120


def test_a_key_that_stands_twice_is_told_by_its_line_alone(tmp_path: Path) -> None:
    """The second one's line, and no talk of quoting."""
    path = tmp_path / "site.yaml"
    path.write_text("name: a\ntarget: {}\nname: b\n", "utf-8")

    assert complaint(path) == f"{path}:3: key 'name' appears twice; keep one"


def train_line(path: Path) -> str:
    """Command line of the training that a site's file asks for."""
    chain = links(load_site(path), path.parent / "out")
    return " ".join(next(link for link in chain if link.stage == "train").argv())


def test_a_file_that_says_little_takes_what_the_claims_taught(folder: Path) -> None:
    """Neither drafter nor train: mtp with three tokens, four passes; Korean beside English: 0.5 to 0.28 of the whole."""
    path = write_site(folder, corpus={"documents": [{"path": "documents", "language": "ko", "text_type": "office"}]})
    lines = path.read_text("utf-8")
    for section in ("drafter", "train"):
        lines = re.sub(rf"^{section}:\n(?:  .*\n)+", "", lines, flags=re.MULTILINE)
    path.write_text(lines, "utf-8")
    assert "--method mtp" in train_line(path)
    assert "--set num_tokens=3" in train_line(path)
    assert "--passes 4.0" in train_line(path)
    assert "--mix" not in train_line(path)

    path.write_text(
        lines.replace("documents:\n", "documents:\n  - {path: requests.jsonl, language: en, text_type: chat}\n"),
        "utf-8",
    )

    assert "--mix ko=0.641,en=0.359" in train_line(path)
    assert "train.mix: not given; ko 0.641, en 0.359" in " ".join(told(load_site(path).site))


def test_free_prose_is_drafted_in_shorter_pieces(folder: Path) -> None:
    """Essays alone: two tokens, in training and in service; what the file says itself stands."""
    essays = {"documents": [{"path": "documents", "language": "ko", "text_type": "essay"}]}
    path = write_site(folder, corpus=essays, drafter={"method": "mtp"})
    assert "--set num_tokens=2" in train_line(path)
    assert drafter_spec(load_site(path).site, None) == {"method": "mtp", "num_tokens": 2}
    path = write_site(folder, corpus=essays, drafter={"method": "mtp", "settings": {"num_tokens": 5}})
    assert "--set num_tokens=5" in train_line(path)
    assert drafter_spec(load_site(path).site, None) == {"method": "mtp"}


def test_a_language_that_would_be_forgotten_is_told(folder: Path) -> None:
    """A drafter that goes on with Korean alone; nothing of the kind for a fresh one."""
    said = " ".join(told(load_site(write_site(folder, drafter={"method": "mtp", "start": "drafter"})).site))
    assert "what the drafter knew of others is forgotten" in said
    assert "forgotten" not in " ".join(told(load_site(write_site(folder)).site))
