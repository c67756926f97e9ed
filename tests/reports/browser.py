"""A headless Chromium, spoken to over a pipe in its own DevTools protocol: what a reader's browser makes of a page.

``python -m tests.reports.browser`` says which Chromium the tests would use, or what to install.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
MISSING = (
    "no Chromium found, which the tests of the report need; install one (Debian: apt install chromium, Ubuntu: snap install chromium, "
    "Fedora: dnf install chromium), or name the program in the environment variable CHROMIUM"
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE_S = 120.0  # for one answer: the machine may be busy with something else
A4_INCHES = (8.27, 11.69)
_TO_BROWSER, _FROM_BROWSER = 3, 4  # file descriptors that the protocol's pipe mode has fixed


class BrowserFailed(AssertionError):
    """The browser is missing, ended, or refused a call."""


@dataclass(slots=True)
class Seen:
    """What happened while a page was open: messages on its console, addresses it asked for beside itself."""

    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def find() -> str:
    """Return the path of a Chromium: the one named in ``CHROMIUM``, else the first on the path.

    Raises:
        BrowserFailed: saying what to install, where there is none.
    """
    named = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, (named,) if named else NAMES)), None)
    if found is None:
        raise BrowserFailed(f"CHROMIUM={named} is no program; {MISSING}" if named else MISSING)
    return found


class Browser:
    """A running browser with one tab, empty at the start and gone at the end; a context manager."""

    def __init__(self) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="spec-harness-browser-", ignore_cleanup_errors=True)
        its_in, self._out = os.pipe()
        self._in, its_out = os.pipe()
        # the child finds its two ends at 3 and 4, wherever they were here; a shell moves them without a fork in this process
        command = [find(), *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        script = f'exec "$0" "$@" {_TO_BROWSER}<&{its_in} {_FROM_BROWSER}>&{its_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(its_in, its_out),
        )
        os.close(its_in)
        os.close(its_out)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.seen = Seen()
        self._loaded = False

    def __enter__(self) -> Self:
        targets = self.call("Target.getTargets")["targetInfos"]
        tab = next(item["targetId"] for item in targets if item["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        with suppress(BrowserFailed, OSError):
            self.call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    def open(self, page: Path) -> Seen:
        """Load a file and return what happened meanwhile; ``seen`` goes on until the next page is opened."""
        self.seen, self._loaded = Seen(), False
        self.call("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + PATIENCE_S
        while not self._loaded:
            self._read(deadline)
        return self.seen

    def resize(self, width: int, height: int = 900, *, phone: bool = False) -> None:
        """Lay the page out as on a screen of this size in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def media(self, kind: str = "", **features: str) -> None:
        """Lay the page out for ``screen`` or ``print``; features are such as ``prefers_color_scheme="dark"``."""
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=wanted)

    def value(self, expression: str) -> Any:
        """Return what an expression is in the page, as plain data."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserFailed(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def accessible(self) -> list[tuple[str, str]]:
        """Return role and name of everything that a screen reader meets, in order."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (str(node["role"]["value"]), str(node.get("name", {}).get("value", "")))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]

    def picture(self, *, whole: bool = True) -> bytes:
        """Return the page as PNG: all of it, or what the screen shows."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        """Return the page as it prints on A4, with the margins of its own style sheet."""
        width, height = A4_INCHES
        answer = self.call("Page.printToPDF", paperWidth=width, paperHeight=height, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call the browser and return its answer; events that come before it are taken note of."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserFailed(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._in, 1 << 16) if ready else b""
            if not data:
                raise BrowserFailed("the browser ended" if ready else f"the browser was silent for {PATIENCE_S:.0f} s")
            self._buffer += data
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: Mapping[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Runtime.consoleAPICalled":
            self.seen.console.append(str(params["args"]))
        elif event == "Runtime.exceptionThrown":
            self.seen.console.append(str(params["exceptionDetails"]))
        elif event == "Log.entryAdded":
            self.seen.console.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent" and params["type"] != "Document":
            self.seen.requests.append(str(params["request"]["url"]))


if __name__ == "__main__":
    try:
        sys.stdout.write(find() + "\n")
    except BrowserFailed as failed:
        sys.exit(str(failed))
