"""What a server prints is masked on its way into the log."""

from __future__ import annotations

import os

import pytest

from harness.engines.masked_output import LONGEST_LINE, MaskedStream, copy_masked

KEY = "sk-1234567890"


def test_a_secret_that_arrives_in_two_pieces_is_masked() -> None:
    """Nothing of a line is given before its end is there."""
    stream = MaskedStream([KEY])
    assert stream.feed(b"key sk-12345") == b""
    assert stream.feed(b"67890 ok\nnext") == b"key *** ok\n"
    assert stream.rest() == b"next"


def test_a_bar_of_progress_is_a_line() -> None:
    """It ends in a carriage return, and is not held back until the work is done."""
    assert MaskedStream([KEY]).feed(b"10 %\r20 %\r30") == b"10 %\r20 %\r"


def test_a_line_without_end_is_given_in_parts_that_cut_no_secret() -> None:
    """A key across the place of the cut is masked all the same."""
    stream = MaskedStream([KEY])
    given = stream.feed(b"x" * (LONGEST_LINE + 10) + KEY.encode()[:5])
    assert len(given) > LONGEST_LINE
    assert given + stream.feed(KEY.encode()[5:] + b" y\n") == b"x" * (LONGEST_LINE + 10) + b"*** y\n"


def test_every_line_of_a_key_of_several_lines_is_masked() -> None:
    """As in a PEM file."""
    stream = MaskedStream(["-----BEGIN KEY-----\nabcdefgh\nijklmnop\n"])
    assert stream.feed(b"told abcdefgh\nand ijklmnop\n") == b"told ***\nand ***\n"


def test_a_log_that_cannot_be_written_holds_nobody_up() -> None:
    """The source is read to its end."""
    source, end = os.pipe()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    copying = copy_masked(source, nowhere, [KEY])
    os.write(end, b"line\n" * 100)
    os.close(end)
    copying.join(5)
    os.close(source)
    os.close(nowhere)
    assert not copying.is_alive()


@pytest.mark.parametrize("said", [b"", b"no line end", b"\n\n"])
def test_what_holds_no_secret_comes_through_as_it_is(said: bytes) -> None:
    """Nothing is added and nothing lost."""
    stream = MaskedStream([KEY])
    assert stream.feed(said) + stream.rest() == said
