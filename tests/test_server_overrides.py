"""Servers on the command line: by address, an arm each, with a key from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.overrides import Overrides, apply
from harness.workload import Arm, Workload, load

OFFICE = Path(__file__).parent.parent / "workloads" / "office-ko.yaml"


def given(**overrides: str) -> Workload:
    """Return the office workload with these overrides."""
    return apply(load(OFFICE), Overrides(**overrides)).workload  # type: ignore[arg-type]


def placed(arms: list[Arm]) -> list[tuple[str, str, str | None]]:
    """Return name, method and address of arms."""
    return [(arm.name, arm.method, arm.base_url) for arm in arms]


def test_one_address_is_one_server_as_it_is() -> None:
    """A file for other engines has no arm for it; the server names its model itself."""
    workload = given(engine="vllm", base_url="http://a:8000")
    assert placed(workload.arms) == [("server", "served", "http://a:8000")]
    assert (workload.engine.kind, workload.engine.model, workload.engine.base_url) == ("vllm", "", None)


def test_names_with_addresses_are_arms() -> None:
    """``baseline`` is one without a drafter, the file's own; any other name is a server as it is."""
    workload = given(engine="sglang", base_url="baseline=http://a:1,eagle3=http://b:2", model="qwen3")
    assert placed(workload.arms) == [("baseline", "none", "http://a:1"), ("eagle3", "served", "http://b:2")]
    assert workload.engine.model == "qwen3"


def test_a_wrong_address_is_the_options_fault() -> None:
    """The file has no line for it."""
    loaded = apply(load(OFFICE), Overrides(engine="vllm", base_url="a=here"))
    assert loaded.where("arms", 0, "base_url") == "--base-url a=here"


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        ({"engine": "llamacpp", "base_url": "a=http://a:1"}, "--base-url NAME=URL is for vllm, sglang"),
        ({"engine": "vllm", "base_url": "a=http://a:1,a=http://b:1"}, "names an arm twice"),
        ({"engine": "vllm", "base_url": "a=http://a:1", "arms": ("a",)}, "leave --arms out"),
        (
            {"engine": "vllm", "base_url": "http://a:1", "api_key_env": "sk-secret"},
            "--api-key-env: give the name of an environment",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(overrides: dict[str, str], wanted: str) -> None:
    """Before anything is sent, and without repeating what may be a key."""
    with pytest.raises(UsageError, match=wanted) as caught:
        given(**overrides)
    assert "sk-secret" not in str(caught.value)


def test_a_key_goes_with_the_servers() -> None:
    """The name of the variable is kept, for the run to be continued with."""
    overrides = Overrides(engine="vllm", base_url="http://a:1", api_key_env="SERVER_KEY")
    workload = apply(load(OFFICE), overrides).workload
    assert workload.engine.access is not None
    assert workload.engine.access.api_key_env == "SERVER_KEY"
    assert Overrides.from_json(overrides.to_json()) == overrides
