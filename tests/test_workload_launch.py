"""How a workload says that servers are started: merging, filling in, and every mistake at its line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError, WorkloadError
from harness.overrides import Overrides
from harness.prepare import experiment_of
from harness.tasks import write_tasks
from harness.workload import load
from harness.workload_launch import Launch, LaunchSpec, launch_of
from tests.test_experiment import task

HEAD = """\
name: w
tasks: tasks.jsonl
engine:
  kind: vllm
  launch:
    command: [PYTHON, --port, "{port}", --max-num-seqs, 16, --speculative-config, "{speculative_config}"]
    env: {TUNING: 1}
arms:
  - {name: baseline, method: none}
  - name: drafted
    method: ngram
    launch:
      speculative_config: {method: ngram, num_speculative_tokens: 4}
concurrency: [1]
""".replace("PYTHON", sys.executable)


def written(folder: Path, content: str) -> Path:
    """Write a workload and its tasks."""
    write_tasks(folder / "tasks.jsonl", [task(0)])
    path = folder / "w.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def launch(shared: dict[str, Any] | None, own: dict[str, Any] | None, *, drafts: bool = True) -> Launch:
    """Return how an arm's server is started."""
    specs = [None if keys is None else LaunchSpec.model_validate(keys) for keys in (shared, own)]
    found = launch_of("a", *specs, drafts=drafts, context_tokens=4096)
    assert found is not None
    return found


def test_an_arm_adds_to_what_all_share() -> None:
    """Arguments go behind the engine's, variables over them, other keys of the arm stand over the engine's."""
    shared = {"command": ["serve", 1], "env": {"A": "1", "B": "1"}, "health": "/ready", "start_timeout_s": 60.0}
    found = launch(shared, {"command": ["--x"], "env": {"B": "2"}, "health": "/up", "side_by_side": True})
    assert found.command == ("serve", "1", "--x")
    assert found.env == {"A": "1", "B": "2"}
    assert (found.health, found.start_timeout_s, found.side_by_side) == ("/up", 60.0, True)
    assert launch_of("a", None, None, drafts=True, context_tokens=4096) is None
    assert launch({"command": ["serve"]}, None).health == "/health"


def test_places_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Port, model, context, arm and variables; JSON of the user's own and doubled braces are no places."""
    monkeypatch.setenv("LAUNCH_TEST_KEY", "sk-{port}")
    command = [
        "s",
        "--port={port}",
        "{model}",
        "{context_tokens}",
        "{arm}.log",
        '{"a": {}}',
        "{{port}}",
        "${LAUNCH_TEST_KEY}",
    ]
    found = launch({"command": command}, None)
    assert found.takes_port
    assert found.arguments(port=8001, model="m") == [
        "s", "--port=8001", "m", "4096", "a.log", '{"a": {}}', "{{port}}", "sk-{port}",
    ]  # fmt: skip
    assert found.variables() == ["LAUNCH_TEST_KEY"]
    assert found.secrets() == ["sk-{port}"]
    monkeypatch.setenv("LAUNCH_TEST_KEY", str(Path(__file__)))
    assert found.secrets() == []  # the place of a file is no key


@pytest.mark.parametrize(
    "command",
    [
        ["s", "--speculative-config", "{speculative_config}", "-v"],
        ["s", "--speculative-config={speculative_config}", "-v"],
        ["s", "{speculative_config}", "-v"],
    ],
)
def test_a_baseline_has_no_trace_of_the_drafter(command: list[str]) -> None:
    """The argument goes, with the flag before it, also where the engine has a configuration for all arms."""
    shared = {"command": command, "speculative_config": {"method": "ngram"}}
    assert launch(shared, None, drafts=False).arguments(port=None, model="") == ["s", "-v"]
    assert '{"method": "ngram"}' in launch(shared, None).arguments(port=None, model="")[-2]


def test_a_workload_of_launched_arms_is_read(tmp_path: Path) -> None:
    """The servers of both arms, and what the file leaves out: the model is the one that the server tells."""
    plan = experiment_of([written(tmp_path, HEAD)], Overrides())
    launches = [plan.engine.launch_for(arm) for arm in plan.arms]
    assert all(item is not None and item.env == {"TUNING": "1"} for item in launches)
    assert plan.engine.model == ""
    assert plan.one_server_at_a_time
    both = HEAD.replace("    env:", "    side_by_side: true\n    env:")
    assert not experiment_of([written(tmp_path, both)], Overrides()).one_server_at_a_time


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('"{port}"', '"{prot}"', 6, "unknown place {prot}; did you mean {port}? known: {port}, {model}, {context_tokens}, {spec"),
        ('"{port}"', '"{ port }"', 6, "unknown place { port }; did you mean {port}? known"),
        ('"{port}"', '"{PORT}"', 6, "unknown place {PORT}; did you mean {port}?"),
        ('"{port}"', '"{port"', 6, "the place '{port' is not closed; write {port}"),
        ('"{speculative_config}"', '"{speculative-config}"', 6, "did you mean {speculative_config}?"),
        ("16", '"{max-model-len}"', 6, "unknown place {max-model-len}; known: {port}"),
        ("16", '"{model}"', 6, "command has {model}; give engine.model or --model"),
        ("{TUNING: 1}", "{TUNING: '{model}'}", 7, "env has {model}; give engine.model or --model"),
        ("    env:", "    log: /tmp\n    env:", 7, "log '/tmp' is a folder; give the path of a file"),
        ("    env:", "    log: /dev/null/x\n    env:", 7, "log '/dev/null/x' is below '/dev/null', which is no folder"),
        ('"{port}"', "8000", 9, "has no {port}"),
        ("--max-num-seqs, 16", "--api-key, sk-123456", 6, "a key never stands in a workload file"),
        ("{TUNING: 1}", "{HF_TOKEN: hf_abcdef}", 7, "a key never stands in a workload file: leave HF_TOKEN out"),
        ("{TUNING: 1}", "{KEY: '${LAUNCH_TEST_UNSET}'}", 5, "the environment has no LAUNCH_TEST_UNSET"),
        ("{TUNING: 1}", "{TUNING: sk-live-0123456789abcdef}", 7, "engine.launch.env.TUNING looks like a key"),
        ("--max-num-seqs, 16", "-c, 'VLLM_API_KEY=0123456789 exec s'", 6, "engine.launch.command.4 looks like a key"),
        ("--max-num-seqs, 16", "-c, 's --api-key 0123456789'", 6, "engine.launch.command.4 looks like a key"),
        ("method: ngram,", "method: ngram, hf_token: 0123456789,", 13, "speculative_config.hf_token looks like a key"),
        ("  kind: vllm", "  kind: vllm\n  options: {extra_body: {api_key: '0123456789'}}", 5, "extra_body.api_key looks like a key"),
        ("  kind: vllm", "  kind: vllm\n  options: {extra_body: {x: [nvapi-0123456789abcdef]}}", 5, "x.0 looks like a key"),
        (sys.executable, "no-such-program", 6, "the program 'no-such-program' is not there"),
        ("    env:", "    cwd: nowhere\n    env:", 7, "cwd 'nowhere' is no folder"),
        ("    env:", "    heath: /up\n    env:", 7, "unknown key 'engine.launch.heath'; did you mean 'health'?"),
        ("    env:", "    health: up\n    env:", 7, "engine.launch.health is 'up'"),
        ("method: none}", "method: none, launch: {speculative_config: {method: x}}}", 9, "a baseline (method none) has no"),
        ("      speculative_config: {method: ngram, num_speculative_tokens: 4}", "      health: /up", 11, "speculative_config is missing"),
        ("--speculative-config, \"{speculative_config}\"", "-v", 13, "has no {speculative_config}, so it would have no effect"),
        ("  kind: vllm", "  kind: builtin\n  model: m", 6, "the engine builtin has no launch"),
    ],
)  # fmt: skip
def test_mistakes_are_told_at_their_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    """Nothing is started: what is wrong is said with file and line, and no key is repeated."""
    assert old in HEAD
    path = written(tmp_path, HEAD.replace(old, new))
    with pytest.raises(WorkloadError) as caught:
        experiment_of([path], Overrides())
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert "sk-123456" not in str(caught.value)
    assert "hf_abcdef" not in str(caught.value)


def test_braces_of_other_languages_are_left_alone() -> None:
    """JSON, a shell's own braces and templates are no places."""
    for text in (
        '{"model": "m"}',
        "{model: m}",
        "for i in {1..3}; do :; done",
        "{{ port }}",
        "${PORT}",
        "f() { echo a; }",
        "{}",
    ):
        assert LaunchSpec.model_validate({"command": ["sh", "-c", text]}).command[2] == text


def test_the_model_of_the_command_line_fills_the_place(tmp_path: Path) -> None:
    """``--model`` is as good as ``engine.model``."""
    path = written(tmp_path, HEAD.replace("16", '"{model}"'))
    assert experiment_of([path], Overrides(model="m")).engine.model == "m"


def test_a_misspelt_arm_of_the_command_line_is_refused(tmp_path: Path) -> None:
    """A name that is nearly one of the file's arms is no arm of its own; a different one is."""
    path = written(tmp_path, HEAD)
    with pytest.raises(UsageError, match=r"no arm 'basline'; did you mean baseline\?"):
        experiment_of([path], Overrides(base_url="basline=http://a:1,drafted=http://b:1"))
    plan = experiment_of([path], Overrides(base_url="baseline=http://a:1,baseline2=http://b:1"))
    assert [arm.name for arm in plan.arms] == ["baseline", "baseline2"]


def test_the_files_of_a_run_share_one_order(tmp_path: Path) -> None:
    """A file whose arms alternate and one whose arms run one after the other make no run."""
    paths = []
    for name, order in (("a", "alternate"), ("b", "per_arm")):
        (tmp_path / name).mkdir()
        paths.append(written(tmp_path / name, HEAD.replace("name: w", f"name: {name}\norder: {order}")))
    with pytest.raises(UsageError, match=rf"{paths[1]}:2: order is per_arm, that of .* is alternate"):
        experiment_of(paths, Overrides())


def test_another_engine_leaves_launches_behind(tmp_path: Path) -> None:
    """``--engine`` takes neither launch nor model of the file's engine along; ``--base-url`` attaches instead of starting."""
    content = HEAD.replace("    method: ngram", "    method: ngram-simple").replace(
        "    launch:\n      spec", "    options: {}\n#"
    )
    plan = experiment_of([written(tmp_path, content)], Overrides(engine="llamacpp"))
    assert (plan.engine.launch, plan.engine.model) == (None, "smollm2-135m")


def test_what_is_written_down_is_what_was_read(tmp_path: Path) -> None:
    """A workload goes through JSON and back, so that a run can be continued."""
    workload = load(written(tmp_path, HEAD)).workload
    again = type(workload).model_validate(json.loads(json.dumps(workload.model_dump(mode="json"))))
    assert again == workload
