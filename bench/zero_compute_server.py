"""A chat-completions server that computes nothing: prebuilt bytes over raw sockets, one ``send`` for each chunk.

``python -m bench.zero_compute_server --chunks 64`` sends as fast as the sockets take it, in turn over all streams;
with ``--interval-ms 5`` each stream gets a chunk every 5 ms whose content is the sender's ``time.monotonic_ns()``,
taken just before the send. Prints ``PORT <number>`` when it listens; ends when its standard input is closed.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import os
import select
import socket
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WORD = " token"
_ENVELOPE = '"created":1795970654,"id":"chatcmpl-zero","model":"zero","object":"chat.completion.chunk"}\n\n'


def _frame(choices: str, rest: str = "") -> bytes:
    event = f'data: {{"choices":[{choices}],{rest}{_ENVELOPE}'.encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


def content_frame(content: str) -> bytes:
    """Return one token-bearing chunk in the shape of llama.cpp's, framed as one HTTP chunk."""
    return _frame(f'{{"finish_reason":null,"index":0,"delta":{{"content":"{content}"}}}}')


def closing_frames(chunks: int) -> bytes:
    """Return what follows the last token: finish chunk, usage chunk, [DONE] and the end of the body."""
    usage = f'"usage":{{"prompt_tokens":1,"completion_tokens":{chunks},"total_tokens":{chunks + 1}}},'
    done = b"data: [DONE]\n\n"
    end = b"%x\r\n%s\r\n0\r\n\r\n" % (len(done), done)
    return _frame('{"finish_reason":"stop","index":0,"delta":{}}') + _frame("", usage) + end


class Stream:
    """One connection: what it has received of a request, and which frame it sends next."""

    __slots__ = ("next_frame", "received", "sending", "socket", "start_ns", "unsent")

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.socket = connection
        self.received = b""
        self.sending = False
        self.next_frame = 0
        self.start_ns = 0
        self.unsent = b""

    def take(self, data: bytes) -> bool:
        """Take bytes of a request; ``True`` when it is whole."""
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return False
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
        if len(body) < int(fields[b"content-length"]):
            return False
        self.received = b""
        self.next_frame = 0
        self.sending = True
        self.start_ns = time.monotonic_ns()
        return True

    def send(self, frame: bytes) -> bool:
        """Send one frame with one call; ``False`` if the socket took none of it."""
        frame = self.unsent or frame
        try:
            sent = self.socket.send(frame)
        except BlockingIOError:
            return False
        self.unsent = frame[sent:]
        return not self.unsent


class Server:
    """All streams in one loop: as fast as possible, or on a schedule where ``interval_ns`` is given."""

    def __init__(self, chunks: int, interval_ns: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._interval_ns = interval_ns
        first = HEAD + _frame('{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}')
        self._frames = [first, *[content_frame(WORD)] * chunks, closing_frames(chunks)]
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._epoll.register(sys.stdin, select.EPOLLIN | select.EPOLLHUP)
        self._streams: dict[int, Stream] = {}
        self._sending: list[Stream] = []
        self._due: list[tuple[int, int]] = []

    def run(self) -> None:
        """Serve until standard input closes."""
        while self._receive():
            if self._interval_ns:
                self._send_due()
            else:
                self._send_all()

    def _receive(self) -> bool:
        timeout = None
        if self._due:
            timeout = max(0, self._due[0][0] - time.monotonic_ns()) / 1e9
            if timeout > 0.001:
                timeout -= 0.001  # epoll rounds up to whole milliseconds
            else:
                time.sleep(timeout)
                timeout = 0
        elif self._sending:
            timeout = 0
        for number, _ in self._epoll.poll(timeout):
            if number == sys.stdin.fileno():
                return False
            if number == self._listener.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._accept()
            else:
                self._read(self._streams[number])
        return True

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._streams[connection.fileno()] = Stream(connection)
        self._epoll.register(connection, select.EPOLLIN)

    def _read(self, stream: Stream) -> None:
        try:
            data = stream.socket.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self._drop(stream)
        elif stream.take(data):
            if self._interval_ns:
                heapq.heappush(self._due, (stream.start_ns, stream.socket.fileno()))
            else:
                self._sending.append(stream)

    def _drop(self, stream: Stream) -> None:
        stream.sending = False
        del self._streams[stream.socket.fileno()]
        stream.socket.close()

    def _send_all(self) -> None:
        frames = self._frames
        ended = False
        for stream in self._sending:
            try:
                stream.next_frame += stream.send(frames[stream.next_frame])
            except ConnectionError:
                stream.sending = False
            if stream.next_frame == len(frames):
                stream.sending = False
            ended |= not stream.sending
        if ended:
            self._sending = [stream for stream in self._sending if stream.sending]

    def _send_due(self) -> None:
        last = len(self._frames) - 1
        while self._due and self._due[0][0] <= time.monotonic_ns():
            _, number = heapq.heappop(self._due)
            stream = self._streams.get(number)
            if stream is None or not stream.sending:
                continue
            index = stream.next_frame
            frame = self._frames[index] if index in (0, last) else content_frame(str(time.monotonic_ns()))
            try:
                stream.send(frame)
            except ConnectionError:
                stream.sending = False
                continue
            stream.next_frame += 1
            if index == last:
                stream.sending = False
            else:
                heapq.heappush(self._due, (stream.start_ns + stream.next_frame * self._interval_ns, number))


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="A chat-completions server that computes nothing.")
    parser.add_argument("--chunks", type=int, default=64, help="token-bearing chunks of an answer")
    parser.add_argument(
        "--interval-ms", type=float, default=0.0, help="time between chunks of a stream; 0 is as fast as possible"
    )
    parser.add_argument("--cpu", type=int, help="pin to this core")
    arguments = parser.parse_args()
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    server = Server(arguments.chunks, round(arguments.interval_ms * 1e6))
    print(f"PORT {server.port}", flush=True)
    server.run()


if __name__ == "__main__":
    main()
