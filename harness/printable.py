"""What other programs wrote, made fit for a terminal: it may hold sequences that move the cursor, colour or rename the window."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")  # ECMA-48: CSI, OSC


def printable(text: str) -> str:
    """Return a text without terminal sequences, other control characters escaped; line breaks stay, tabs become blanks."""
    plain = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\t", " ")
    return "".join(sign if sign == "\n" or _is_safe(sign) else _escaped(sign) for sign in plain)


def _is_safe(sign: str) -> bool:
    return not (
        ord(sign) < 32 or 127 <= ord(sign) < 160 or sign in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
