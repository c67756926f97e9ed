"""Folders of documents: which files are taken, and how each becomes plain text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from drafters.training.corpus.encoding import Unreadable, read_text
from drafters.training.corpus.languages import language_of_code, text_type_of_folder
from drafters.training.corpus.sources import Given, LeftOut, Reading, Source, shown_path

__all__ = ["MIN_CHARACTERS", "TAKEN", "read_documents"]

TEXT = frozenset([".txt", ".text", ".md", ".markdown", ".rst", ".adoc", ".log"])
HTML = frozenset([".html", ".htm", ".xhtml"])
TABLES = frozenset([".csv", ".tsv"])
CODE = frozenset(
    [
        ".py",
        ".java",
        ".kt",
        ".scala",
        ".js",
        ".jsx",
        ".ts",
        ".tsx",
        ".vue",
        ".c",
        ".h",
        ".cc",
        ".cpp",
        ".hpp",
        ".cs",
        ".go",
        ".rs",
        ".rb",
        ".php",
        ".swift",
        ".sql",
        ".sh",
        ".yaml",
        ".yml",
        ".toml",
        ".ini",
        ".json",
        ".xml",
        ".css",
    ]
)
TAKEN = TEXT | HTML | TABLES | CODE
"""Endings of files that are taken; tables and code as they stand."""
MIN_CHARACTERS = 40
MAX_CELL = 200
"""Characters of a cell of a table of values."""
REASONS = {
    ".jsonl": "one object a line: give it with --conversations",
    ".hwp": "a HWP document: save it as UTF-8 text",
    ".hwpx": "a HWP document: save it as UTF-8 text",
    ".pdf": "a PDF document: save it as UTF-8 text",
    ".docx": "a Word document: save it as UTF-8 text",
    ".doc": "a Word document: save it as UTF-8 text",
    ".xlsx": "an Excel document: save it as CSV in UTF-8",
    ".xls": "an Excel document: save it as CSV in UTF-8",
    ".pptx": "a PowerPoint document: save it as UTF-8 text",
    ".eml": "a mail with headers and parts: save it as UTF-8 text",
    ".msg": "an Outlook mail: save it as UTF-8 text",
    ".zip": "an archive: unpack it",
}


def read_documents(given: Given) -> Reading:
    """Yield the documents of a folder, or of a single file, in order of path; every file is yielded or left out."""
    root = given.path
    files = (
        [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file() or path.is_symlink())
    )
    for path in files:
        relative = path.relative_to(root) if path != root else Path(path.name)
        name = shown_path(relative)
        reason = _not_taken(path, relative)
        if reason:
            yield LeftOut(name, reason)
            continue
        try:
            text = read_text(path)
        except Unreadable as error:
            yield LeftOut(name, str(error))
            continue
        text = plain_html(text) if path.suffix.lower() in HTML else text
        text = re.sub(r"[ \t]+\n", "\n", re.sub(r"\n{3,}", "\n\n", text)).strip()
        if len(text) < MIN_CHARACTERS:
            yield LeftOut(name, f"{len(text)} characters of text; a document needs at least {MIN_CHARACTERS}")
            continue
        language = given.language
        text_type = given.text_type or text_type_of_folder(relative.parent)
        if path.suffix.lower() in CODE:
            language, text_type = language or language_of_code(text), text_type or "code"
        yield Source(file=name, unit=name, text=text, language=language, text_type=text_type)


def _not_taken(path: Path, relative: Path) -> str | None:
    if any(part.startswith(".") for part in relative.parts):
        return "hidden"
    if path.is_symlink():
        return "a link; give the file itself"
    ending = path.suffix.lower()
    if ending in TAKEN or not ending:
        return None
    shown = f"files ending in {ending} are" if ending.isascii() else "files of this kind are"
    return REASONS.get(ending, f"{shown} not taken; save it as UTF-8 text, .txt or .md")


def plain_html(text: str) -> str:
    """Return the visible text of an HTML page: blocks on lines of their own, no scripts, styles or heads."""
    reader = _Visible()
    reader.feed(text)
    reader.close()
    lines = (re.sub(r"[ \t\u00a0]+", " ", line).strip() for line in "".join(reader.parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Visible(HTMLParser):
    """Collects what a reader of the page sees."""

    BLOCKS = frozenset(
        [
            "p",
            "div",
            "section",
            "article",
            "li",
            "ul",
            "ol",
            "tr",
            "table",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "pre",
            "blockquote",
            "dt",
            "dd",
            "header",
            "footer",
        ]
    )
    ROWS = frozenset(["tr", "table"])
    CELL_ENDS = frozenset(["td", "th", "tr", "table", "tbody", "thead"])
    HIDDEN = frozenset(["script", "style", "head", "template", "noscript"])

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0
        self._pre = 0
        self._rows: list[int] = []  # cells so far of each open row
        self._cell: int | None = None
        self._mailbox: tuple[str, int] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self._hidden += tag in self.HIDDEN
        self._pre += tag == "pre"
        href = dict(attrs).get("href") or ""
        if tag == "a" and href.casefold().startswith("mailto:"):
            self._mailbox = unquote(href[len("mailto:") :].partition("?")[0]), len(self.parts)
        if tag in self.ROWS:
            self._end_cell()
            self._rows += [0] if tag == "tr" else []
        if tag in self.BLOCKS or tag == "br":
            self.parts.append("\n")
        elif tag in ("td", "th"):
            self._end_cell()
            if self._rows:  # a mark between cells: without it no column can be told
                self.parts.append(" | " if self._rows[-1] else "")
                self._rows[-1] += 1
            self._cell = len(self.parts)

    def handle_endtag(self, tag: str) -> None:
        """Close a tag."""
        self._hidden = max(0, self._hidden - (tag in self.HIDDEN))
        self._pre = max(0, self._pre - (tag == "pre"))
        if tag == "a":
            self._end_link()
        if tag in self.CELL_ENDS:
            self._end_cell()
        if tag == "tr" and self._rows:
            self._rows.pop()
        if tag in self.BLOCKS and tag != "tr":  # rows stand line by line, as one table
            self.parts.append("\n")

    def _end_link(self) -> None:
        """Write the address of a link to a mailbox behind its text, as in a mail: it tells that the text is a name."""
        if self._mailbox:
            address, start = self._mailbox
            if address not in "".join(self.parts[start:]) and not self._hidden:
                self.parts.append(f" <{address}>")
            self._mailbox = None

    def _end_cell(self) -> None:
        """Put a short cell on one line, so that its row stays one; a long one is a page's frame and keeps its lines."""
        if self._cell is not None:
            text = "".join(self.parts[self._cell :])
            if len(text) <= MAX_CELL:
                self.parts[self._cell :] = [re.sub(r"\s+", " ", text).strip()]
            self._cell = None

    def handle_data(self, data: str) -> None:
        """Take text that shows."""
        if not self._hidden:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))
