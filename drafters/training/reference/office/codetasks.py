"""Coding dialogues from real functions: a file is read, one thing is changed, the function comes back with the change."""

from __future__ import annotations

import ast
import random
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drafters.training.reference.office.dialogues import Turns, new_document
from drafters.training.reference.office.grammar import Document, load_lists
from drafters.training.reference.office.toolset import draw_tool, system_text

NEW_NAMES = (
    "result",
    "value",
    "current",
    "buffer",
    "entry",
    "limit",
    "index",
    "payload",
    "options",
    "target",
    "record",
    "name",
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function's source, dedented to its own level of nesting, and the line it begins at."""

    name: str
    lines: tuple[str, ...]
    first: int


def functions(source: str, longest: int = 26) -> list[Function]:
    """Return the short functions of a Python file; of text that is no Python, none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the corpus are the corpus's own affair
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = source.split("\n")
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
            body = tuple(lines[node.lineno - 1 : node.end_lineno])
            if 4 <= len(body) <= longest and max(map(len, body)) < 110:
                found.append(Function(node.name, body, node.lineno))
    return found


def code_dialogue(pool: Sequence[Function], rng: random.Random) -> Turns | None:
    """Make one dialogue about one function of ``pool``, in English or Korean; nothing if the change does not fit it."""
    function = rng.choice(pool)
    source = "\n".join(function.lines)
    change = _rename(source, rng) if rng.random() < 0.5 else _constant(source, rng)
    if change is None:
        return None
    old, new, changed = change
    language = rng.choice(["ko", "en"])
    words = load_lists("phrases")
    document = new_document(rng)
    path = document.expand("$path1").rsplit(".", 1)[0] + ".py"
    document.bound |= {"function": function.name, "old": old, "new": new, "path": path}
    kinds = ["read_file", "search_code", "apply_patch", "run_tests"]
    tools = {kind: draw_tool(kind, language == "ko", rng) for kind in kinds}
    shown = rng.sample(list(tools.values()), len(tools))
    said = words["code"][language]
    turns = [("system", system_text(document.pick(words["code_systems"][language]), shown, rng))]
    turns.append(("user", document.pick(said["ask"])))
    if rng.random() < 0.35:
        turns += [("assistant", document.pick(said["plan"])), ("user", document.pick(said["go"]))]
    last = function.first + len(function.lines) - 1
    turns.append(("assistant", tools["read_file"].call({"path": path, "start": str(function.first), "end": str(last)})))
    numbered = "\n".join(f"{function.first + index} {line}" for index, line in enumerate(function.lines))
    turns.append(("user", f"<tool_response>\n{rng.choice([source, numbered])}\n</tool_response>"))
    draw = rng.random()
    if draw < 0.6:
        turns.append(("assistant", f"```python\n{changed}\n```" if rng.random() < 0.5 else changed))
    elif draw < 0.75:
        turns.append(("assistant", "```diff\n" + _diff(function, changed.split("\n")) + "\n```"))
    else:
        before, after = _differing(function.lines, changed.split("\n"))
        call = tools["apply_patch"].call({"path": path, "search": before, "replace": after})
        turns += [("assistant", call), ("user", f"<tool_response>\nok: {path}, 1 change\n</tool_response>")]
        turns.append(("assistant", tools["run_tests"].call({"target": path})))
        turns += _tested(document, said)
    if rng.random() < 0.2:
        turns += [("user", document.pick(said["commit"])), ("assistant", document.pick(said["message"]))]
    return tuple(turns)


def _tested(document: Document, said: Mapping[str, list[str]]) -> Turns:
    rng = document.rng
    passed, failed = rng.randrange(2, 60), rng.choice([0, 0, 0, 1, 2])
    seconds = rng.randrange(10, 900) / 100
    where = f"tests/test_{document.bound['path'].rsplit('/', 1)[-1]}:{rng.randrange(10, 300)}"
    document.bound |= {"passed": str(passed), "failed": str(failed), "where": where}
    log = f"{passed} passed in {seconds}s"
    text = document.pick(said["done"])
    if failed:
        log = f"FAILED {where} assert {document.bound['old']}\n{failed} failed, {log}"
        text += " " + document.pick(said["failure"])
    return (("user", f"<tool_response>\n{log}\n</tool_response>"), ("assistant", text))


def _diff(function: Function, changed: Sequence[str]) -> str:
    lines = [f"@@ -{function.first},{len(function.lines)} +{function.first},{len(changed)} @@"]
    for old, new in zip(function.lines, changed, strict=True):
        lines += [f" {old}"] if old == new else [f"-{old}", f"+{new}"]
    return "\n".join(lines)


def _rename(source: str, rng: random.Random) -> tuple[str, str, str] | None:
    names = sorted({name for name in re.findall(r"(?<![\w.])([a-z_][a-z_0-9]{2,})(?= = )", source) if name != "self"})
    if not names:
        return None
    old = rng.choice(names)
    new = rng.choice([name for name in NEW_NAMES if name != old]) + rng.choice(["", "", "_text", "_list", "s"])
    if re.search(rf"\b{new}\b", source):
        return None
    return old, new, re.sub(rf"(?<![\w.]){re.escape(old)}\b", new, source)


def _constant(source: str, rng: random.Random) -> tuple[str, str, str] | None:
    found = list(
        re.finditer(r"(?<![\w.'\"])(\d{1,5}|'[a-zA-Z_ ]{2,20}'|\"[a-zA-Z_ ]{2,20}\"|True|False)(?![\w.'\"])", source)
    )
    if not found:
        return None
    match = rng.choice(found)
    old = match.group(1)
    if old in ("True", "False"):
        new = "False" if old == "True" else "True"
    elif old.isdigit():
        new = str(rng.randrange(2, 200))
    else:
        new = old[0] + rng.choice(["default", "unknown", "pending", "ready", "utf8", "none"]) + old[-1]
    if new == old or source.count(old) != 1:
        return None
    return old, new, source[: match.start(1)] + new + source[match.end(1) :]


def _differing(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    return pairs[0][0].strip(), pairs[0][1].strip()
