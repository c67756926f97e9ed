"""Turn the lines of a temperature logger into hourly means."""

import re
from datetime import datetime
from statistics import fmean

LINE = re.compile(r"(?P<time>\S+ \S+) sensor=(?P<sensor>\w+) value=(?P<value>-?\d+\.\d+)")


def hourly_means(lines: list[str]) -> dict[tuple[str, int], float]:
    """Return the mean value of each sensor and hour; lines that do not match are skipped."""
    values: dict[tuple[str, int], list[float]] = {}
    for line in lines:
        match = LINE.search(line)
        if match is None:
            continue
        hour = datetime.fromisoformat(match["time"]).hour
        values.setdefault((match["sensor"], hour), []).append(float(match["value"]))
    return {key: fmean(group) for key, group in values.items()}


def too_warm(means: dict[tuple[str, int], float], limit: float = 8.0) -> list[str]:
    """Return the sensors that were above the limit for at least one hour."""
    return sorted({sensor for (sensor, _), mean in means.items() if mean > limit})
