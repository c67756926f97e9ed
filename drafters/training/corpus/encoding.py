"""Bytes → text, or a reason that names what was found and how to convert it. Nothing is guessed into the corpus."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

__all__ = ["Unreadable", "read_text"]

MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
CONTAINERS = (
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP container (docx, xlsx, pptx, hwpx …)"),
    (b"\xd0\xcf\x11\xe0", "an OLE document (hwp, doc, xls …)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"GGUF", "a GGUF model"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
)
UTF7 = re.compile(r"\+[A-Za-z0-9+/]{3,}-?")
MAX_BYTES = 256 << 20
SAMPLE = 200_000


class Unreadable(ValueError):
    """A file is no text in UTF-8; the message says what was found and what to do, and quotes nothing of it."""


def read_text(path: Path) -> str:
    """Return a UTF-8 file's text, with or without a byte order mark, in NFC with plain line ends. Raises Unreadable."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unreadable(f"larger than {MAX_BYTES >> 20} MiB; split it into smaller files")
        raw = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    if not raw.strip():
        raise Unreadable("empty")
    for mark, name in MARKS:
        if raw.startswith(mark):
            raise Unreadable(_convert(f"{name} text (byte order mark)", name))
    found = next((what for start, what in CONTAINERS if raw.startswith(start)), None)
    if found:
        raise Unreadable(f"{found}, not plain text; save it as UTF-8 text")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(_other_encoding(raw, error)) from error
    if "\0" in text[:SAMPLE]:
        order = _utf16(raw)
        raise Unreadable(_convert(f"{order} text without a byte order mark", order) if order else _binary())
    sample = text[:SAMPLE]
    controls = sum(character < " " and character not in "\t\n\r\f\v\x1b" for character in sample)
    if controls > len(sample) / 100:
        raise Unreadable(_binary())
    if raw.isascii() and _is_utf7(sample):
        raise Unreadable(_convert("UTF-7 text", "UTF-7"))
    if sample.count("\ufffd") > len(sample) / 200:
        raise Unreadable(
            "holds replacement characters (U+FFFD): it was converted wrongly before; convert the original again"
        )
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))


def _is_utf7(text: str) -> bool:
    """Tell whether ASCII is rather Hangul between + and -: of its characters a third and more become such."""
    shifted = UTF7.findall(text)
    decoded = [part.encode().decode("utf-7", "ignore") for part in shifted]
    hangul = sum("가" <= character <= "힣" for part in decoded for character in part)
    return hangul >= 5 and sum(map(len, shifted)) > len(text) / 3


def _other_encoding(raw: bytes, error: UnicodeDecodeError) -> str:
    sample = raw[:SAMPLE]
    name = _utf16(sample) if b"\0" in sample else None
    if name:
        return _convert(f"{name} text without a byte order mark", name)
    if b"\0" in sample:
        return _binary()
    try:
        text = raw.decode("cp949")
    except UnicodeDecodeError:
        text = ""
    hangul = sum("가" <= character <= "힣" for character in text)
    if hangul and hangul >= sum(character > "\x7f" for character in text) / 2:
        return _convert("CP949 (EUC-KR) text", "CP949")
    controls = sum(byte < 32 and byte not in (9, 10, 11, 12, 13, 27) for byte in sample)
    if controls > len(sample) / 100:
        return _binary()
    line = raw[: error.start].count(b"\n") + 1
    return f"not UTF-8 (byte {raw[error.start]:#04x} in line {line}) and not CP949 either; save it as UTF-8"


def _utf16(raw: bytes) -> str | None:
    """Name the byte order when the bytes make sense as UTF-16: mostly letters of Korean or ASCII."""
    for name in ("utf-16-le", "utf-16-be"):
        text = raw[: len(raw) // 2 * 2].decode(name, "ignore")
        plain = sum(" " <= character <= "~" or "가" <= character <= "힣" or character in "\t\r\n" for character in text)
        if text and plain > 0.8 * len(text):
            return name.upper()
    return None


def _convert(found: str, name: str) -> str:
    return f"{found}, not UTF-8; convert it: iconv -f {name} -t UTF-8 FILE > NEW_FILE"


def _binary() -> str:
    return "binary data, not text; give text files"
