"""Server-sent events: framing alone, no chat completions."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.sse import MAX_EVENT_BYTES, Event, EventParser, SseError


def parse(*blocks: bytes) -> list[Event]:
    """Return all events of the blocks in turn."""
    parser = EventParser()
    return [event for block in blocks for event in parser.feed(block)]


def data(*blocks: bytes) -> list[bytes]:
    """Return the data of all events."""
    return [event[1] for event in parse(*blocks)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends(end: bytes) -> None:
    """Lines may end in LF, CRLF or CR."""
    assert data(b"data: a" + end + end + b"data: b" + end + end) == [b"a", b"b"]


def test_carriage_return_at_a_packet_boundary() -> None:
    """An event is given out at its CR, and the LF that arrives later opens no second line."""
    parser = EventParser()
    assert parser.feed(b"data: a\r\n\r") == [(b"", b"a")]
    assert parser.feed(b"\ndata: b\r\n\r\n") == [(b"", b"b")]


def test_multi_line_data() -> None:
    """Several data lines of one event are joined by a line feed."""
    assert data(b"data: one\ndata: two\n\n") == [b"one\ntwo"]


def test_comments_and_unknown_fields() -> None:
    """Comments, ids, retry times and unknown fields produce no event."""
    assert data(b": ping\n\nid: 7\nretry: 10\nfoo: bar\n\ndata: a\n\n") == [b"a"]


def test_space_after_the_colon() -> None:
    """One space after the colon belongs to the format, a second one to the data."""
    assert data(b"data:a\n\ndata:  b\n\ndata\n\n") == [b"a", b" b", b""]


def test_event_name() -> None:
    """An event's name goes with its data and not with the next event's; llama.cpp's old error field counts as a name."""
    assert parse(b"event: error\ndata: x\n\ndata: y\n\nerror: z\n\n") == [
        (b"error", b"x"),
        (b"", b"y"),
        (b"error", b"z"),
    ]


def test_byte_order_mark() -> None:
    """A byte order mark in front of the stream is skipped."""
    assert data(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_cut_off_event() -> None:
    """An event that the stream's end cuts off is given out only if it is asked for, and only once."""
    parser = EventParser()
    assert parser.feed(b"data: a\n\ndata: b") == [(b"", b"a")]
    assert parser.finish() == [(b"", b"b")]
    assert parser.finish() == []


def test_hangul_split_anywhere() -> None:
    """A Hangul character may be cut between any two of its bytes."""
    stream = "data: 가나\n\ndata: 다\n\n".encode()
    for cut in range(len(stream) + 1):
        assert [item.decode() for item in data(stream[:cut], stream[cut:])] == ["가나", "다"]


def test_endless_event() -> None:
    """Bytes that never end an event are refused before they fill the memory."""
    parser = EventParser()
    with pytest.raises(SseError, match="no event ended"):
        for _ in range(MAX_EVENT_BYTES // 2**20 + 1):
            parser.feed(b"x" * 2**20)


@given(
    st.lists(
        st.sampled_from(
            [b"data: a\n\n", b"data: b\n\n", b"data: c\r\n\r\n", b"data: d\n", b"\n", b"\r", b": e\n", b"dat", b"a: f"]
        )
    ),
    st.data(),
)
def test_fast_path_agrees(parts: list[bytes], choose: st.DataObject) -> None:
    """The shortcut for one event a packet gives the same events at the same packet as the parser that goes by line."""
    stream = b"".join(parts)
    cuts = sorted(choose.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    blocks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)] + parts
    fast, slow = EventParser(), EventParser()
    assert [fast.feed(block) for block in blocks] == [slow.feed_by_line(block) for block in blocks]


SAMPLES = sorted((Path(__file__).parent / "fixtures").glob("*.sse"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_recorded_streams(sample: Path, size: int) -> None:
    """Recorded streams of real engines give the same events however they are cut, one for each data line."""
    stream = sample.read_bytes()
    blocks = [stream[at : at + size] for at in range(0, len(stream), size)]
    parser = EventParser()
    events = [data for block in blocks for _, data in parser.feed(block)] + [data for _, data in parser.finish()]
    assert len(events) == stream.count(b"\ndata: ") + 1
    assert events[-1] == b"[DONE]"
