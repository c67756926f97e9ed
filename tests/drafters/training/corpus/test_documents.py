"""Which files of a folder are taken, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafters.training.corpus.documents import plain_html, read_documents
from drafters.training.corpus.encoding import Unreadable, read_text
from drafters.training.corpus.sources import Given, LeftOut, Source, parse_given
from drafters.training.stage import StageError

TEXT = "회의 결과를 공유드립니다. 다음 주까지 의견을 주시기 바랍니다. 감사합니다. 자세한 내용은 붙임을 참고해 주세요."


def read(folder: Path) -> tuple[dict[str, Source], dict[str, str]]:
    """Documents and reasons by name."""
    found = list(read_documents(Given(folder)))
    taken = {one.file: one for one in found if isinstance(one, Source)}
    return taken, {one.file: one.reason for one in found if isinstance(one, LeftOut)}


def test_every_file_is_taken_or_left_out_with_a_reason(tmp_path: Path) -> None:
    """Nothing is passed over in silence."""
    (tmp_path / "회의록").mkdir()
    (tmp_path / "회의록" / "a.txt").write_text(TEXT, "utf-8")
    (tmp_path / "b.md").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    (tmp_path / "c.hwp").write_bytes(b"\xd0\xcf\x11\xe0 document")
    (tmp_path / "d.xyz").write_text(TEXT, "utf-8")
    (tmp_path / ".hidden.txt").write_text(TEXT, "utf-8")
    (tmp_path / "short.txt").write_text("짧다", "utf-8")
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.md")
    taken, left = read(tmp_path)
    assert {name: one.text for name, one in taken.items()} == {"b.md": TEXT, "회의록/a.txt": TEXT}
    assert taken["회의록/a.txt"].text_type == "office"
    assert "HWP" in left["c.hwp"]
    assert ".xyz" in left["d.xyz"]
    assert left[".hidden.txt"] == "hidden"
    assert "2 characters" in left["short.txt"]
    assert "link" in left["link.txt"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (TEXT.encode("cp949"), "CP949 (EUC-KR) text, not UTF-8; convert it: iconv -f CP949"),
        (TEXT.encode("euc-kr") * 20, "CP949 (EUC-KR)"),
        (TEXT.encode("utf-16"), "UTF-16 text (byte order mark), not UTF-8; convert it: iconv -f UTF-16"),
        (TEXT.encode("utf-16-le"), "UTF-16-LE text without a byte order mark"),
        ("plain English text in wide letters".encode("utf-16-be"), "UTF-16-BE"),
        (bytes(range(256)) * 8, "binary data"),
        (b"GGUF\x03\x00\x00\x00", "GGUF"),
        (b"%PDF-1.7 something", "PDF"),
        (b"", "empty"),
        (b" \n\n", "empty"),
        (TEXT.encode() + b"\xff" + TEXT.encode(), "not UTF-8 (byte 0xff in line 1) and not CP949"),
        (TEXT.encode("cp949").decode("utf-8", "replace").encode(), "U+FFFD"),
        (TEXT.encode("utf-7"), "UTF-7 text, not UTF-8; convert it: iconv -f UTF-7"),
    ],
)
def test_what_is_no_utf8_text_is_named(tmp_path: Path, raw: bytes, said: str) -> None:
    """The reason names the encoding or form that was found, and quotes nothing of the file."""
    (tmp_path / "file.txt").write_bytes(raw)
    with pytest.raises(Unreadable) as told:
        read_text(tmp_path / "file.txt")
    assert said in str(told.value)
    assert "회의" not in str(told.value)


def test_hangul_in_parts_is_composed(tmp_path: Path) -> None:
    """Letters as some systems store them, in parts, become whole syllables; line ends become plain."""
    (tmp_path / "a.txt").write_bytes("한글\r\n둘".encode())
    assert read_text(tmp_path / "a.txt") == "한글\n둘"


def test_html_shows_what_a_reader_sees() -> None:
    """Scripts, styles and heads go, blocks stand on lines of their own, references are characters."""
    page = (
        "<html><head><title>t</title></head><body><h1>제목</h1><p>A &amp; B<br>둘</p><script>x()</script></body></html>"
    )
    assert plain_html(page).split() == ["제목", "A", "&", "B", "둘"]
    assert "제목\n" in plain_html(page)


def test_tables_of_html_keep_their_columns() -> None:
    """Cells stand side by side with a mark between, one row a line, also where a cell holds paragraphs; a frame does not."""
    page = (
        "<table><tr><th>이름</th><th>전화</th></tr>\n<tr><td><p>제갈윤희</p></td><td></td></tr></table>"
        f"<table><tr><td><p>첫 문단 {TEXT * 3}</p><p>둘째 문단</p></td></tr></table>"
    )
    lines = plain_html(page).splitlines()
    assert lines[:2] == ["이름 | 전화", "제갈윤희 |"]
    assert "둘째 문단" in lines


def test_links_to_mailboxes_show_the_address() -> None:
    """A name that is a link to a mailbox stands beside its address; an address that shows already is not doubled."""
    page = '<p><a href="mailto:yh@a.example?subject=x">이영자</a>, <a href="mailto:b@a.example">b@a.example</a></p>'
    assert plain_html(page) == "이영자 <yh@a.example>, b@a.example"


def test_given_with_tags(tmp_path: Path) -> None:
    """Tags stand after the last equals sign; a folder that has one in its name is still a folder."""
    (tmp_path / "a=b").mkdir()
    assert parse_given(f"{tmp_path}=ko/office") == Given(tmp_path, "ko", "office")
    assert parse_given(f"{tmp_path}=/essay") == Given(tmp_path, None, "essay")
    assert parse_given(f"{tmp_path}=en+code") == Given(tmp_path, "en+code", None)
    assert parse_given(f"{tmp_path}/a=b") == Given(tmp_path / "a=b")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nowhere", "does not exist"),
        (".=korean/office", "language 'korean'; allowed: ko"),
        (".=ko/of fice", "text type 'of fice'"),
    ],
)
def test_wrong_given(value: str, said: str) -> None:
    """A missing path and an unknown language are told."""
    with pytest.raises(StageError, match=said):
        parse_given(value)
