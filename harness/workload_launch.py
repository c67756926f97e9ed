"""How a workload file says that the harness starts a server itself: a command line with places to fill in, once an arm."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from harness.redaction import holds_secret, is_file
from harness.yaml_lines import Options

PLACES: tuple[str, ...] = ("port", "model", "context_tokens", "speculative_config", "arm")
HEALTH = "/health"
START_TIMEOUT_S = 600.0  # a large model takes minutes to load
_FROM_ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PLACE = re.compile(r"(?<![{$])\{([a-z_]+)\}(?!\})")  # JSON such as {"a": 1} and {} are texts of their own
_EITHER = re.compile(f"{_FROM_ENVIRONMENT.pattern}|{_PLACE.pattern}")
CONFIG = "{speculative_config}"
MODEL = "{model}"
_LONGEST = 300  # of one argument in a message; a configuration in JSON fits
# what may be meant as a place: {Port}, { port }, {max-model-len}; and one that is not closed
_MEANT = re.compile(r"(?<![{$])\{(\s*[A-Za-z_][A-Za-z0-9_ -]*?\s*)\}(?!\})")
_OPEN = re.compile(
    r"(?<![{$])\{\s*(port|model|arm|context[_-]tokens|speculative[_-]config)(?=$|[\s/\"'&:,])(?!\s*\}|\s*:\s)",
    re.IGNORECASE,
)


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _places_known(text: str) -> str:
    known = ", ".join(f"{{{place}}}" for place in PLACES)
    for name in _MEANT.findall(text):
        if name not in PLACES:
            plain = re.sub(r"[ -]+", "_", name.strip().lower())
            close = difflib.get_close_matches(plain, PLACES, n=1)
            hint = f"did you mean {{{close[0]}}}? " if close else ""
            raise ValueError(f"unknown place {{{name}}}; {hint}known: {known}, and ${{NAME}} of the environment")
    if (found := _OPEN.search(text)) is not None:
        place = found[1].lower().replace("-", "_")
        raise ValueError(f"the place {found[0]!r} is not closed; write {{{place}}}; known: {known}")
    return text


def _no_plain_key(command: list[str]) -> list[str]:
    for index, argument in enumerate(command):
        flag, equals, value = argument.partition("=")
        given = value if equals else next(iter(command[index + 1 :]), "")
        secret = flag.startswith("--") and holds_secret(flag.removeprefix("--"))
        if secret and given and not given.startswith("-") and not _FROM_ENVIRONMENT.search(given):
            raise ValueError(f"a key never stands in a workload file: give {flag} as ${{NAME}} of the environment")
    return command


def _no_plain_secret(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if holds_secret(name) and value and not _FROM_ENVIRONMENT.search(value):
            raise ValueError(
                f"a key never stands in a workload file: leave {name} out, the server gets the harness's environment"
            )
    return env


Text = Annotated[str, BeforeValidator(_as_text), AfterValidator(_places_known)]


class LaunchSpec(BaseModel):
    """A server that the harness starts and stops; under ``engine`` what all arms share, under an arm what it has besides.

    An arm's ``command`` stands behind the engine's, its ``env`` is merged over the engine's, and of every other key its own value
    counts. ``command`` is an argument list, run without a shell. In it, in ``env`` and in ``log`` are filled in: ``{port}`` (a free
    port), ``{model}`` (``engine.model``), ``{context_tokens}`` (``engine.context_tokens``), ``{arm}``, ``{speculative_config}`` (as
    JSON in one argument; where an arm has none the argument is left out, together with the flag before it) and ``${NAME}`` (of the
    environment: keys stand in no file). ``env`` is added to the harness's environment.
    ``health`` is the path that answers 200 once the server is ready, within ``start_timeout_s`` (600 where it is not said). ``log``
    is the file of its output (``engine/<arm>.log`` of the run where it is not said), ``cwd`` the folder it runs in; both are relative
    to where the harness was started. ``side_by_side: true`` leaves it up while servers of other arms are that say the same; otherwise
    it is stopped before another arm's starts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    command: Annotated[list[Text], AfterValidator(_no_plain_key)] = []
    env: Annotated[dict[str, Text], AfterValidator(_no_plain_secret)] = {}
    health: Annotated[str, Field(pattern=r"^/\S*$")] | None = None
    start_timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    log: Text | None = None
    speculative_config: Options | None = None
    cwd: str | None = None
    side_by_side: bool | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One arm's server as it is to be started; texts with their places still to be filled in."""

    arm: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    health: str
    start_timeout_s: float
    log: str | None
    speculative_config: Mapping[str, Any] | None
    cwd: str | None
    side_by_side: bool
    context_tokens: int

    @property
    def takes_port(self) -> bool:
        """Tell whether the server listens where it is told to; another one listens at the arm's ``base_url``."""
        return any("{port}" in text for text in (*self.command, *self.env.values()))

    def place_of(self, text: str) -> tuple[str, ...] | None:
        """Return the key whose texts hold a place to fill in, ``None`` if none does."""
        if any(text in argument for argument in self._with_config()):
            return ("command",)
        return next((("env", name) for name, value in self.env.items() if text in value), None)

    @property
    def template(self) -> tuple[str, ...]:
        """The command line of this arm with the port and the environment's values not filled in, as reports show it."""
        return tuple(self._with_config())

    def variables(self) -> list[str]:
        """Return the names of the environment that the command line and ``env`` ask for."""
        texts = (*self.command, *self.env.values(), self.log or "")
        return sorted({name for text in texts for name in _FROM_ENVIRONMENT.findall(text)})

    def secrets(self, environment: Mapping[str, str] | None = None) -> list[str]:
        """Return the values of those names that may be keys, and so stand in no message; places of files are none."""
        source = os.environ if environment is None else environment
        values = [value for name in self.variables() if (value := source.get(name))]
        return [value for value in values if not is_file(value)]

    def filled(self, text: str, *, port: int | None, model: str) -> str:
        """Return a text with every place filled in.

        Raises:
            KeyError: with the name of the environment's variable that is not set.
        """
        values = self._values(port, model)
        return _EITHER.sub(lambda found: os.environ[found[1]] if found[1] else values[found[2]], text)

    def arguments(self, *, port: int | None, model: str) -> list[str]:
        """Return the argument list to run.

        Raises:
            KeyError: with the name of the environment's variable that is not set.
        """
        return [self.filled(argument, port=port, model=model) for argument in self._with_config()]

    def shown(self, *, port: int | None, model: str) -> list[str]:
        """Return the argument list for a message: places filled in but those of the environment, long arguments cut."""
        values = self._values(port, model)
        return [_cut(_PLACE.sub(lambda found: values[found[1]], argument)) for argument in self._with_config()]

    def _values(self, port: int | None, model: str) -> dict[str, str]:
        config = "" if self.speculative_config is None else json.dumps(self.speculative_config, ensure_ascii=False)
        return {
            "port": "" if port is None else str(port),
            "model": model,
            "context_tokens": str(self.context_tokens),
            "arm": self.arm,
            "speculative_config": config,
        }

    def _with_config(self) -> Iterator[str]:
        if self.speculative_config is not None:
            yield from self.command
            return
        for index, argument in enumerate(self.command):
            following = next(iter(self.command[index + 1 :]), None)
            if CONFIG in argument or (following == CONFIG and argument.startswith("-") and "=" not in argument):
                continue
            yield argument


def _cut(argument: str) -> str:
    first, more, _ = argument.strip("\n").partition("\n")
    return f"{first[:_LONGEST]} …" if more or len(first) > _LONGEST else argument


def launch_of(
    arm: str, shared: LaunchSpec | None, own: LaunchSpec | None, *, drafts: bool, context_tokens: int
) -> Launch | None:
    """Return how the server of an arm is started, ``None`` if neither the engine nor the arm says.

    ``drafts``: whether the arm has a drafter; a baseline takes no ``speculative_config`` over from the engine.
    ``context_tokens`` is the engine's.
    """
    given = [spec for spec in (own, shared) if spec is not None]
    if not given:
        return None

    def first(key: str) -> Any:
        return next((value for spec in given if (value := getattr(spec, key)) is not None), None)

    timeout_s = first("start_timeout_s")
    return Launch(
        arm=arm,
        command=tuple(argument for spec in reversed(given) for argument in spec.command),
        env={name: value for spec in reversed(given) for name, value in spec.env.items()},
        health=first("health") or HEALTH,
        start_timeout_s=START_TIMEOUT_S if timeout_s is None else timeout_s,
        log=first("log"),
        speculative_config=first("speculative_config") if drafts else None,
        cwd=first("cwd"),
        side_by_side=bool(first("side_by_side")),
        context_tokens=context_tokens,
    )
