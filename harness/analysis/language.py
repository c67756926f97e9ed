"""Which of the language labels of ``harness.tasks`` fits a text: from the share of Hangul and of code in it.

A cross-check of labels and of what a model wrote, not a linguist: Korean is what has Hangul, English what has words in Latin letters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from harness.tasks import Language

HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
LATIN = re.compile(r"[A-Za-z]")
HANGUL_RUN, LATIN_RUN = (re.compile(f"{letter.pattern}+") for letter in (HANGUL, LATIN))
FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
INLINE = re.compile(r"`[^`\n]+`")
CALL = re.compile(r"</?tool_call>")
IDENTIFIER = re.compile(
    r"\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b"  # snake_case
    r"|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|\b(?:[A-Z][a-z0-9]+){2,}\b"  # camelCase, CamelCase
    r"|\b[A-Za-z_][\w.]*\(\)?"  # call(
    r"|\b[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)+\b"  # dotted.name
    r"|(?<![\w/])/?(?:[\w.-]+/){2,}[\w.-]*"  # a/path/name
    r"|\b[A-Za-z]\w*=[\w.\"']+"  # key=value
)
IN_PATH = re.compile(r"[\w.-]/[\w.-]+/")  # is in every path
NO_PATH = re.compile(
    r"[A-Za-z_](?<!\w[A-Za-z_])"  # all others begin with such a letter, and none of them inside a word
    r"(?:(?<=[A-Za-z])[A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b"
    r"|(?<=[a-z])[a-z]*(?:[A-Z][a-z0-9]+)+\b|(?<=[A-Z])[a-z0-9]+(?:[A-Z][a-z0-9]+)+\b"
    r"|[\w.]*\(\)?"
    r"|(?<=[A-Za-z])[\w-]*(?:\.[A-Za-z][\w-]*)+\b"
    r"|(?<=[A-Za-z])\w*=[\w.\"']+)"
)
"""The same as ``IDENTIFIER`` where no path is, in a third of the time: begun at few letters, and in Korean at hardly any."""
_IN_IDENTIFIERS = ("_", "/", "=")
_AROUND = (("(", re.compile(r"[\w.]\(")), (".", re.compile(r"[\w-]\.[A-Za-z]")), ("", re.compile(r"[a-z0-9][A-Z]")))
"""One of all these is in every identifier; a pattern is looked for only where its letter is."""
CODE_END = re.compile(r"[;{}]\s*(?://.*|#.*)?$|=>")  # statement or brace at the end, arrow anywhere
CODE_SIGNS = (";", "{", "}", "=>")  # one of them is in every ``CODE_END``
CODE_START = re.compile(  # of a whole line
    r"\s*(?:def|class|import|from|return|if|elif|else|for|while|try|except|with|async|await|const|let|var|func|fn|use|public|private"
    r"|static|struct|enum|SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER)\b.*[:;{(=,)]\s*$"
    r"|\s*(?:def|class|fn|func|const|let|var|assert|return)\s+\S+.*[=(.:]"
    r"|\s*(?:import\s+[\w.{*]|from\s+\S+\s+import\s)"
    r"|\s*[\w.\[\]\"']+\s*(?:[-+*/|&]?=|:=)(?!=)\s*\S"  # assignment
    r"|\s*@\w|\s*(?://|/\*|\*/|#!|--\s|<!--)|\s*[-+]\s{2,}\S|\s*[)\]}]+[,;]?$"
)
JSON_START = re.compile(r"""\{\s*["'][^"']+["']\s*:""")
COMMENT = re.compile(r"\s*(?://|/\*|#\s|--\s|<!--)")
MANY_LINES = 0.5
"""From this share of the characters in code lines on, a text without fences is code; prose around a line or two stays below."""
SOME_PROSE = 0.25
"""Below this share of its letters outside code, the prose of a text is a remark beside the code."""
SOME_HANGUL = 0.2
"""Korean prose with English names in it keeps more than this share of Hangul among its letters; a name quoted in English text and a
comment or two in code stay below."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Counts behind a label. Letters are Hangul syllables and Latin letters; a Hangul syllable weighs like two Latin letters."""

    prose_hangul: int
    prose_latin: int
    code_hangul: int
    code_latin: int
    marks: int  # identifiers, inline code and code lines in the prose

    @property
    def prose(self) -> int:
        """Weight of the letters outside code."""
        return 2 * self.prose_hangul + self.prose_latin

    @property
    def code(self) -> int:
        """Weight of the letters inside code."""
        return 2 * self.code_hangul + self.code_latin


def traits(text: str) -> Traits:
    """Split a text into code (fenced, inline, JSON, code lines, identifiers) and prose, and count letters in each."""
    text = CALL.sub("\n", text) if "tool_call>" in text else text
    code: list[str] = []
    marks = 0

    def cut(match: re.Match[str]) -> str:
        code.append(match[0])
        return " "

    prose = FENCE.sub(cut, text) if "```" in text else text
    lines = prose.split("\n")
    is_code = [_is_code(line) for line in lines]
    in_code = sum(len(line) for line, yes in zip(lines, is_code, strict=True) if yes)
    if in_code >= MANY_LINES * max(1, sum(map(len, lines))):
        code += [line for line, yes in zip(lines, is_code, strict=True) if yes or not HANGUL.search(line)]
        prose = "\n".join(line for line, yes in zip(lines, is_code, strict=True) if not yes and HANGUL.search(line))
    else:
        marks += sum(is_code)
    if "`" in prose:
        prose, found = INLINE.subn(cut, prose)
        marks += found
    if _has_identifier(prose):
        pattern = IDENTIFIER if "/" in prose and IN_PATH.search(prose) else NO_PATH
        prose, found = pattern.subn(cut, prose)
        marks += found
    both = "\n".join(code)
    return Traits(
        _letters(prose, HANGUL_RUN),
        _letters(prose, LATIN_RUN),
        _letters(both, HANGUL_RUN),
        _letters(both, LATIN_RUN),
        marks,
    )


def _has_identifier(text: str) -> bool:
    """Tell whether there can be an identifier, which is sooner told than where it is."""
    return any(mark in text for mark in _IN_IDENTIFIERS) or any(
        mark in text and around.search(text) for mark, around in _AROUND
    )


def _letters(text: str, kind: re.Pattern[str]) -> int:
    return sum(map(len, kind.findall(text)))


@lru_cache(maxsize=2)  # several questions about a text follow each other
def detect(text: str) -> Language | None:
    """Return the label that fits a text best, ``None`` for a text without letters."""
    found = traits(text)
    if not found.prose + found.code:
        return None
    if found.prose < SOME_PROSE * (found.prose + found.code):
        hangul = 2 * (found.prose_hangul + found.code_hangul)
        return "ko+code" if hangul >= SOME_HANGUL * (found.prose + found.code) else "code"
    korean = 2 * found.prose_hangul >= SOME_HANGUL * found.prose
    if korean:
        return "ko+code" if found.marks or found.code else "ko"
    return "en+code" if found.marks or found.code else "en"


def agrees(label: str, text: str) -> bool:
    """Tell whether a text can carry a label.

    Code beside prose is a matter of degree: a lone identifier does not make a Korean letter ``ko+code``, and code with a Korean
    comment may be called ``code``. So neighbours pass; Korean and English never pass for one another, nor prose for code.
    """
    return fits(label, detect(text), text)


def fits(label: str, found: Language | None, text: str) -> bool:
    """Return :func:`agrees` of a text of which it is known what :func:`detect` found."""
    if label == "ko+code" and found == "code":  # a Korean word among many names, as in the arguments of a tool call
        return HANGUL.search(text) is not None
    return found is not None and found in NEIGHBOURS.get(label, {label})


NEIGHBOURS: dict[str, set[str]] = {
    "ko": {"ko", "ko+code"},
    "ko+code": {"ko+code", "ko"},
    "en": {"en", "en+code"},
    "en+code": {"en+code", "en", "code"},
    "code": {"code", "en+code", "ko+code"},
}


def _is_code(line: str) -> bool:
    line = INLINE.sub(" ", line) if "`" in line else line
    if "{" in line and JSON_START.search(line):  # also where the end is cut off
        return True
    ends = any(sign in line for sign in CODE_SIGNS) and CODE_END.search(line) is not None
    if not line.strip() or not (ends or CODE_START.match(line)):
        return False
    # Korean lists begin with dashes and end in brackets like code: a line that is mostly Hangul is code only as a comment
    return 2 * _letters(line, HANGUL_RUN) <= _letters(line, LATIN_RUN) or COMMENT.match(line) is not None
