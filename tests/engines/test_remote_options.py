"""Workloads for servers of other makers are refused with file and line, before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engines.remote_options import check_arms, check_engine_options
from harness.errors import WorkloadError
from harness.workload import load

HEAD = "name: t\ntasks: tasks.jsonl\nconcurrency: [1]\n"


def complaints(tmp_path: Path, text: str) -> str:
    """Return what is wrong with a workload of these engine and arms, nothing if nothing is."""
    source = Path(__file__).parent.parent.parent / "workloads" / "data" / "office-ko.jsonl"
    (tmp_path / "tasks.jsonl").write_bytes(source.read_bytes())
    path = tmp_path / "w.yaml"
    path.write_text(HEAD + text, encoding="utf-8")
    try:
        check_arms(load(path))
    except WorkloadError as error:
        return str(error).replace(f"{tmp_path}/", "")
    return ""


def test_two_servers_by_address_are_fine(tmp_path: Path) -> None:
    """A baseline and a drafter as the server calls it, each at its own address."""
    text = (
        "engine: {kind: vllm, options: {extra_body: {chat_template_kwargs: {enable_thinking: false}}}}\n"
        "arms:\n"
        "  - {name: baseline, method: none, base_url: 'http://a:8000'}\n"
        "  - {name: eagle3, method: eagle3, base_url: 'http://b:8000', options: {num_speculative_tokens: 3}}\n"
    )
    assert complaints(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("arm", "wanted"),
    [
        ("{name: a, method: none}", "w.yaml:6: arm 'a' has no server: give base_url (of one that runs) or launch"),
        ("{name: a, method: none, base_url: 'a:8000'}", "w.yaml:6: base_url is 'a:8000'; give an address like"),
        ("{name: a, method: none, base_url: 'http://a:8000/v1'}", "without /v1"),
        ("{name: a, method: 'two words', base_url: 'http://a:8'}", "w.yaml:6: method is 'two words'; give none, served, or"),
        ("{name: a, method: eagle3, draft_model: x, base_url: 'http://a:8'}", "w.yaml:6: draft_model is for llamacpp; a vllm"),
        ("{name: a, method: none, options: {k: 3}, base_url: 'http://a:8'}", "w.yaml:6: an arm of method none has no options"),
        ("{name: a, method: none, launch: {env: {A: b}}}", "w.yaml:6: launch of arm 'a' has no command"),
        ("{name: a, method: none, launch: {command: [serve]}}", "w.yaml:6: the command of arm 'a' has no {port}"),
        (
            "{name: a, method: none, base_url: 'http://a:8', launch: {command: [serve, '{port}']}}",
            "w.yaml:6: arm 'a' has both base_url and a launch with {port}; remove base_url",
        ),
        (
            "{name: a, method: eagle, launch: {command: [s, '{port}'], speculative_config: {method: eagle3}}}",
            "w.yaml:6: arm 'a' is method 'eagle', but its speculative_config says 'eagle3'; make them equal",
        ),
    ],
)  # fmt: skip
def test_an_arm_that_cannot_be_meant_is_refused(tmp_path: Path, arm: str, wanted: str) -> None:
    """Each complaint names the line, what was given and what to do."""
    assert wanted in complaints(tmp_path, f"engine: {{kind: vllm}}\narms:\n  - {arm}\n")


def test_two_arms_cannot_share_a_server(tmp_path: Path) -> None:
    """A server drafts one way for everybody; behind a gateway, names of models tell two servers apart."""
    arms = "arms:\n  - {{name: a, method: none{}}}\n  - {{name: b, method: served{}}}\n"
    engine = "engine: {{kind: {}, base_url: 'http://a:8000/'}}\n"
    found = complaints(tmp_path, engine.format("vllm") + arms.format("", ""))
    assert "w.yaml:7: arms 'a' and 'b' are sent to the same server (http://a:8000/); give each its own" in found
    named = (", options: {model: plain}", ", options: {model: fast}")
    assert complaints(tmp_path, engine.format("openai") + arms.format(*named)) == ""


def test_engine_options_are_known_by_name(tmp_path: Path) -> None:
    """A typing error gets the name that was meant; fields that the workload sets itself are no extra ones."""
    arms = "arms:\n  - {name: a, method: none, base_url: 'http://a:8'}\n"
    found = complaints(tmp_path, "engine: {kind: sglang, options: {extra_bodi: {}}}\n" + arms)
    assert "w.yaml:4: sglang has no engine option 'extra_bodi'; did you mean 'extra_body'?" in found
    found = complaints(tmp_path, "engine: {kind: sglang, options: {extra_body: {seed: 1, top_k: 2}}}\n" + arms)
    assert "w.yaml:4: extra_body must not hold seed" in found
    with pytest.raises(WorkloadError, match="must not hold seed"):
        check_engine_options(load(tmp_path / "w.yaml"))


def test_a_key_that_is_not_there_is_told_at_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, and nothing is sent without the key."""
    monkeypatch.delenv("SERVER_KEY", raising=False)
    text = "engine:\n  kind: vllm\n  access: {api_key_env: SERVER_KEY}\narms:\n  - {name: a, method: none, base_url: 'http://a:8'}\n"
    assert (
        complaints(tmp_path, text)
        == "w.yaml:6: api_key_env names the environment variable SERVER_KEY, which is not set; set it"
    )
