"""Every error this package raises on purpose, and the exit code each one means.

    HarnessError                      1  the run cannot go on
      UsageError                      2  an argument of the command line
        WorkloadError                 2  a workload file: always with file and line
          TraceError                  2  a recorded task file: always with file and line
        RunFolderError                2  a run folder that is missing, cut short or of another version
        ModelError                    2  a model file that is missing, damaged or cannot be fetched
      ThresholdMissed                 3  a threshold of the workload was not reached
      EngineError                     4  the engine failed
        EngineStartError              4  it did not come up
          EngineRefused               2  it refuses the set-up that the input asks for; nothing was measured
        EngineUnreachable             4  it was up and no longer answers
        EngineProtocolError           4  it answers, but not in a form this adapter knows

A message says what was given, what is allowed and what to do.
"""

from __future__ import annotations

__all__ = [
    "EngineError",
    "EngineProtocolError",
    "EngineRefused",
    "EngineStartError",
    "EngineUnreachable",
    "HarnessError",
    "ModelError",
    "RunFolderError",
    "ThresholdMissed",
    "TraceError",
    "UsageError",
    "WorkloadError",
]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


class HarnessError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line ends with."""

    exit_code = 1


class UsageError(HarnessError):
    """Something the user gave is wrong; nothing was measured."""

    exit_code = 2


class WorkloadError(UsageError):
    """A workload file is wrong; the message starts with ``file:line:``."""


class TraceError(WorkloadError):
    """A file of recorded tasks is wrong; the message starts with ``file:line:``."""


class RunFolderError(UsageError):
    """A run folder is missing, cut short, in use or of another version."""


class ModelError(UsageError):
    """A model is unknown, missing, damaged or could not be fetched."""


class ThresholdMissed(HarnessError):
    """The run is complete and at least one threshold of the workload was not reached."""

    exit_code = 3


class EngineError(HarnessError):
    """The engine failed; what was measured before is kept and reported."""

    exit_code = 4


class EngineStartError(EngineError):
    """The engine did not start."""


class EngineRefused(EngineStartError):
    """The engine cannot be set up as the input says, or the server that the input names is another one: trying again is no use."""

    exit_code = 2


class EngineUnreachable(EngineError):
    """The engine no longer answers."""


class EngineProtocolError(EngineError):
    """The engine answers in a form that its adapter does not know."""
