"""The command line of `harness serve`: drafters in one argument, a file under it, and everything wrong said before a start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafters.engine.config import EngineConfig, ServedDrafter
from drafters.specs import DraftModelSpec, MedusaSpec, PromptLookupSpec
from harness import cli
from harness.engines import builtin_serve
from harness.engines.builtin_serve import ServeRequest, configuration, drafter_of
from harness.errors import UsageError


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a model, on a machine that has every package."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    monkeypatch.setattr(builtin_serve, "require_packages", lambda: None)
    return folder


def made(model: Path | None, *drafters: str, file: Path | None = None, **settings: Any) -> EngineConfig:
    """Return the configuration of a command line."""
    request = ServeRequest(None if model is None else str(model), drafters, file, settings)
    return configuration(request, lambda stage, fraction: None)


def test_a_drafter_in_one_argument() -> None:
    """Name, method and options come out of one argument; lists, tables and texts are read as YAML."""
    assert drafter_of("copy=prompt_lookup") == ("copy", ServedDrafter(spec=PromptLookupSpec()))
    assert drafter_of("copy=prompt_lookup,num_tokens=3,lengths=goodput") == (
        "copy",
        ServedDrafter(spec=PromptLookupSpec(num_tokens=3), lengths="goodput"),
    )
    assert drafter_of("m=medusa,tree=[[0], [1], [0, 0]],lengths={1: 8, 4: 2}") == (
        "m",
        ServedDrafter(spec=MedusaSpec(tree=((0,), (1,), (0, 0))), lengths={1: 8, 4: 2}),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("copy", "give NAME=METHOD"),
        ("=ngram", "give NAME=METHOD"),
        ("a=ngrm", "unknown method 'ngrm' (did you mean 'ngram'?)"),
        ("a=ngram,order", "'order' is no key=value"),
        ("a=ngram,order=[1", "cannot read the value of order"),
        ("a=ngram,ordr=3", "unknown key 'ordr' (did you mean 'order'?)"),
        ("a=ngram,lengths=some", "lengths is 'some'; allowed: fixed, goodput, or a table"),
    ],
)
def test_a_drafter_that_is_wrong(text: str, said: str) -> None:
    """Each mistake is told with the whole argument and what is allowed."""
    with pytest.raises(UsageError) as caught:
        drafter_of(text)
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)


def test_the_command_line_stands_over_the_file(model: Path, tmp_path: Path) -> None:
    """Settings and drafters of the file hold unless the command line gives them."""
    file = tmp_path / "server.json"
    drafters = {"copy": {"spec": {"method": "prompt_lookup"}}, "count": {"spec": {"method": "ngram"}}}
    file.write_text(json.dumps({"model": str(model), "threads": 2, "port": 8000, "drafters": drafters}))
    config = made(None, "copy=prompt_lookup,num_tokens=2", file=file, port=8001)
    assert (config.model, config.served_name, config.threads, config.port) == (model, "tiny", 2, 8001)
    assert {name: drafter.spec.num_tokens for name, drafter in config.drafters.items()} == {"copy": 2, "count": 4}


@pytest.mark.parametrize(
    ("drafters", "settings", "said"),
    [
        (["a=ngram", "a=mtp"], {}, "--drafter names 'a' twice"),
        ([], {"port": 70_000}, "port is 70000: input should be less than or equal to 65535"),
        (["a=ngram"], {"default_drafter": "b"}, "default_drafter is 'b'; this engine's drafters: a"),
        (["a b=ngram"], {}, "drafters.a b"),
    ],
)
def test_values_that_the_server_does_not_take(
    model: Path, drafters: list[str], settings: dict[str, Any], said: str
) -> None:
    """A value out of range, a name twice and an unknown default are told."""
    with pytest.raises(UsageError) as caught:
        made(model, *drafters, **settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("drafter", "said"),
    [
        ("d=draft_model,model=/nowhere", "drafter d: model: no folder '/nowhere'; give the path of one that is there"),
        ("n=ngram,corpus=/nowhere", "drafter n: corpus: no file '/nowhere'"),
        ("m=mtp,model=/", "drafter m: model: '/' holds no model: it needs config.json and *.safetensors"),
        ("b=ngram,lengths={}", "lengths is {}; allowed: fixed, goodput, or a table"),
    ],
)
def test_drafters_that_cannot_be_loaded(model: Path, tmp_path: Path, drafter: str, said: str) -> None:
    """A file or folder that is not there is told before the target is loaded, whether it was said here or in a file."""
    with pytest.raises(UsageError) as caught:
        made(model, drafter)
    assert said in str(caught.value)
    file = tmp_path / "server.json"
    file.write_text('{"drafters": {"x": {"spec": {"method": "medusa", "model": "/nowhere"}}}}')
    with pytest.raises(UsageError, match="drafter x: model: no folder '/nowhere'"):
        made(model, file=file)


def test_a_home_folder_in_a_path_is_found(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell leaves the ~ behind model= alone; the server gets the folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = made(model, "d=draft_model,model=~/tiny").drafters["d"].spec
    assert isinstance(spec, DraftModelSpec)
    assert spec.model == model


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("{", "not JSON"),
        ("[]", "is an object of keys, not list"),
        ('{"threds": 2}', "the server has no option 'threds'; did you mean 'threads'?"),
        ('{"drafters": {"a": {"spec": {"method": "ngram"}, "length": 3}}}', "unknown key 'drafters.a.length'"),
    ],
)
def test_files_that_cannot_be_used(model: Path, tmp_path: Path, content: str | None, said: str) -> None:
    """A missing, damaged or wrong file is told by what is wrong in it."""
    file = tmp_path / "server.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError) as caught:
        made(model, file=file)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no model given; for example: harness serve smollm2-135m"),
        (["smolm2-135m"], "no model 'smolm2-135m'; did you mean 'smollm2-135m'?"),
        (["smollm2-135m", "--drafter", "x"], "--drafter 'x'; give NAME=METHOD"),
        (["smollm2-135m", "--threads", "0"], "threads is 0: input should be greater than or equal to 1"),
    ],
)
def test_bad_input_ends_with_2_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """The command says what is wrong and ends with the exit code of bad input."""
    assert cli.run(["serve", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_unknown_choices_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """A type of weights that there is not is told by the parser."""
    with pytest.raises(SystemExit) as ended:
        cli.run(["serve", "smollm2-135m", "--dtype", "float16"])
    assert ended.value.code == 2
    assert "choose from" in capsys.readouterr().err
