"""Settings of the arms' servers, and in what they differ: pure, from command lines as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engines.flags import ArmFlags, combined, differences, from_command, from_server, of_description
from harness.workload_launch import LaunchSpec, launch_of


def flags(arm: str, *command: str, **keys: Any) -> ArmFlags:
    """Return the flags of a command line."""
    launch = launch_of(
        arm,
        LaunchSpec.model_validate({"command": list(command), **keys}),
        None,
        drafts=arm != "base",
        context_tokens=4096,
    )
    assert launch is not None
    return from_command(launch)


def test_flags_are_read_as_servers_take_them() -> None:
    """Both spellings of a value, flags without one, several values, negative numbers, dashes and underscores."""
    found = flags("a", "serve", "m", "--max-model-len=4096", "--max_num_seqs", "16", "--eager", "-np", "8", "--seed", "-1",
                  "--gpus", "0", "1")  # fmt: skip
    assert found.flags == {
        "program": "serve m", "max-model-len": "4096", "max-num-seqs": "16", "eager": "true", "np": "8", "seed": "-1", "gpus": "0 1",
    }  # fmt: skip


def test_what_differs_from_start_to_start_is_no_setting() -> None:
    """Port and host are left out, wherever the port was filled in."""
    assert flags("a", "serve", "--port", "{port}", "--host", "127.0.0.1").flags == {"program": "serve"}


def test_only_the_drafter_differs() -> None:
    """A drafter that only one of two arms has is a difference, and the drafter's own."""
    command = ("serve", "--max-num-seqs", "8", "--speculative-config", "{speculative_config}")
    config = {"method": "ngram", "num_speculative_tokens": 4}
    found = differences([flags("base", *command), flags("drafted", *command, speculative_config=config)])
    assert [(item.name, item.drafter) for item in found] == [("speculative-config", True)]
    assert found[0].values == {"base": None, "drafted": '{"method": "ngram", "num_speculative_tokens": 4}'}


@pytest.mark.parametrize(
    ("flag", "drafter"),
    [
        ("--speculative-config", True), ("--speculative-algorithm", True), ("--spec-type", True), ("--spec-draft-n-max", True),
        ("-md", True), ("--model-draft", True), ("--threads-draft", True), ("--draft-max", True), ("--speculative-config.method", True),
        ("--per-request-spec-decode-metrics", True), ("--max-num-seqs", False), ("--dtype", False), ("--special", False),
        ("--draftsman", False), ("-c", False),
    ],
)  # fmt: skip
def test_which_flags_are_the_drafters(flag: str, drafter: bool) -> None:
    """Flags of the drafter in the spellings of vLLM, SGLang, LMDeploy and llama.cpp, and others that look like one."""
    (found,) = differences([flags("base", "serve"), flags("drafted", "serve", flag, "1")])
    assert found.drafter is drafter


def test_a_difference_beyond_the_drafter_comes_first() -> None:
    """What makes a comparison unfair stands in front of what is compared."""
    drafted = flags("drafted", "serve", "--spec-type", "x", "--quantization", "fp8", env={"TUNING": "1"})
    found = differences([flags("base", "serve"), drafted])
    assert [(item.name, item.drafter) for item in found] == [
        ("env TUNING", False), ("quantization", False), ("spec-type", True),
    ]  # fmt: skip


def test_json_in_another_spelling_is_the_same() -> None:
    """Blanks and the order of keys make no difference."""
    one = flags("base", "serve", "--config", '{"a":1,"b":[2]}')
    other = flags("drafted", "serve", "--config", '{"b": [2], "a": 1}')
    assert differences([one, other]) == ()


def test_what_the_server_sets_by_itself_counts() -> None:
    """Two equal command lines, but one server says that it works on 48 requests at most."""
    command = flags("base", "serve"), flags("drafted", "serve")
    told: list[dict[str, Any]] = [
        {"max_running_requests": 256, "speculative_algorithm": None},
        {"max_running_requests": 48, "speculative_algorithm": "EAGLE3"},
    ]
    arms = [combined(given, from_server(given.arm, own)) for given, own in zip(command, told, strict=True)]
    found = {item.name: item for item in differences(arms)}
    assert not found["max-running-requests"].drafter
    assert found["max-running-requests"].values == {"base": "256", "drafted": "48"}
    assert found["speculative-algorithm"].values == {"base": None, "drafted": "EAGLE3"}


def test_unknown_is_no_difference() -> None:
    """An arm of which nothing is known, and a name that a command line cannot tell, are not compared."""
    told = from_server("drafted", {"max_model_len": 4096})
    assert differences([flags("base", "serve"), told, ArmFlags("third")]) == ()
    assert from_server("drafted", {}).source is None


def test_keys_are_masked() -> None:
    """The value of a key stands in no manifest, whether it came from the environment or from the server."""
    given = flags("a", "serve", "--api-key", "${SERVER_KEY}", "--verbose")
    assert given.flags == {"program": "serve", "api-key": "***", "verbose": "true"}
    assert from_server("a", {"api_key": "sk-1234567890"}).flags == {"api-key": "***"}


def test_the_manifest_gives_them_back() -> None:
    """What is written under an arm is read again; arms of older runs, or not up yet, are unknown."""
    own = flags("a", "serve", "--dtype", "bfloat16")
    engine = {"arms": {"a": {"flags": own.to_json()}, "b": None, "c": {"method": "none"}}}
    assert of_description(engine) == [own, ArmFlags("b"), ArmFlags("c")]
    assert of_description(None) == []
