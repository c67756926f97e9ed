"""Access to servers: what a file may say, what must come from the environment, and that no secret gets out of it."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.access import OPEN, AccessError, AccessSpec, open_access
from harness.errors import WorkloadError
from harness.redaction import MASK, mask, redacted
from harness.workload import load
from tests.authority import Authority

KEY = "sk-live-0123456789abcdef"
ENVIRON = {"ENGINE_KEY": f" {KEY}\n", "TENANT": "team-7", "EMPTY": " "}


def test_key_from_the_environment() -> None:
    """The key is the variable's value without the blanks around it; its name, not its value, is what can be shown."""
    access = open_access(AccessSpec(api_key_env="ENGINE_KEY"), environ=ENVIRON)
    assert access.headers == {"authorization": f"Bearer {KEY}"}
    assert access.key_from == "$ENGINE_KEY"
    assert access.redact(f"no such key: {KEY}") == f"no such key: {MASK}"


def test_headers_with_variables() -> None:
    """Variables are filled into headers; a header without one stays as it is."""
    spec = AccessSpec(headers={"x-api-key": "${ENGINE_KEY}", "x-tenant": "a/${TENANT}", "x-route": "blue"})
    access = open_access(spec, environ=ENVIRON | {"ENGINE_KEY": KEY})
    assert access.headers == {"x-api-key": KEY, "x-tenant": "a/team-7", "x-route": "blue"}


def test_nothing_said() -> None:
    """Without a specification there is no header, no proxy, and the system's trust."""
    access = open_access(None)
    assert access is OPEN
    assert (dict(access.headers), access.proxy_for("https://a.example"), access.tls) == ({}, None, None)
    assert isinstance(access.context("https://a.example"), ssl.SSLContext)
    assert access.context("http://a.example") is None


@pytest.mark.parametrize(
    ("spec", "key", "words"),
    [
        ({"api_key_env": "MISSING"}, "api_key_env", "MISSING, which is not set"),
        ({"api_key_env": "EMPTY"}, "api_key_env", "EMPTY, which is empty"),
        ({"headers": {"x-key": "${MISSING}"}}, "headers", "MISSING, which is not set"),
        ({"proxy": "http://u:${MISSING}@proxy.example"}, "proxy", "MISSING, which is not set"),
        (
            {"api_key_env": "ENGINE_KEY", "headers": {"Authorization": "Bearer ${TENANT}"}},
            "api_key_env",
            "the same thing twice",
        ),
        ({"ca_file": "none.pem"}, "ca_file", "none.pem' cannot be used: No such file"),
        ({"client_key": "key.pem"}, "client_key", "without client_cert"),
        ({"client_cert": "none.pem"}, "client_cert", "none.pem' cannot be used"),
    ],
)
def test_what_is_not_there(tmp_path: Path, spec: dict[str, Any], key: str, words: str) -> None:
    """A variable or file that is missing is named together with its key, before anything is sent."""
    with pytest.raises(AccessError, match=words) as caught:
        open_access(AccessSpec(**spec), folder=tmp_path, environ=ENVIRON)
    assert caught.value.key == key
    assert caught.value.exit_code == 2


def test_unusable_certificates(tmp_path: Path) -> None:
    """A file that is no certificate, a key of another certificate and an encrypted key are each named."""
    authority = Authority.create(tmp_path)
    (tmp_path / "noise.pem").write_text("hello")
    encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGrMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAc\n"
    (tmp_path / "encrypted.key").write_text(f"{encrypted}-----END ENCRYPTED PRIVATE KEY-----\n")
    other = authority.ca.issue_cert("other.example")
    other.private_key_pem.write_to_path(tmp_path / "other.key")
    for spec, key in (
        (AccessSpec(ca_file="noise.pem"), "ca_file"),
        (AccessSpec(client_cert="noise.pem"), "client_cert"),
        (AccessSpec(client_cert="client.pem", client_key="other.key"), "client_cert"),
        (AccessSpec(client_cert="client.pem", client_key="encrypted.key"), "client_cert"),
        (AccessSpec(client_cert="client.pem", client_key="none.key"), "client_key"),
    ):
        with pytest.raises(AccessError, match=r"cannot be used|is encrypted") as caught:
            open_access(spec, folder=tmp_path)
        assert caught.value.key == key
    assert open_access(
        AccessSpec(ca_file="ca.pem", client_cert="client.pem", client_key="client.key"), folder=tmp_path
    ).tls


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"api_key_env": KEY}, "name of an environment variable"),
        ({"headers": {"Authorization": f"Bearer {KEY}"}}, "looks like a secret"),
        ({"headers": {"x-api-key": KEY}}, "looks like a secret"),
        ({"headers": {"x-session-token": f"${{{KEY}}}"}}, "name of an environment variable"),
        ({"headers": {"Host": "elsewhere"}}, "set by the harness itself"),
        ({"headers": {"x a": "b"}}, "letters, digits and dashes"),
        ({"headers": {"x-a": "b", "X-A": "c"}}, "appears twice"),
        ({"headers": {"x-a": "b\r\nx-b: c"}}, "printable ASCII"),
        ({"proxy": f"http://user:{KEY}@proxy.example"}, "password has no place in a file"),
        ({"proxy": f"user:{KEY}@proxy.example:3128"}, "password has no place in a file"),
        ({"proxy": "socks5://proxy.example"}, "socks5://… cannot be used"),
        ({"verify": "no"}, "valid boolean"),
        ({"api_key": KEY}, "Extra inputs"),
    ],
)
def test_what_a_file_may_not_say(spec: dict[str, Any], words: str) -> None:
    """A key where only its variable's name belongs, and headers that cannot be sent, are refused without repeating the value."""
    with pytest.raises(ValidationError, match=words) as caught:
        AccessSpec(**spec)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [f"api_key_env: {KEY}", f"headers: {{authorization: Bearer {KEY}}}", f"api_key: {KEY}", f"proxy: http://u:{KEY}@p"],
)
def test_key_in_a_workload_file(tmp_path: Path, line: str) -> None:
    """A workload file with a key in it is refused by file and line; the message does not hold the key."""
    path = tmp_path / "w.yaml"
    path.write_text(
        "name: w\ntasks: t.jsonl\nengine:\n  kind: vllm\n  base_url: http://127.0.0.1:8000\n  access:\n"
        f"    {line}\narms:\n  - {{name: a, method: none}}\nconcurrency: [1]\n"
    )
    with pytest.raises(WorkloadError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:7:")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "text", [KEY, json.dumps({"key": KEY}), f"cut off {KEY[:9]}", f"{KEY}{KEY}", f"{KEY[:-1]}!", f"x{KEY[:12]}{KEY}"]
)
def test_mask(text: str) -> None:
    """A key is masked wherever it stands, and so is its beginning where an excerpt cut it off."""
    assert "sk-live" not in mask(text, [KEY])


def test_mask_keeps_the_rest() -> None:
    """What is no part of a key stays, word for word."""
    assert mask(f"a {KEY} b sk-other c", [KEY]) == f"a {MASK} b sk-other c"


def test_secrets_by_name() -> None:
    """What a server tells of its own settings is kept, keys aside: in mappings by their name, in argument lists by their option."""
    told = {
        "api_key": "k-1", "admin_api_key": None, "hf_token": "hf_x", "max_tokens": 7, "bos_token": "<s>", "tokenizer": "t",
        "argv": ["serve", "--api-key", "a", "b", "--port", "1", "--hf-token=x", "--max-tokens", "5"],
        "nested": [{"password": "p"}],
    }  # fmt: skip
    assert redacted(told) == {
        "api_key": MASK, "admin_api_key": None, "hf_token": MASK, "max_tokens": 7, "bos_token": "<s>", "tokenizer": "t",
        "argv": ["serve", "--api-key", MASK, MASK, "--port", "1", f"--hf-token={MASK}", "--max-tokens", "5"],
        "nested": [{"password": MASK}],
    }  # fmt: skip


def test_secrets_by_value() -> None:
    """A key is masked in a value of any name, too: a server may repeat the request it got."""
    access = open_access(AccessSpec(api_key_env="ENGINE_KEY"), environ=ENVIRON)
    assert access.redacted({"headers": [f"Bearer {KEY}"], "n": 1}) == {"headers": [f"Bearer {MASK}"], "n": 1}


def test_password_of_an_environment_proxy() -> None:
    """The password of a proxy that the environment names is a secret as well."""
    access = open_access(
        AccessSpec(proxy="env"), environ={"HTTPS_PROXY": "http://user:open%2Dsesame@proxy.example:3128"}
    )
    assert access.redact("open-sesame open%2Dsesame dXNlcjpvcGVuLXNlc2FtZQ==") == f"{MASK} {MASK} {MASK}"
