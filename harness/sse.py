"""Server-sent events out of a stream of bytes, split anywhere (WHATWG HTML, section 9.2.6), no text decoding
involved."""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024

Event = tuple[bytes, bytes]
"""Event name (empty for the default, ``message``) and data."""


class SseError(ValueError):
    """The bytes go on without ever ending an event."""


class EventParser:
    """Push parser of one event stream.

    Works on bytes: a character cut in two by a packet is whole again before anybody decodes it. Lines end in ``\\n``,
    ``\\r\\n`` or ``\\r``; a line counts as ended at its ``\\r``, so that no event waits for the next packet. Several
    data lines are joined by ``\\n``; comments and unknown fields are skipped, except ``error: …``, which older
    llama.cpp servers write and which is given out as an event of that name. What a cut-off stream leaves open is
    dropped, unless :meth:`finish` asks for it.
    """

    __slots__ = ("_data", "_name", "_partial", "_skip_line_feed", "_started", "_unfinished_bytes")

    def __init__(self) -> None:
        self._partial = bytearray()
        self._data: list[bytes] = []
        self._name = b""
        self._skip_line_feed = False
        self._started = False
        self._unfinished_bytes = 0

    def feed(self, block: bytes) -> list[Event]:
        """Take the next bytes and return the events that they complete.

        Raises:
            SseError: after 16 MiB without the end of an event.
        """
        # One whole event in one packet is what a server that flushes each token sends; nothing may be pending from before.
        if (
            block.startswith(b"data: ")
            and block.endswith(b"\n\n")
            and block.find(b"\n") == len(block) - 2
            and b"\r" not in block
            and not (self._partial or self._data or self._name)
        ):
            self._skip_line_feed = False
            self._started = True
            self._unfinished_bytes = 0
            return [(b"", block[6:-2])]
        return self.feed_by_line(block)

    def feed_by_line(self, block: bytes) -> list[Event]:
        """Do the same as :meth:`feed` without its shortcut for one event a packet."""
        if self._skip_line_feed and block:
            block = block.removeprefix(b"\n")
            self._skip_line_feed = False
        self._unfinished_bytes += len(block)
        if b"\n" not in block and b"\r" not in block:
            self._partial += block
            self._check_size()
            return []
        lines = (bytes(self._partial) + block).splitlines(keepends=True)
        self._partial.clear()
        if not lines[-1].endswith((b"\n", b"\r")):
            self._partial += lines.pop()
        self._skip_line_feed = not self._partial and lines[-1].endswith(b"\r")
        events: list[Event] = []
        for line in lines:
            event = self._line(line.rstrip(b"\r\n"))
            if event is not None:
                events.append(event)
                self._unfinished_bytes = len(self._partial)
        self._check_size()
        return events

    def finish(self) -> list[Event]:
        """Return the event left open when the body ended properly; the standard would drop it.

        Some servers leave out the blank line after the last event, which is the one with the counts or ``[DONE]``.
        """
        return self.feed_by_line(b"\n\n") if self._partial or self._data else []

    def _line(self, line: bytes) -> Event | None:
        if not self._started:
            self._started = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            event = (self._name, b"\n".join(self._data)) if self._data else None
            self._data = []
            self._name = b""
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"error":
            self._name = b"error"
            self._data.append(value)
        return None

    def _check_size(self) -> None:
        if self._unfinished_bytes > MAX_EVENT_BYTES:
            raise SseError(
                f"no event ended within {self._unfinished_bytes} bytes; expected lines of 'data: …' and blank lines"
            )
