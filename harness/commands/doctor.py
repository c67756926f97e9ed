"""`harness doctor`: its arguments, and from them to a screen of text. The command line prints it and ends with its exit code."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import EngineError, UsageError
from harness.progress import LiveBar

if TYPE_CHECKING:
    from harness.access import AccessSpec

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Screen:
    """What is printed, and the exit code: 0 if the server is fit to be measured, 4 if not."""

    text: str
    code: int


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument("url", metavar="URL", help="address of the server, for example http://127.0.0.1:8000")
    command.add_argument("--model", metavar="NAME", help="model to ask (default: the first that the server lists)")
    command.add_argument("--engine", metavar="KIND", help="ask it as this kind of server (default: what it says it is)")
    command.add_argument(
        "--extra-body", metavar="JSON", help='fields for every request, for example \'{"drafter": "copy"}\''
    )
    command.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the key")
    command.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a further header; ${NAME} in it is an environment variable; can be given several times",
    )
    command.add_argument("--ca-file", metavar="FILE", help="certificate of the authority that vouches for the server")
    command.add_argument("--client-cert", metavar="FILE", help="certificate to show to the server")
    command.add_argument("--client-key", metavar="FILE", help="its key, where that is another file")
    command.add_argument("--insecure", action="store_true", help="trust whatever certificate the server shows")
    command.add_argument(
        "--proxy", metavar="URL", help="HTTP proxy, or env for those of the environment (default: none is used)"
    )
    command.add_argument(
        "--timeout", type=float, default=TIMEOUT_S, metavar="S", help=f"longest silence allowed (default {TIMEOUT_S:g})"
    )
    command.add_argument("--lang", choices=("ko", "en"), default="en", help="language of the screen (default en)")


def doctor(args: argparse.Namespace, bar: LiveBar, width: int) -> Screen:
    """Examine a server.

    Raises:
        UsageError: if an argument is wrong; nothing was sent then.
    """
    import asyncio

    from harness.access import open_access
    from harness.doctor.examination import Patient, examine
    from harness.workload import KINDS
    from reports.doctor import doctor_screen

    if args.engine is not None and args.engine not in KINDS:
        raise UsageError(f"--engine {args.engine!r} is no kind of server; known: {', '.join(KINDS)}")
    if not 0 < args.timeout < math.inf:  # NaN is neither
        raise UsageError(f"--timeout is {args.timeout:g}; give seconds above 0")
    spec = _access(args)
    patient = Patient(
        base_url=args.url.rstrip("/").removesuffix("/v1"),  # as other clients want it
        access=open_access(spec, folder=Path()),
        model=args.model,
        kind=args.engine,
        extra_body=_extra_body(args.extra_body),
        timeout_s=args.timeout,
    )
    with bar:
        diagnosis = asyncio.run(examine(patient, bar.update))
    diagnosis = replace(diagnosis, further=_further(spec, patient.extra_body, diagnosis.kind))
    return Screen(doctor_screen(diagnosis, args.lang, width), 0 if diagnosis.fit else EngineError.exit_code)


def _access(args: argparse.Namespace) -> AccessSpec:
    from pydantic import ValidationError

    from harness.access import AccessSpec

    try:
        return AccessSpec(
            api_key_env=args.api_key_env,
            headers=dict(_header(text) for text in args.header),
            ca_file=args.ca_file,
            client_cert=args.client_cert,
            client_key=args.client_key,
            verify=not args.insecure,
            proxy=args.proxy,
        )
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-").removesuffix("s")
        raise UsageError(f"{option}: {first['msg'].removeprefix('Value error, ')}") from None


def _further(spec: AccessSpec, extra_body: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    """Return what a workload needs besides the address: the access, its files by their full paths, and fields for every request."""
    from harness.redaction import redacted
    from harness.workload import REMOTE_KINDS

    access = spec.model_dump(exclude_defaults=True)
    for key in ("ca_file", "client_cert", "client_key"):  # a workload's own are relative to its file
        if key in access:
            access[key] = str(Path(access[key]).expanduser().absolute())
    options = {"extra_body": redacted(extra_body)} if extra_body and kind in REMOTE_KINDS else {}
    return {"access": access, "options": options}


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise UsageError("--header without a colon; give it as NAME:VALUE")  # what was given may be the value alone
    return name.strip(), value.strip()


def _extra_body(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f'--extra-body is no JSON: {error}; for example \'{{"drafter": "copy"}}\'') from error
    if not isinstance(value, dict):
        raise UsageError(f"--extra-body is a JSON object, not {type(value).__name__}")
    return value
