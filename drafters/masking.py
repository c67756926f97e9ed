"""Masking of personal data in texts, before anything is stored. Imports no torch.

Two passes: :meth:`Masker.learn` sees every text once and remembers what is personal in it; after :meth:`Masker.settle`
:meth:`Masker.mask` replaces each value wherever it stands, also where nothing beside it gives it away. A text is masked
in the same way in whatever conversation it stands, so the masked turns of a growing conversation stay a prefix of it.

Values are found by the names of JSON keys, columns and lines, and by a scanner of plain text, `maskingtape` as a rule.
"""

from __future__ import annotations

import bisect
import hashlib
import hmac
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import accumulate
from typing import Literal

from drafters.masking_fields import Found, field_spans, looks_like_name
from drafters.masking_forms import form_spans
from drafters.masking_paths import hide_words
from drafters.masking_scan import TITLE, MaskingUnavailable, Scanner, disjoint, tape_scanner, text_spans
from drafters.masking_spellings import CHAIN, apart, dates, literals, mails, prepared, respelled
from drafters.masking_tables import table_spans
from drafters.surrogates import DIGIT_KINDS, KINDS, canonical, invent, pour, words

__all__ = ["Found", "Masker", "MaskingUnavailable", "Mode", "fingerprint", "tape_scanner"]

Mode = Literal["surrogate", "label", "none"]
ORDINARY_COUNT, ORDINARY_RATIO = 20, 10
PARTICLES = frozenset(["", "은", "는", "이", "가", "을", "를", "의", "에", "로", "으로", "과", "와", "도", "만"])
MIN_FORMS = 4
MIN_KEY = 16
"""A shorter key may stand in a text by chance."""
MAX_GROUPS, MAX_DIGITS = 20, 24
"""Of one number: more pieces, or more digits, no value has."""
INFLECTED = frozenset("의을를이가에로과와도만한해된할")
"""Last syllables of words with a particle or an ending; not 은, in which too many names end."""
LEFT = ("ordinary words", "two syllables without a title")
"""Why finds of a scanner are not replaced."""
MIN_DIGITS = 7
"""Shorter numbers are replaced where they were found, but not looked for elsewhere."""
CODE_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{1,2}\d[A-Za-z0-9]{5,9}(?![A-Za-z0-9])")
HANGUL_RUN = re.compile(r"[가-힣]+")
WORD = re.compile(r"[가-힣]+|[^\W_가-힣]+")
AFTER_SHORT = re.compile(
    r"(?![가-힣])|(?:은|는|이|가|을|를|의|에게|께서|께|와|과|도|만|으로|로|이나|나|이라|라|입니다|님|씨|"
    + "|".join(words()["titles"])
    + ")"
)
RANK = {
    kind: rank for rank, kind in enumerate(("rrn", "card", "phone", "account", "biz_reg", "corp_reg", "driver_license"))
}


def fingerprint(key: bytes) -> str:
    """Eight hexadecimal digits that tell keys apart and say nothing about them."""
    return hmac.new(key, b"fingerprint", hashlib.sha256).hexdigest()[:8]


class Masker:
    """Finds and replaces personal values. ``scope`` is a file: short names are looked for only where they were seen."""

    def __init__(self, mode: Mode, key: bytes, scanner: Scanner | None) -> None:
        self.mode: Mode = mode
        self.counts: dict[str, Counter[str]] = {}
        self.left: Counter[str] = Counter(dict.fromkeys(LEFT, 0))
        self._key = key
        self._scanner = scanner
        self._spans: dict[bytes, tuple[tuple[Found, ...], int]] = {}
        self._kinds: dict[str, str] = {}
        self._names: set[str] = set()
        self._local: dict[str, set[str]] = {}
        self._phrases: dict[str, dict[str, str]] = {}
        self._made: dict[tuple[str, str], str] = {}
        self._seen: set[tuple[str, str]] = set()
        self._originals: set[str] = set()
        self._hits: Counter[str] = Counter()
        self._sure: set[str] = set()
        self._runs: Counter[str] = Counter()
        self._forms: dict[str, set[str]] = {}
        self._ordinary: set[str] = set()
        self._taken: set[str] = set()

    @staticmethod
    def prepare(text: str) -> str:
        """Composed Hangul, and characters instead of their escapes, so that no value hides behind its spelling."""
        return prepared(text)

    @property
    def distinct(self) -> Mapping[str, int]:
        """How many different values of each kind were seen."""
        return dict(sorted(Counter(kind for kind, _ in self._seen).items()))

    def learn(self, text: str, scope: str) -> None:
        """Remember the personal values of a text."""
        if self.mode == "none":
            return
        plain = self.prepare(text)
        runs = [run.group() for run in HANGUL_RUN.finditer(plain)]
        self._runs.update(run[:3] for run in runs if len(run) >= 3)
        for run in runs:
            if 2 <= len(run) <= 4 and run[2:] in PARTICLES:
                self._forms.setdefault(run[:2], set()).add(run[2:])
        for found in self._find(plain)[0]:
            self._remember(found, plain[found.start : found.end], scope)

    def settle(self) -> None:
        """Choose every value's surrogate, in an order that does not depend on that of the texts.

        A word that a scanner took for a name, and passed by more than nine times as often, is left alone where it lacks
        the form of a name or is a word with its particle; never one that stood beside a key, a title or a role.
        """
        self._ordinary = {
            name
            for name, hits in self._hits.items()
            if len(name) >= 3
            and name not in self._sure
            and (not looks_like_name(name) or self._is_inflected(name))
            and self._runs[name[:3]] > max(ORDINARY_COUNT, hits * ORDINARY_RATIO)
        }
        self._names -= self._ordinary
        self._seen -= {("name", name) for name in self._ordinary}
        for kind, value in sorted(
            self._seen, key=lambda one: hmac.new(self._key, repr(one).encode(), "sha256").digest()
        ):
            self._surrogate(kind, value)

    def mask(self, text: str, scope: str) -> str:
        """Return the text with its personal values replaced, and count them under ``scope``."""
        if self.mode == "none":
            return unicodedata.normalize("NFC", text)
        plain = self.prepare(text)
        written, at = list[str](), 0
        counts = self.counts.setdefault(scope, Counter())
        spans, short = self._find(plain)
        self.left[LEFT[0]] += sum(self._is_ordinary(plain, found) for found in spans)
        self.left[LEFT[1]] += short
        for found in _whole_numbers(plain, self._decide(plain, scope)):
            value = plain[found.start : found.end]
            written += (plain[at : found.start], self._replacement(found, value))
            at = found.end
            counts[found.kind] += 1
        return "".join(written) + plain[at:]

    def mask_path(self, path: str, scope: str) -> str:
        """Mask a file's name: every word in it that is not known for one of file names, for any of them may be a person's.

        Such a word becomes ``~`` and eight digits that follow from it and the key. Paths are not counted.
        """
        if self.mode == "none":
            return path
        plain = self.prepare(path)
        written, at = list[str](), 0
        for found in self._decide(plain, scope):
            value = plain[found.start : found.end]
            written += (hide_words(plain[at : found.start], self._hidden), self._replacement(found, value))
            at = found.end
        return "".join(written) + hide_words(plain[at:], self._hidden)

    def holds_key(self, text: str) -> bool:
        """Tell whether the key itself stands in a text."""
        return self._key.isascii() and len(self._key) >= MIN_KEY and self._key.decode("ascii") in text

    def identity(self, text: str) -> str:
        """Sixteen hexadecimal digits that tell texts apart; without the key no guess at a text can be tried on them."""
        return hmac.new(self._key, f"identity\0{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:16]

    def _hidden(self, word: str) -> str:
        return "~" + hmac.new(self._key, f"path\0{word.casefold()}".encode(), hashlib.sha256).hexdigest()[:8]

    def _find(self, text: str) -> tuple[tuple[Found, ...], int]:
        """Return the personal values of a text by themselves, and how many short words were not taken for names."""
        name = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if name not in self._spans:
            named = [*field_spans(text), *table_spans(text), *form_spans(text)]
            looks = text_spans(text, self._scanner)
            taken = [found for found in looks if not _is_short(text, found)]
            self._spans[name] = tuple(disjoint(text, [*named, *taken])), len(looks) - len(taken)
        return self._spans[name]

    def _is_inflected(self, name: str) -> bool:
        """Tell whether a name is rather a word of two syllables and a particle: the word stands with others as well."""
        return name[2:] in INFLECTED and len(self._forms.get(name[:2], ())) >= MIN_FORMS

    def _is_ordinary(self, text: str, found: Found) -> bool:
        return not found.certain and canonical(found.kind, text[found.start : found.end]) in self._ordinary

    def _remember(self, found: Found, value: str, scope: str) -> None:
        kind, plain = found.kind, canonical(found.kind, value)
        if not plain:
            return
        if kind in DIGIT_KINDS and plain.isdigit():
            kind = self._kinds.get(plain, kind)
            kind = min(kind, found.kind, key=lambda name: RANK.get(name, len(RANK)))
            if self._kinds.get(plain, kind) != kind:
                self._seen.discard((self._kinds[plain], plain))
            self._kinds[plain] = kind
            if kind == "phone" and value.startswith("+"):  # as it is dialled within its country
                national = {"0" + plain[count:] for count in (1, 2, 3) if 8 <= len(plain) - count <= 11}
                self._kinds.update({number: kind for number in national if number not in self._kinds})
        elif kind == "name" and HANGUL_RUN.fullmatch(plain):
            self._hits[plain] += 1
            if found.certain or found.cued:
                self._sure.add(plain)
            if len(plain) >= 3 and looks_like_name(plain):
                self._names.add(plain)
            elif len(plain) >= 2 and (found.certain or (found.cued and plain[0] in words()["all_surnames"])):
                self._local.setdefault(scope, set()).add(plain)
        elif kind in {"email", "passport"} or (kind == "birth_date" and re.fullmatch(r"\d{4}-\d+-\d+", plain)):
            self._kinds[plain] = kind
        elif kind == "name" and " " not in plain:
            if len(plain) >= 3 and found.certain:
                self._local.setdefault(scope, set()).add(value)
        elif kind == "name" or (kind == "address" and len(plain) >= 8):
            self._phrase(kind, value)
            self._first_name(kind, value, scope)
        self._seen.add((kind, plain))
        self._originals.add(plain)

    def _phrase(self, kind: str, value: str) -> None:
        first = WORD.search(value)
        if first:
            self._phrases.setdefault(first.group(), {})[value[first.start() :]] = kind

    def _first_name(self, kind: str, value: str, scope: str) -> None:
        """Of a name of Latin words also the first is looked for in its file, where it is not a word as well."""
        first = value.split(maxsplit=1)[0]
        plain = canonical(kind, first)
        if kind == "name" and not HANGUL_RUN.search(value) and len(first) >= 3 and plain not in words()["latin_words"]:
            self._local.setdefault(scope, set()).add(first)
            self._seen.add((kind, plain))
            self._originals.add(plain)

    def _decide(self, text: str, scope: str) -> list[Found]:
        spans = self._find(text)[0]
        known = [*self._known(text, scope)]
        # what a key names keeps its bounds; then values known from elsewhere; then what only looks like one
        fields = [found for found in spans if found.certain]
        looks = [found for found in spans if not found.certain and not self._is_ordinary(text, found)]
        return disjoint(text, [*fields, *known, *looks], ranked=True)

    def _known(self, text: str, scope: str) -> Iterator[Found]:
        """Yield learnt values wherever they stand."""
        for chain in CHAIN.finditer(text):
            groups = [(g.start() + chain.start(), g.end() + chain.start()) for g in re.finditer(r"\d+", chain.group())]
            yield from self._numbers(text, groups)
        codes = (match.span() for match in CODE_WORD.finditer(text))
        for spans, kind in ((mails(text), "email"), (codes, "passport"), (dates(text), "birth_date")):
            for start, end in spans:
                if self._kinds.get(canonical(kind, text[start:end])) == kind:
                    yield Found(start, end, kind)
        local = self._local.get(scope, set())
        for start, end in apart(text, self._names, local, _is_titled, _ends):
            yield Found(start, end, "name")
        yield from self._korean_names(text, local)
        yield from self._words(text, local)

    def _korean_names(self, text: str, local: Set[str]) -> Iterator[Found]:
        for run in HANGUL_RUN.finditer(text):
            word = run.group()
            length = next((count for count in (6, 5, 4, 3) if word[:count] in self._names and len(word) >= count), 0)
            if not length:
                fits = (c for c in range(min(6, len(word)), 1, -1) if word[:c] in local and AFTER_SHORT.match(word, c))
                length = next(fits, 0)
            if length:
                yield Found(run.start(), run.start() + length, "name")

    def _words(self, text: str, local: Set[str]) -> Iterator[Found]:
        lengths: dict[str, list[int]] = {}
        for match in WORD.finditer(text):
            word, start = match.group(), match.start()
            phrases = self._phrases.get(word, {})
            if phrases and word not in lengths:
                lengths[word] = sorted({len(phrase) for phrase in phrases}, reverse=True)
            for length in lengths.get(word, ()):
                kind = phrases.get(text[start : start + length])
                after = text[start + length : start + length + 1]
                is_particle = HANGUL_RUN.match(after) and not HANGUL_RUN.match(text[start + length - 1])
                if kind and (is_particle or not after.isalnum()):
                    yield Found(start, start + length, kind)
                    break
            else:  # a first name alone only where no whole name begins with it
                if word in local and not HANGUL_RUN.fullmatch(word):
                    yield Found(*match.span(), "name")

    def _numbers(self, text: str, groups: Sequence[tuple[int, int]]) -> Iterator[Found]:
        first = 0
        while first < len(groups):
            ends = range(first, min(len(groups), first + MAX_GROUPS))
            counts = accumulate(groups[last][1] - groups[last][0] for last in ends)
            for last in reversed([last for last, count in zip(ends, counts, strict=True) if count <= MAX_DIGITS]):
                digits = "".join(text[start:end] for start, end in groups[first : last + 1])
                if len(digits) < MIN_DIGITS:
                    break
                start = groups[first][0]
                start -= start > 0 and text[start - 1] == "+"
                is_plain = digits in self._kinds or (digits.isascii() and digits[:2] not in ("82", "10"))
                plain = digits if is_plain else canonical("phone", digits)
                if plain in self._kinds:
                    yield Found(start, groups[last][1], self._kinds[plain])
                    first = last
                    break
            first += 1

    def _replacement(self, found: Found, value: str) -> str:
        kind, plain = found.kind, canonical(found.kind, value)
        if self.mode == "label":
            label = f"[{KINDS[kind]}]"
            return f'"{label}"' if found.bare else label
        if kind in DIGIT_KINDS:
            kind = self._kinds.get(plain, kind)
        made = pour(kind, value, self._surrogate(kind, plain))
        if kind == "email":
            made = respelled(value, made)
        return made.replace('"', "") if not found.bare else re.sub(r"^0(?=\d)", "1", made)

    def _surrogate(self, kind: str, plain: str) -> str:
        asked = (kind, plain)
        if asked not in self._made:
            made, attempt = plain, 0
            while made == plain or made in self._originals or made in self._taken:
                made = invent(self._key, kind, plain, attempt)
                attempt += 1
                if kind == "name" and made.isascii() and " " not in made and made not in self._originals:
                    break  # a first name alone: the one within the whole name, which several people may have
                if attempt > 64 and made != plain:  # so few values of this shape that two must share one
                    break
                if attempt > 256:
                    made = f"[{KINDS[kind]}]"
                    break
            self._made[asked] = made
            self._taken.add(made)
        return self._made[asked]


def _is_short(text: str, found: Found) -> bool:
    """Tell whether a find is two syllables that a scanner took for a name without a title after them: as often a word."""
    plain = canonical(found.kind, text[found.start : found.end])
    return (
        found.kind == "name"
        and not found.certain
        and len(plain) <= 2
        and HANGUL_RUN.fullmatch(plain) is not None
        and not (found.cued and looks_like_name(plain))
    )


def _ends(text: str, at: int) -> bool:
    return AFTER_SHORT.match(text, at) is not None


def _is_titled(text: str, at: int) -> bool:
    return TITLE.match(text, at) is not None


def _whole_numbers(text: str, found: Sequence[Found]) -> Iterator[Found]:
    """In JSON, a value that is a number or a part of one is replaced as that number, and each number once."""
    numbers = literals(text) if any(text[one.start : one.end].strip("0123456789.+-eE") == "" for one in found) else []
    starts, last = [start for start, _ in numbers], -1
    for one in found:
        index = bisect.bisect_right(starts, one.start) - 1
        if index < 0 or one.start >= numbers[index][1]:
            yield one
        elif index != last:
            last = index
            yield replace(one, start=numbers[index][0], end=numbers[index][1], bare=True)
