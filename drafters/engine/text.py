"""Between text and token ids: encoding, the chat template, and the text of an answer that comes round by round.

Imports no torch. Encoding and decoding go through `tokenizers`, which lets other threads run meanwhile; the template is
the tokenizer's own, rendered by transformers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["TOO_LONG", "Detokenizer", "PromptError", "StopText", "Text", "TextError"]

TOO_LONG = "context_length_exceeded"
"""OpenAI's code for a prompt, or a prompt and the answer asked for, that the context does not hold."""
REPLACEMENT = "\ufffd"
CONTEXT_TOKENS = 8
WINDOW_TOKENS = 24
# A normaliser may compose letters (three of NFD Hangul to one), so that a token covers more text than it holds.
COMPOSED = 4


class TextError(ValueError):
    """The folder holds no tokenizer that can be read."""


class PromptError(ValueError):
    """Messages or a text that cannot become a prompt; the message says why.

    ``param`` is the field of the request that is at fault, ``None`` for the one that holds the text or the messages;
    ``code`` is OpenAI's for the fault where there is one.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class Text:
    """A model's tokenizer. Safe to use from several threads at once.

    ``eos`` are the tokens that end a text: those of the generation settings, of the model and of the tokenizer.
    ``highest_token`` is its highest token id.
    """

    def __init__(self, tokenizer: Any, eos: frozenset[int] = frozenset()) -> None:
        """Take a transformers tokenizer that is backed by the `tokenizers` library."""
        self._template = tokenizer
        self._tokens = tokenizer.backend_tokenizer
        own = tokenizer.eos_token_id
        self.eos = eos | (frozenset() if own is None else frozenset([int(own)]))
        vocabulary: dict[str, int] = self._tokens.get_vocab(with_added_tokens=True)
        self._longest = max(map(len, vocabulary), default=1)
        self.highest_token = max(vocabulary.values(), default=0)
        added = self._tokens.get_added_tokens_decoder()
        self._special = frozenset(token_id for token_id, token in added.items() if token.special)
        self._added = frozenset(added)
        decoder = self._tokens.decoder
        kind = b"" if decoder is None else decoder.__getstate__()
        self.byte_fallback = b"ByteFallback" in kind
        self._byte_level = b"ByteLevel" in kind

    @classmethod
    def load(cls, folder: Path) -> Text:
        """Read the tokenizer of a local model folder. Raises TextError when there is none."""
        from transformers import AutoTokenizer

        if not (folder / "tokenizer.json").is_file():
            raise TextError(f"{folder} holds no tokenizer.json; give a model folder with its tokenizer")
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            eos = frozenset(_eos(folder / "generation_config.json") | _eos(folder / "config.json"))
            return cls(tokenizer, eos)
        except (OSError, ValueError, AttributeError, KeyError) as error:
            raise TextError(f"the tokenizer in {folder} cannot be read ({error}); copy the folder again") from error

    def encode(self, text: str, special: bool = False, most: int | None = None) -> list[int]:
        """Token ids of ``text``, with the tokenizer's own beginning and end if ``special``.

        With ``most``, a text that must be longer than so many tokens is refused before it is looked at: PromptError.
        """
        if most is not None and len(text) > most * self._longest * COMPOSED:
            raise PromptError(
                f"the prompt has {len(text)} characters, far more than this engine's {most} tokens; shorten it",
                code=TOO_LONG,
            )
        # Unlike `encode`, the batch call lets other threads run: the engine's is one of them.
        ids: list[int] = self._tokens.encode_batch_fast([text], add_special_tokens=special)[0].ids
        return ids

    def chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The text of a conversation, up to where the model's next answer begins.

        Raises PromptError when there is no template, or it refuses the messages or has no place for the tools.
        """
        if self._template.chat_template is None:
            raise PromptError("this model has no chat template; use /v1/completions")
        if not tools:
            return self._rendered(messages, None)
        text = self._rendered(messages, tools)
        # A template without a place for them says nothing, and the model would never hear of them.
        if text == self._rendered(messages, None):
            raise PromptError(
                "the model's chat template has no place for tools in this conversation; leave them out, or describe them in a "
                "message",
                "tools",
            )
        return text

    def _rendered(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> str:
        import jinja2

        try:
            text: str = self._template.apply_chat_template(
                [dict(message) for message in messages],
                tools=None if tools is None else [dict(tool) for tool in tools],
                tokenize=False,
                add_generation_prompt=True,
            )
        except (
            jinja2.TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise PromptError(
                f"the model's chat template refuses these messages or tools: {str(error)[:300]}"
            ) from error
        return text

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        text: str = self._tokens.decode(list(token_ids), skip_special_tokens=True)
        return text

    def settled(self, token_ids: Sequence[int]) -> str:
        """The text of token ids as far as it stays the same whatever tokens follow."""
        text = self.decode(token_ids)
        return text[: self.settled_length(text)]

    def settled_length(self, text: str) -> int:
        """How much of a decoded text stays the same whatever tokens follow: all but a part of a character at its end."""
        if not text.endswith(REPLACEMENT):
            return len(text)
        # Bytes that begin no character show as one such sign each and stay so; a part of a character is the last one
        # alone. In a run of byte tokens all are signs while its last character is not complete.
        return len(text.rstrip(REPLACEMENT)) if self.byte_fallback else len(text) - 1

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, a part of a character included; a special token's name."""
        token: str | None = self._tokens.id_to_token(token_id)
        if token is None:
            return b""  # a row of the embedding without a token
        if token_id in self._added:
            return token.encode()
        if self._byte_level:
            return b"".join(BYTE_OF[letter] if letter in BYTE_OF else letter.encode() for letter in token)
        if self.byte_fallback and re.fullmatch(r"<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        return self.decode([token_id]).encode()

    def is_special(self, token_id: int) -> bool:
        """Whether the token has no part in the text."""
        return token_id in self._special


class Detokenizer:
    """The text of a growing list of tokens, the same however they are cut into pieces.

    What ends in a part of a character is held back until the rest is there. If it never comes, because the text ends
    before, the part is left out.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._window: list[int] = []  # the last tokens; decoding needs some before the new ones
        self._given = 0  # characters of the window's text that were returned

    def feed(self, token_ids: Sequence[int]) -> str:
        """Append tokens and return what is now certain."""
        if self._text.byte_fallback:
            # One bad byte spoils the whole run of byte tokens it stands in, so what is shown depends on when one looks.
            return "".join(self._more([token_id]) for token_id in token_ids)
        return self._more(token_ids)

    def _more(self, token_ids: Sequence[int]) -> str:
        self._window.extend(token_ids)
        text = self._text.decode(self._window)
        certain = self._text.settled_length(text)
        new = text[self._given : certain]
        self._given = max(self._given, certain)
        if self._given == len(text) and len(self._window) > WINDOW_TOKENS:
            self._slide()
        return new

    def _slide(self) -> None:
        context = self._window[-CONTEXT_TOKENS:]
        text = self._text.decode(context)
        # Cut inside a character, a run of byte tokens would read differently; without text, a leading space would be lost.
        if text and not (self._text.byte_fallback and REPLACEMENT in text):
            self._window, self._given = context, len(text)


class StopText:
    """Cuts a text that comes in pieces before the first of ``stops``; what could begin one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def feed(self, text: str, last: bool = False, stopped: bool = False) -> str:
        """Append a piece and return what may be shown. ``stopped``: the engine found a stop string in it."""
        text = self._held + text
        if stopped:
            places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
            self._held = ""
            return text[: min(places, default=len(text))]
        cut = len(text) if last else len(text) - self._beginning(text)
        self._held = text[cut:]
        return text[:cut]

    def _beginning(self, text: str) -> int:
        """Length of the longest end of ``text`` with which a stop string begins."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:length]):
                    longest = length
                    break
        return longest


def _eos(file: Path) -> set[int]:
    if not file.is_file():
        return set()
    found = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
    return {int(token) for token in (found if isinstance(found, list) else [found]) if token is not None}


def _byte_letters() -> dict[str, bytes]:
    """Byte-level BPE writes each byte as one printable letter: itself where it is one, else the next from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): bytes([byte]) for byte in printable}
    return letters | {chr(0x100 + place): bytes([byte]) for place, byte in enumerate(others)}


BYTE_OF: Mapping[str, bytes] = _byte_letters()
