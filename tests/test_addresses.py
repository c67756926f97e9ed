"""Addresses of servers as people write them: each mistake is named, in files and on the command line, and no secret is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.addresses import address_fault, shown_address
from harness.errors import UsageError, WorkloadError
from harness.overrides import Overrides
from harness.prepare import experiment_of
from harness.tasks import write_tasks
from tests.test_experiment import task

FILE = """\
name: w
tasks: tasks.jsonl
engine: {kind: KIND}
concurrency: [1]
arms:
  - {name: baseline, method: none, base_url: 'ADDRESS'}
"""


@pytest.mark.parametrize("address", ["http://a", "https://a.b:8443/path", "http://[::1]:8000", "http://10.0.0.7:1/"])
def test_usable_addresses(address: str) -> None:
    """Names, numbers, ports and paths are fine."""
    assert address_fault(address) is None


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "an address has no blanks"),
        ("a:8000", "http:// is missing in front of it: http://a:8000"),
        ("htp://a", "did you mean http://?"),
        ("http://a/v1", "without /v1"),
        ("http://a:99999", "its port is no number up to 65535"),
        ("http://a:b", "its port is no number up to 65535"),
        ("http://a:0", "there is no port 0"),
        ("http://", "no usable host"),
        ("http://a b", "an address has no blanks"),
        ("http://${HOST}:8000", "nothing is filled in here"),
        ("http://a:1,http://b:2", "more than one address"),
        ("http://me:hunter22@a", "'http://***@a': an address has no user, password or query"),
        ("http://me:hunter/22@a", "'http://***@a'"),
        ("http://me:hunter?22@a", "'http://***@a'"),
        ("http://a?api_key=hunter22", "'http://a?***': an address has no user, password or query"),
    ],
)
def test_mistakes(address: str, words: str) -> None:
    """Each is named with what to write instead; a password or a key is not repeated."""
    fault = address_fault(address) or ""
    assert words in fault
    assert "hunter" not in fault


def test_several_addresses_are_shown_without_their_secrets() -> None:
    """Names and places stay."""
    assert shown_address("a=http://u:p@x:1,b=http://y?k=1") == "a=http://***@x:1,b=http://y?***"


@pytest.mark.parametrize("kind", ["vllm", "openai"])
def test_a_file_is_refused_at_its_line(tmp_path: Path, kind: str) -> None:
    """An address with a password in a workload file ends with file and line."""
    write_tasks(tmp_path / "tasks.jsonl", [task(0)])
    path = tmp_path / "w.yaml"
    path.write_text(FILE.replace("KIND", kind).replace("ADDRESS", "http://u:hunter22@a:99"), encoding="utf-8")
    with pytest.raises(WorkloadError) as caught:
        experiment_of([path], Overrides())
    assert str(caught.value).startswith(f"{path}:6: base_url is 'http://***@a:99': an address has no user")
    path.write_text(
        FILE.replace("KIND", kind).replace(", base_url: 'ADDRESS'", "").replace("KIND", kind), encoding="utf-8"
    )
    for given in ("http://u:hunter22@a:99", "baseline=http://a?key=hunter22", "http://a:1,http://b:2"):
        with pytest.raises(UsageError, match="--base-url") as wrong:
            experiment_of([path], Overrides(base_url=given))
        assert "hunter22" not in str(wrong.value)
