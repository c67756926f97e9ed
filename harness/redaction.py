"""Takes keys and passwords out of whatever is shown or written down: by their value, and by the name they stand under."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

MASK = "***"
_SHORTEST = 4  # shorter values are no keys, and would mask every other word
_PREFIX = 8  # an excerpt may cut a key in two: so much of its beginning gives it away
# as setting names end that hold a secret (SGLang's api_key and admin_api_key, vLLM's --api-key, hf_token …); max_tokens is none
_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:api[_-]?keys?|authorization|cookie|passw(?:or)?d|secrets?|(?:hf|auth|access|bearer|refresh)[_-]?token"
    r"|keyfile[_-]password|credentials?)$",
    re.IGNORECASE,
)
# as variables of an environment are called that hold one (OPENAI_API_KEY, AWS_ACCESS_KEY_ID); TOKENIZERS_PARALLELISM is none
_SECRET_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?(?![A-Z])", re.IGNORECASE)
_SHORTEST_VARIABLE = 8  # a value such as "true" or "16384" is no key
# as makers of models, hubs and clouds begin their keys
_KEY = re.compile(
    r"(?<![A-Za-z0-9_-])(?:sk-|pk-|hf_|nvapi-|gsk_|xai-|gh[opsu]_|github_pat_|glpat-|xox[abp]-|AKIA|AIza)[A-Za-z0-9_-]{16,}"
)
# in the text of a shell: VLLM_API_KEY=… and --api-key …
_ASSIGNED = re.compile(r"(?:^|(?<=[\s;&|'\"(]))-{0,2}([A-Za-z][\w-]*)=(\S+)|--([A-Za-z][\w-]*)\s+([^\s-]\S*)")
_SECRET_HEADER = re.compile(r"auth|cookie|credential|key|passw|secret|signature|token", re.IGNORECASE)


def holds_secret(setting: str) -> bool:
    """Tell whether a setting of this name (``api_key``, ``--hf-token``) holds a secret."""
    return _SECRET_NAME.search(setting) is not None


def header_holds_secret(name: str) -> bool:
    """Tell whether a header of this name usually carries a secret."""
    return _SECRET_HEADER.search(name) is not None


def forms(secret: str) -> tuple[str, ...]:
    """Return a secret as it stands, as JSON, Python, a URL and HTTP's basic authentication write it; none if it is too short."""
    if len(secret) < _SHORTEST:
        return ()
    written = {
        secret,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        quote(secret, safe=""),
        base64.b64encode(secret.encode()).decode(),
    }
    return tuple(sorted(written, key=len, reverse=True))


def plain_secrets(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the places in a file's value where a key itself seems to stand, by its form or by the name before it.

    A text that takes something from the environment (``$NAME``, ``${NAME}``) is none, nor are settings that name a variable.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str) and holds_secret(key) and _is_plain(item):
                yield (*place, key)
            else:
                yield from plain_secrets(item, (*place, key))
    elif isinstance(value, str):
        if _KEY.search(value) or any(_is_assigned(*found) for found in _ASSIGNED.findall(value)):
            yield place
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for index, item in enumerate(value):
            yield from plain_secrets(item, (*place, index))


def _is_plain(item: Any) -> bool:
    if isinstance(item, str):
        return bool(item) and "$" not in item
    return isinstance(item, int | float) and not isinstance(item, bool)


def _is_assigned(variable: str, value: str, option: str, after: str) -> bool:
    return any(
        name and holds_secret(name) and _is_plain(text.strip("'\""))
        for name, text in ((variable, value), (option, after))
    )


def environment_secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return all spellings of the values of variables whose name says that they hold a secret; places of files are none.

    A program that is started here inherits them, and may print them.
    """
    values = {
        value.strip()
        for name, value in environment.items()
        if len(value.strip()) >= _SHORTEST_VARIABLE and _SECRET_VARIABLE.search(name)
    }
    return tuple(
        sorted({form for value in values if not is_file(value) for form in forms(value)}, key=len, reverse=True)
    )


def is_file(value: str) -> bool:
    """Tell whether a value is the place of a file or folder that is there."""
    try:
        return "/" in value and Path(value).exists()
    except (OSError, ValueError):  # a key that is longer than any name of a file
        return False


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets, nor any beginning of one of 8 letters and more."""
    known = [secret for secret in secrets if secret]
    found: list[str] = []
    rest = text
    while True:
        starts = {secret: rest.find(secret[:_PREFIX]) for secret in known}
        at = min((start for start in starts.values() if start >= 0), default=-1)
        if at < 0:
            return "".join([*found, rest])
        longest = max(_shared(rest, at, secret) for secret, start in starts.items() if start == at)
        found += [rest[:at], MASK]
        rest = rest[at + longest :]


def mask_keys(text: str) -> str:
    """Return the text without what begins and looks as makers of models, hubs and clouds write their keys, whoever's they are."""
    return _KEY.sub(MASK, text)


def _shared(text: str, at: int, secret: str) -> int:
    """Return how many letters from a place on are those of the secret."""
    count = 0
    while count < len(secret) and text[at + count : at + count + 1] == secret[count]:
        count += 1
    return count


def redacted(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a JSON-like value with every secret masked.

    Masked are the given secrets wherever they stand, the values of settings that hold one by their name, and such options in
    argument lists (``--api-key X`` and ``--api-key=X``). Numbers, ``None`` and booleans stay.
    """
    known = tuple(secrets)
    if isinstance(value, str):
        return mask(value, known)
    if isinstance(value, Mapping):
        return {
            mask(key, known) if isinstance(key, str) else key: _named(key, redacted(item, known))
            for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return _arguments([redacted(item, known) for item in value])
    return value


def _named(key: Any, value: Any) -> Any:
    if not isinstance(key, str) or not holds_secret(key) or value is None or isinstance(value, bool):
        return value
    return MASK if value else value


def _arguments(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    hidden = False
    for item in items:
        if hidden and isinstance(item, str) and not item.startswith("--"):
            found.append(MASK)
            continue  # an option may take several keys
        hidden = False
        name, equals, _ = item.partition("=") if isinstance(item, str) else ("", "", "")
        if name.startswith("--") and holds_secret(name.removeprefix("--")):
            hidden = not equals
            found.append(f"{name}={MASK}" if equals else item)
        else:
            found.append(item)
    return found
