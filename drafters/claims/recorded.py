"""``drafters claims recorded``: the answers that people, or a generator, wrote, in place of the target's own.

Same prompts and the same form as ``drafters regenerate`` writes, so that a drafter can be trained on either and the two
compared. A plain text is all answer but its beginning.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from drafters.training.conversations import Conversation, read_conversations
from drafters.training.examples import Example
from drafters.training.stage import MANIFEST, StageError, begin, finish, read_manifest, write_whole

__all__ = ["NAME", "add_arguments", "run"]

NAME = "regenerate"
"""The stage that it stands in for: trainings and captures take its folder."""
OPENING_TOKENS, CONTEXT_TOKENS = 16, 1536
NEXT = {"role": "user", "content": "."}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--corpus", type=Path, required=True, help="folder that 'drafters corpus' wrote")
    parser.add_argument("--target", type=Path, required=True, metavar="FOLDER", help="the target's Hugging Face folder")
    parser.add_argument(
        "--limit-tokens", type=int, required=True, metavar="N", help="stop after so many tokens of answers"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the stage's folder")


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Write ``examples.jsonl``. Raises StageError for a corpus without recorded answers."""
    read_manifest(options.corpus, "corpus")
    inputs = {"corpus": options.corpus / MANIFEST, "target": options.target}
    if begin(options.out, NAME, inputs, {"recorded": True, "limit_tokens": options.limit_tokens}) is not None:
        say(f"{options.out} is complete")
        return 0
    from drafters.engine.text import Text
    from drafters.training.regenerate.dialogue import spread

    text = Text.load(options.target)
    found = {each.id: each for each in read_conversations(options.corpus / "conversations.jsonl")}
    lines, tokens = [], 0
    for name in spread(list(found), [0.0], 1):  # the order in which the target answers them
        for example in _examples(found[name], text):
            lines.append(example.to_json() + "\n")
            tokens += example.answer_tokens
        if tokens >= options.limit_tokens:
            break
    if not lines:
        raise StageError(f"{options.corpus} has no recorded answer that fits; give conversations with answers")
    write_whole(options.out / "examples.jsonl", "".join(lines))
    finish(options.out, ["examples.jsonl"], {"kept_answers": len(lines), "kept_tokens": tokens})
    say(f"{tokens:,} tokens of recorded answers in {len(lines):,} examples")
    return 0


def _examples(conversation: Conversation, text: object) -> Iterator[Example]:
    """One sequence up to the last recorded answer, as far as the context goes."""
    from drafters.engine.text import Text
    from drafters.training.regenerate.dialogue import templated

    assert isinstance(text, Text)
    ids: list[int] = []
    answers: list[tuple[int, int]] = []
    if conversation.text is not None:
        ids = text.encode(conversation.text, special=True)[:CONTEXT_TOKENS]
        answers = [(OPENING_TOKENS, len(ids))] if len(ids) > OPENING_TOKENS else []
    else:
        tools = list(conversation.tools) or None
        for place, message in enumerate(conversation.messages):
            if message["role"] != "assistant" or not message.get("content"):
                continue
            prompt = text.encode(text.chat(templated(conversation.messages[:place]), tools))
            answer = text.encode(str(message["content"]))
            # the token that ends the turn is the one that the template writes before the next turn
            after = text.encode(text.chat(templated([*conversation.messages[: place + 1], NEXT]), tools))
            whole = after[: len(prompt) + len(answer) + 1]
            fits = len(whole) <= CONTEXT_TOKENS and whole[:-1] == [*prompt, *answer]
            if not fits or prompt[: len(ids)] != ids:
                break
            ids = whole
            answers.append((len(prompt), len(whole)))
    if answers:
        yield Example(
            conversation.id,
            conversation.language,
            conversation.text_type,
            conversation.split,
            tuple(ids),
            tuple(answers),
            0.0,
        )
