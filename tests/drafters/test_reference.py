"""Where the models are that come with the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drafters import reference


def model(folder: Path) -> None:
    """Make a folder that looks like a model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A layout with a target, two drafters, a table of n-grams and a folder that holds nothing."""
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path))
    for name in ("ref-koen", "public-dflash2", "adapted-medusa"):
        model(tmp_path / name)
    (tmp_path / "ngram").mkdir()
    (tmp_path / "ngram" / "corpus.txt").write_text("1 2\n")
    (tmp_path / "half").mkdir()
    return tmp_path


def test_names_lead_to_folders(place: Path) -> None:
    """A drafter is named with the prefix or without; a table of n-grams is its file; an unfinished folder is none."""
    assert reference.target() == place / "ref-koen"
    assert reference.drafters() == ("adapted-medusa", "ngram", "public-dflash2")
    assert reference.drafter("ref:public-dflash2") == reference.drafter("public-dflash2") == place / "public-dflash2"
    assert reference.drafter("ref:ngram") == place / "ngram" / "corpus.txt"


@pytest.mark.parametrize("name", ["half", "ref-koen", "../x", "public-dflash"])
def test_an_unknown_name_is_answered_with_those_there_are(place: Path, name: str) -> None:
    """The target, an empty folder and a path outside are no drafters."""
    with pytest.raises(reference.MissingReference, match=r"there: ref:adapted-medusa, ref:ngram, ref:public-dflash2"):
        reference.drafter(name)


def test_a_close_name_is_guessed(place: Path) -> None:
    """A slip of the pen is met with the right name."""
    with pytest.raises(reference.MissingReference, match="did you mean ref:public-dflash2"):
        reference.drafter("ref:public-dflsh2")


def test_an_installation_without_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there: the error says where it looked and what to do."""
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path / "none"))
    assert reference.drafters() == ()
    with pytest.raises(
        reference.MissingReference, match=r"ref-koen is not in this installation .*SPEC_HARNESS_REFERENCE"
    ):
        reference.target()


def test_it_imports_no_torch() -> None:
    """The harness reads it, so neither torch nor numpy may come with it."""
    code = "import sys; import drafters.reference; print(sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
