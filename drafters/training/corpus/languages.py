"""Which language and which type a text is, by simple rules that can be read here; given tags come before them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = [
    "code_share",
    "genre_of",
    "hangul_share",
    "language_of",
    "language_of_code",
    "text_type_of",
    "text_type_of_folder",
]

FENCE = re.compile(r"^```[^\n]*\n.*?(?:^```|\Z)", re.M | re.S)
CODE_LINE = re.compile(
    r"""^\s*(?:(?:def|class|import|from|return|if|elif|else|for|while|try|except|with|public|private|protected|static|final|const|let
    |var|function|func|fn|package|using|namespace|SELECT|INSERT|UPDATE|DELETE|CREATE|FROM|WHERE|JOIN|\#include|@\w+)\b.*[:;{}()=*,>]
    |\s*(?:import|return|pass|break|continue|raise)\b[ ]*[\w.]*\s*$|.*[;{}]\s*$|[\]})]+[,;]?\s*$|\s*</?\w+[^>]*>\s*$
    |\s*[\w.\[\]"']+\s*(?:[-+*/|&]?=|:=|=>|->)\s*\S.*|\s*["']?[\w.-]+["']?\s*:\s*["'{\[\d].*
    |\s*[\w.]+\([^)]*\)\s*:?\s*$|\s*(?:\#|//|/\*|\*/|--)\s?.*|\s*(?:at\s+[\w.$]+\(|Traceback|File\s").*|[+-]{1,3}\s?[\w@].*[;{}=]\s*$)""",
    re.VERBOSE | re.ASCII,
)
OTHER_SCRIPTS = re.compile(r"[\u0400-\u04ff\u0600-\u06ff\u0900-\u0dff\u0e00-\u0e7f\u3040-\u30ff\u4e00-\u9fff]")
FOLDERS = {
    "office": "office report reports minutes mail mails approval approvals memo 보고서 보고 회의록 메일 결재 기안 품의 공문 업무",
    "essay": "essay essays 수필 에세이 칼럼",
    "chat": "chat chats messenger 대화 채팅 메신저 상담",
    "docs": "doc docs manual manuals guide guides help wiki 매뉴얼 문서 규정 지침 도움말 안내",
    "code": "code src source lib 코드 소스",
}
FOLDER_TYPES = {word: text_type for text_type, names in FOLDERS.items() for word in names.split()}
GENRES = {
    "essay": "essay", "messenger": "chat", "code_edit": "code", "bugfix": "code", "feature": "code", "refactoring": "code",
    "sql": "code", "review": "code", "test": "code", "migration": "code", "performance": "code", "security": "code",
    "api_doc": "code", "kubernetes": "code", "legacy": "code", "log_analysis": "code",
    "billing": "dialogue", "hotel": "dialogue", "insurance": "dialogue", "logistics": "dialogue", "refund": "dialogue",
    "shipping": "dialogue", "software": "dialogue", "telecom": "dialogue", "travel": "dialogue",
}  # fmt: skip
MARKED = re.compile(
    r"^\s*(?:□|ㅇ|○|※|■|●|붙임|수신\s*[::]|참조\s*[::]|제목\s*[::]|일시\s*[::]|장소\s*[::]|\d+\.\s|[가-하]\.\s|- )",
    re.M,
)
PLAIN_ENDING = re.compile(r"(?:었다|았다|였다|한다|이다|는다|했다|없다|있다|같다|린다|진다)[.!?]?(?=\s|$)")
MAIL = re.compile(
    r"안녕하십니까|안녕하세요|드림\s*$|올림\s*$"
    r"|^\s*(?:Subject|제목|From|보낸 ?사람)\s*:|^(?:Dear|Hi|Hello)\b|회신 부탁|Best regards|Kind regards",
    re.M,
)
MINUTES = re.compile(r"회의록|참석자|안건|결정 ?사항|Attendees|Minutes|Action items?", re.I)
INCIDENT = re.compile(r"장애|복구|재발 ?방지|타임라인|Incident|Root cause|outage|postmortem", re.I)
REPORT = re.compile(
    r"보고서|개요|추진 배경|현황|개선 방안|기대 효과|향후 계획|실적|Executive summary|Quarterly|Findings", re.I
)
APPROVAL = re.compile(r"재가|품의|기안|결재|소요 ?예산|Approval request", re.I)


def hangul_share(text: str) -> float | None:
    """Share of Hangul among letters of Korean and Latin; None without letters."""
    hangul = sum("가" <= character <= "힣" for character in text)
    latin = sum(character.isascii() and character.isalpha() for character in text)
    return hangul / (hangul + latin) if hangul + latin else None


def code_share(text: str) -> float:
    """Share of a text's characters that stand in code: in fences, or in lines that look like code."""
    fenced = sum(len(match.group()) for match in FENCE.finditer(text))
    lines = [line for line in FENCE.sub("", text).split("\n") if line.strip()]
    coded = sum(len(line) for line in lines if CODE_LINE.match(line) and not line.lstrip().startswith("# "))
    total = fenced + sum(map(len, lines))
    return (fenced + coded) / total if total else 0.0


def language_of(text: str) -> str | None:
    """Return ko, en, code, ko+code or en+code; None where the letters are of another language."""
    code = code_share(text)
    hangul = hangul_share(text)
    letters = sum(map(str.isalpha, text))
    if letters and len(OTHER_SCRIPTS.findall(text)) > letters / 2:
        return None
    if hangul is None:
        return "code" if code > 0.5 else "en"
    prose = hangul_share("\n".join(line for line in FENCE.sub("", text).split("\n") if not CODE_LINE.match(line)))
    is_korean = hangul >= 0.3 or (prose is not None and prose >= 0.3 and hangul >= 0.05)
    if code >= 0.9:
        return "ko+code" if is_korean else "code"
    return ("ko" if is_korean else "en") + ("+code" if code >= 0.15 else "")


def language_of_code(text: str) -> str:
    """Return the language of a file that is code by its name: ko+code where comments or values are Korean."""
    return "ko+code" if (hangul_share(text) or 0.0) >= 0.1 else "code"


def text_type_of_folder(folder: Path) -> str | None:
    """Return the type that the innermost telling folder names; None when none does."""
    for part in reversed(folder.parts):
        for word in re.split(r"[\s_\-.]+", part.casefold()):
            if word in FOLDER_TYPES:
                return FOLDER_TYPES[word]
    return None


def text_type_of_genre(genre: str) -> str:
    """Return the type of a recorded task by its genre: office where nothing else is known."""
    return GENRES.get(genre, "office")


def text_type_of(text: str, language: str) -> str:
    """Return code, office, essay or docs."""
    if language == "code":
        return "code"
    genre = genre_of(text, language)
    if genre == "essay":
        return "essay"
    return "docs" if genre in ("plain", "code", "table") else "office"


def genre_of(text: str, language: str) -> str:
    """Return what kind of document this is, for choosing a request: code, table, mail, minutes, … or plain."""
    if "code" in language:
        return "code"
    lines = [line for line in text.split("\n") if line.strip()]
    if (
        lines
        and sum(line.count(",") >= 2 or line.count("\t") >= 2 or line.count("|") >= 2 for line in lines)
        > len(lines) / 2
    ):
        return "table"
    scores = {
        "mail": 2 * len(MAIL.findall(text)),
        "minutes": len(MINUTES.findall(text)),
        "incident": len(INCIDENT.findall(text)),
        "approval": 2 * len(APPROVAL.findall(text)),
        "report": len(REPORT.findall(text)),
    }
    best = max(scores, key=lambda name: scores[name])
    marks = len(MARKED.findall(text))
    if scores[best] >= 2 or (scores[best] and marks):
        return best
    if marks > len(lines) / 4:
        return "report"
    endings = len(PLAIN_ENDING.findall(text))
    if language == "ko" and endings >= 3 and endings >= len(re.findall(r"니다[.]?(?=\s|$)", text)) * 2 and not marks:
        return "essay"
    return "plain"
