"""Signs in a single text that no answer of a working server has: noise, the marks of a chat template, tool calls that do not parse.

Acceptance measured on such texts is that of another job: noise cannot be drafted at all, and a model that goes on past its end writes
what nobody asked for. The bounds leave every recorded answer of the committed task files unflagged.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache

from harness.analysis.language import HANGUL, detect

SHORTEST_WORDS = 25
"""Shorter prose is not judged by its grammar: a heading or a list of names has none either."""
JUDGED = 1_200  # characters from the start: enough to tell, and a long answer costs no more
GARBLED_SHARE = 0.03
"""From this share on, replacement marks and code points that no script uses make a text noise; one cut syllable in 40 is no noise."""
SCRIPTS = 4
SCRIPT_SHARE = 0.03
"""So many scripts with at least this share of the letters each: a Korean text about a Greek formula in English words has two."""
GRAMMAR_SHARE = 0.1
"""Below this share of words that hold an English sentence together, prose is a list of words. Recorded answers have at least 0.31, words
drawn from a vocabulary 0.02."""
RARE_SYLLABLES = 0.05
"""From this share of Hangul syllables on that the Korean standard set of 2,350 lacks, Korean is noise. Texts have none or a name's one;
of syllables drawn at random four in five are outside."""

_MOST_USED = (
    "the of to and a in is it that for on with as be are this by or from at an not have has was were we you your our they their its "
    "i he she him her my me us them can will would should could may must if but all there which who what when where how do does did "
    "no so more than then into out up about also any each only over after before because while been being other such these those "
    "please"
)
FUNCTION_WORDS = frozenset(_MOST_USED.split())
_PLAIN_SCRIPTS = ("LATIN", "HANGUL")
LATIN_WORD = re.compile(r"[A-Za-z']+")

END_MARK = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|end_of_text|eom_id|end)\|>|<end_of_turn>|</s>|<\uff5cend\u2581of\u2581sentence\uff5c>|\[EOS\]"
)
OPENING = re.compile(
    r"<\|(?:im_start|start_header_id|user|assistant|system)\|>|<start_of_turn>|\[/?INST\]|<<SYS>>"
    r"|^\#{2,3} ?(?:Instruction|Response|Human|User|Assistant):?\s*$"
    r"|^(?:user|assistant)\s*$",  # a template's role whose marks the server left out
    re.MULTILINE,
)
SPEAKER = re.compile(r"^(User|Human|Assistant|AI|Bot|Customer|사용자|어시스턴트)\s*:\s", re.MULTILINE)
CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def is_random(text: str) -> bool | None:
    """Tell whether a text is noise: garbled letters, many scripts mixed, English prose without the words that hold
    a sentence together, Korean in syllables that no Korean word has.

    ``None`` for what cannot be judged: code, and prose too short to have a grammar.
    """
    head = text[:JUDGED]
    if not head.strip():
        return None
    # a text has far fewer different letters than letters, and most texts none that speak against them
    odd = set(head) - _plain()
    garbled = any(map(_is_garbled, odd)) and _sum(Counter(head), _is_garbled) >= GARBLED_SHARE * len(head)
    if garbled or (len({*map(_script, odd), *_PLAIN_SCRIPTS} - {""}) >= SCRIPTS and _many_scripts(Counter(head))):
        return True
    language = detect(head)
    if language == "ko":
        letters = Counter(head if any(map(_is_rare, odd)) else "")
        return bool(letters) and _sum(letters, _is_rare) >= RARE_SYLLABLES * _sum(letters, _is_hangul)
    words = LATIN_WORD.findall(head.lower())[:-1]  # the last may be cut off
    if language != "en" or len(words) < SHORTEST_WORDS:
        return None
    return sum(word in FUNCTION_WORDS for word in words) < GRAMMAR_SHARE * len(words)


def runs_past_end(text: str) -> bool:
    """Tell whether a text goes on behind a mark that ends an answer: its server ignores the end of text."""
    mark = END_MARK.search(text)
    return mark is not None and bool(END_MARK.sub("", text[mark.end() :]).strip())


def plays_both_sides(text: str) -> bool:
    """Tell whether a text opens further turns itself: the model was not shown where its answer ends, as without a chat template."""
    speakers = {match[1] for match in SPEAKER.finditer(text)}
    return OPENING.search(text) is not None or len(speakers) >= 2


def calls_parse(text: str) -> bool | None:
    """Tell whether every tool call in a text has arguments that are a JSON object, ``None`` for a text without a call.

    Both forms are read: ``{"name": …, "arguments": {…}}`` as the prompt asks for it, and ``name {…}`` as calls from the request's own
    ``tools`` field are kept.
    """
    calls = CALL.findall(text)
    return all(map(_call_parses, calls)) if calls else None


def _call_parses(body: str) -> bool:
    body = body.strip()
    whole = _object(body)
    if whole is not None:
        return isinstance(whole.get("name"), str) and isinstance(whole.get("arguments", {}), dict)
    name, _, arguments = body.partition(" ")
    return bool(name) and "{" not in name and _object(arguments.strip() or "{}") is not None


def _object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _sum(letters: Counter[str], kind: Callable[[str], bool]) -> int:
    return sum(count for letter, count in letters.items() if kind(letter))


@cache
def _is_garbled(letter: str) -> bool:
    if letter.isascii():
        return letter < " " and letter not in "\n\r\t"
    return letter == "\ufffd" or unicodedata.category(letter) in ("Cn", "Co", "Cc")


@cache
def _is_hangul(letter: str) -> bool:
    return HANGUL.match(letter) is not None


@cache
def _is_rare(syllable: str) -> bool:
    # the standard set takes two bytes; other syllables are spelled out, lone letters (ㅋ, ㅇ) are in the set
    return "가" <= syllable <= "힣" and len(syllable.encode("euc_kr")) > 2


@cache
def _plain() -> frozenset[str]:
    """Return letters of ``_PLAIN_SCRIPTS`` and marks that speak against no text: ASCII's and the syllables of the standard set."""
    syllables = (chr(code) for code in range(ord("가"), ord("힣") + 1))
    return frozenset({*string.printable, *(each for each in syllables if not _is_rare(each))} - {"\v", "\f"})


@cache
def _script(letter: str) -> str:
    """Return the first word of a letter's name, such as HANGUL, and nothing for what is no letter."""
    if letter.isascii():
        return "LATIN" if letter.isalpha() else ""
    return unicodedata.name(letter, "").partition(" ")[0] if unicodedata.category(letter)[0] == "L" else ""


def _many_scripts(letters: Counter[str]) -> bool:
    counts: Counter[str] = Counter()
    for letter, count in letters.items():
        counts[_script(letter)] += count
    del counts[""]
    total = sum(counts.values())
    return sum(count >= SCRIPT_SHARE * total for count in counts.values()) >= SCRIPTS
