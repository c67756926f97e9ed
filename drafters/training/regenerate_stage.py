"""``drafters regenerate``: the target answers the corpus itself, since drafters learn best from what it would write."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafters.training.conversations import Conversation, read_conversations
from drafters.training.stage import MANIFEST, StageError, begin, finish, read_manifest, write_whole

if TYPE_CHECKING:
    from drafters.engine.config import EngineConfig
    from drafters.training.regenerate.dialogue import Rules
    from drafters.training.regenerate.work import Work

NAME = "regenerate"
HELP = (
    "let the target answer the corpus itself: prompts and tool results stay, its answers take the place of the recorded"
)
EXAMPLES, REPORT = "examples.jsonl", "report.json"
DEFAULT_CONTEXT = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the stage's options."""
    parser.add_argument("--corpus", type=Path, required=True, help="folder that 'drafters corpus' wrote")
    parser.add_argument(
        "--target", type=Path, help="the target's local Hugging Face folder: the builtin engine answers"
    )
    parser.add_argument("--weights", choices=("plain", "rtn4", "nf4"), default="plain", help="of --target: as deployed")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float64"), default="float32", help="of --target")
    parser.add_argument("--device", default="cpu", help="of --target")
    parser.add_argument("--threads", type=int, default=None, help="of --target; default: all of this process")
    parser.add_argument("--base-url", help="an OpenAI-compatible server that runs the target, instead of --target")
    parser.add_argument("--model", help="the server's name for the target")
    parser.add_argument("--tokenizer", type=Path, help="folder with the tokenizer of the target that the server runs")
    parser.add_argument("--endpoint", choices=("completions", "chat"), default="completions", help="of the server")
    parser.add_argument("--api-key-env", help="environment variable that holds the server's key")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one answer of the server")
    parser.add_argument("--retries", type=int, default=5, help="on 429, 502, 503, 504 and lost connections")
    parser.add_argument(
        "--temperature",
        type=float,
        nargs="+",
        action="extend",
        help="several times: conversations are spread (default: 0)",
    )
    parser.add_argument("--max-tokens", type=int, default=200, help="of one answer")
    parser.add_argument("--concurrency", type=int, default=16, help="conversations in progress")
    parser.add_argument(
        "--context-tokens", type=int, help=f"of prompt and answer (default: {DEFAULT_CONTEXT}, or fewer)"
    )
    parser.add_argument("--limit-tokens", type=int, help="stop after so many tokens of kept answers")
    parser.add_argument("--keep-repetition", action="store_true", help="keep answers that loop")
    parser.add_argument("--max-failures", type=float, default=0.1, help="share of conversations that may fail")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Regenerate. Raises StageError, TargetError or what a full disk gives; what was answered stays for the next try."""
    _check(options)
    if options.target:
        _engine_config(options)
    read_manifest(options.corpus, "corpus")
    inputs = {"corpus": options.corpus / MANIFEST, **_inputs(options)}
    done = begin(options.out, NAME, inputs, _settings(options))
    if done is not None:
        (options.out / "partial.jsonl").unlink(missing_ok=True)  # a kill between the manifest and the end leaves it
        say(f"{options.out} is done: {done.counts['kept_answers']:,} answers, {done.counts['kept_tokens']:,} tokens")
        return 0
    from drafters.training.regenerate.results import Results
    from drafters.training.regenerate.work import Work

    conversations = _conversations(options.corpus)
    results = Results(options.out)
    try:
        work = Work(options, conversations, results, say)
        facts = _answer(options, work, say)
        _write(options, work, facts, say)
    finally:
        results.close()
    results.path.unlink(missing_ok=True)
    return 0


def _answer(options: argparse.Namespace, work: Work, say: Callable[[str], None]) -> dict[str, Any]:
    """Let everything be answered that is not yet; return facts for the report."""
    if options.target:
        return _answer_locally(options, work, say)
    return asyncio.run(_answer_by_server(options, work, say))


def _answer_locally(options: argparse.Namespace, work: Work, say: Callable[[str], None]) -> dict[str, Any]:
    from drafters.engine.assembly import assemble
    from drafters.engine.text import TextError
    from drafters.training.regenerate.answers_local import answer_locally

    config = _engine_config(options)
    try:
        engine = assemble(config, progress=say)
    except TextError as error:
        raise StageError(str(error)) from error
    highest, vocab = engine.text.highest_token, engine.runner.target.vocab_size
    if highest >= vocab:
        raise StageError(
            f"the tokenizer in {options.target} has tokens up to {highest}, the model {vocab} rows: they belong to different "
            "models; copy the folder again"
        )
    dialogues = work.dialogues(engine.text, _rules(options, engine.config.context_tokens))
    answer_locally(engine.runner, engine.text, dialogues, options.concurrency, work.ended)
    return {"tokens_from": "engine", "context_tokens": engine.config.context_tokens, "model": engine.facts["model"]}


def _engine_config(options: argparse.Namespace) -> EngineConfig:
    """Raises StageError for what the engine does not allow."""
    from pydantic import ValidationError

    from drafters.engine.config import EngineConfig

    names = {"max_sequences": "concurrency"}
    try:
        return EngineConfig(
            model=options.target,
            dtype=options.dtype,
            weights=options.weights,
            device=options.device,
            threads=options.threads or len(os.sched_getaffinity(0)),
            max_sequences=options.concurrency,
            context_tokens=options.context_tokens or DEFAULT_CONTEXT,
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        option = names.get(key, key).replace("_", "-")
        said = first["msg"]
        raise StageError(f"--{option} is {first['input']!r:.80}: {said[:1].lower()}{said[1:]}") from error


async def _answer_by_server(options: argparse.Namespace, work: Work, say: Callable[[str], None]) -> dict[str, Any]:
    from drafters.engine.text import Text, TextError
    from drafters.training.regenerate.answers_http import Server, answer_by_server
    from drafters.training.regenerate.connection import Connection

    key = None
    if options.api_key_env:
        key = os.environ.get(options.api_key_env)
        if not key:
            raise StageError(f"--api-key-env {options.api_key_env}: no such variable is set; export it")
    try:
        text = Text.load(options.tokenizer)
    except TextError as error:
        raise StageError(str(error)) from error
    async with Connection(options.base_url, key, options.timeout, options.retries, options.concurrency) as connection:
        server = Server(connection, options.model, text, options.endpoint)
        length = await server.check()
        context = min(options.context_tokens or DEFAULT_CONTEXT, length or options.context_tokens or DEFAULT_CONTEXT)
        source = "server" if server.reports_tokens else "tokenizer"
        how = "its own tokens are taken" if server.reports_tokens else "its texts are tokenized here"
        say(f"{connection.url} answers; {how}; context {context:,} tokens")
        dialogues = work.dialogues(text, _rules(options, context))
        await answer_by_server(server, dialogues, options.concurrency, work.ended)
    return {"tokens_from": source, "context_tokens": context, "server": connection.url}


def _write(options: argparse.Namespace, work: Work, facts: dict[str, Any], say: Callable[[str], None]) -> None:
    from drafters.training.regenerate.report import summary
    from drafters.training.regenerate.work import FAILURES, write_failures

    if work.failures and work.too_many_failed():
        work.refuse()
    chosen = work.chosen()
    report = {**summary(work.results.records(chosen)), "failed": len(work.failures), **facts}
    if not report["examples"]:
        raise StageError(
            f"no answer of {len(chosen)} conversations can be learnt from (ended: {report['ended']}); give other conversations, "
            "a larger --context-tokens, or --keep-repetition where answers loop, and another --out"
        )
    write_whole(options.out / EXAMPLES, work.results.example_lines(chosen))
    write_failures(options.out, work.failures)
    write_whole(options.out / REPORT, json.dumps(report, ensure_ascii=False, indent=2) + "\n")
    counts = {key: value for key, value in report.items() if not key.startswith("by_")}
    finish(options.out, [EXAMPLES, FAILURES, REPORT], counts)
    left = {key: value for key, value in report["ended"].items() if key != "all"}
    say(
        f"{report['kept_answers']:,} answers, {report['kept_tokens']:,} tokens in {report['examples']:,} examples; "
        f"{report['looping']} of {report['answers']} answers loop, {report['finish'].get('length', 0)} were cut at "
        f"--max-tokens, {len(work.failures)} conversations failed" + (f"; ended early: {left}" if left else "")
    )


def _conversations(corpus: Path) -> dict[str, Conversation]:
    found: dict[str, Conversation] = {}
    for conversation in read_conversations(corpus / "conversations.jsonl"):
        if conversation.id in found:
            raise StageError(
                f"{corpus}/conversations.jsonl has two conversations {conversation.id!r}; make the corpus again"
            )
        found[conversation.id] = conversation
    if not found:
        raise StageError(f"{corpus} holds no conversation; give 'drafters corpus' more to read")
    return found


def _rules(options: argparse.Namespace, context_tokens: int) -> Rules:
    from drafters.training.regenerate.dialogue import Rules

    return Rules(options.max_tokens, context_tokens, options.seed, options.keep_repetition)


def _inputs(options: argparse.Namespace) -> dict[str, Path]:
    """The target; of one that a server runs, the files that make texts of tokens and prompts of messages."""
    if options.target:
        return {"target": options.target}
    files = {
        "tokenizer": "tokenizer.json",
        "tokenizer_config": "tokenizer_config.json",
        "chat_template": "chat_template.jinja",
        "generation_config": "generation_config.json",
    }
    return {name: options.tokenizer / file for name, file in files.items() if (options.tokenizer / file).is_file()}


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What decides the answers; the rest only how fast they come."""
    shared = {
        name: getattr(options, name)
        for name in ("max_tokens", "context_tokens", "limit_tokens", "keep_repetition", "seed")
    }
    own = ("weights", "dtype") if options.target else ("model", "endpoint")
    return {
        "temperature": options.temperature or [0.0],
        **shared,
        **{name: getattr(options, name) for name in own},
    }


def _check(options: argparse.Namespace) -> None:
    if (options.target is None) == (options.base_url is None):
        raise StageError("give either --target, a local folder, or --base-url, a server that runs it")
    if options.base_url and not (options.model and options.tokenizer):
        raise StageError("--base-url needs --model, the server's name for the target, and --tokenizer, its folder")
    folder = options.target or options.tokenizer
    if not (folder / "tokenizer.json").is_file():
        raise StageError(f"{folder} holds no tokenizer.json; give the target's local Hugging Face folder")
    for name in ("max_tokens", "concurrency", "context_tokens", "limit_tokens", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise StageError(f"--{name.replace('_', '-')} is {value}; allowed: 1 or more")
    if options.retries < 0 or not options.timeout > 0:
        raise StageError(f"--retries {options.retries}, --timeout {options.timeout}; allowed: 0 or more, above 0")
    if not 0 <= options.max_failures <= 1:
        raise StageError(f"--max-failures is {options.max_failures}; allowed: a share from 0 to 1")
    for temperature in options.temperature or ():
        if not (math.isfinite(temperature) and 0 <= temperature <= 2):
            raise StageError(f"--temperature is {temperature}; allowed: 0 to 2")
