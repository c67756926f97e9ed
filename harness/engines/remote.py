"""Servers of other makers as engines under test: attached by address, or started once an arm; one dialect an engine kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.engines.dialects import dialect
from harness.engines.probe import Probed
from harness.models import Progress
from harness.workload import Arm, EngineSpec


class RemoteEngine:
    """All arms of a run on servers of one family; implements :class:`harness.engines.base.Engine`.

    ``concurrency`` is the most requests a server must take at once. Logs of servers that are started here go below ``folder``.
    """

    def __init__(
        self,
        spec: EngineSpec,
        arms: Sequence[Arm],
        *,
        concurrency: int,
        folder: Path,
        progress: Progress | None = None,
    ) -> None:
        self._spec = spec
        self._arms = {arm.name: arm for arm in arms}
        self._concurrency = concurrency
        self._folder = folder
        self._progress = progress
        self._dialect = dialect(spec.kind)
        self._probed: dict[str, Probed] = {}
