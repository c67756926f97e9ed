"""Call something again when it fails."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class GaveUp(Exception):
    """Raised when every attempt has failed."""


def retry(call: Callable[[], Result], attempts: int = 3, wait_s: float = 0.5) -> Result:
    """Return the first result; wait twice as long after each failure."""
    last: Exception | None = None
    for attempt in range(attempts):
        try:
            return call()
        except (OSError, TimeoutError) as error:
            last = error
            time.sleep(wait_s * 2**attempt)
    raise GaveUp(f"{attempts} attempts failed") from last
