"""Agent dialogues from scenario lists: the turns of a task, with calls and results in the form of the instrument."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from drafters.training.reference.office.facts import MAKERS, add_table
from drafters.training.reference.office.grammar import Document, load_lists
from drafters.training.reference.office.toolset import Tool, draw_tool, invent_tool, system_text

Turns = tuple[tuple[str, str], ...]


def new_document(rng: random.Random) -> Document:
    """Return an empty document whose English first and full names belong together."""
    document = Document(rng, MAKERS)
    for number in "12":
        first = document.expand(f"$first_en{number}")
        document.bound[f"name_en{number}"] = document.expand(f"{first} $last_en")
    return document


def office_text(rng: random.Random, held_out: bool, document: Document | None = None) -> str:
    """Write one office document from the list of forms."""
    forms = [form for form in load_lists("documents")["documents"] if form.get("held_out", False) == held_out]
    form = rng.choice(forms)
    document = document or new_document(rng)
    if "table" in form:
        add_table(document, rng.choice([form["table"], "machine", "branch", "region", "product"]))
    parts = [document.pick(part) for part in form["parts"]]
    return rng.choice(["\n", "\n", "\n\n"]).join(parts)


def scenario_dialogue(language: str, held_out: bool, rng: random.Random) -> Turns:
    """Play one scenario of ``scenarios_ko`` or ``scenarios_en`` with facts drawn anew."""
    lists = load_lists(f"scenarios_{language}")
    scenario = rng.choice([item for item in lists["scenarios"] if item.get("held_out", False) == held_out])
    document = new_document(rng)
    document.bound["amount1"] = str(rng.randrange(50, 9000) * 100)
    if "table" in scenario:
        add_table(document, rng.choice(scenario["table"]), english=language == "en")
    if scenario.get("document"):
        _bind_document(document, rng, held_out)
    korean = language == "ko"
    tools = {kind: draw_tool(kind, korean, rng) for kind in scenario["tools"]}
    shown = list(tools.values())
    taken = {tool.schema["name"] for tool in shown}
    for _ in range(rng.randrange(0, 3)):
        other = invent_tool(korean, held_out, rng)
        if other.schema["name"] not in taken:
            taken.add(other.schema["name"])
            shown.append(other)
    rng.shuffle(shown)
    turns = [("system", system_text(document.pick(lists["systems"][scenario["system"]]), shown, rng))]
    for step in scenario["steps"]:
        turns.append(("user", _asked(step, document)))
        turns.append(("assistant", _answered(step, document, tools, "\n".join(text for _, text in turns))))
        if rng.random() < 0.04:
            break
    return tuple(turns)


def _asked(step: Mapping[str, Any], document: Document) -> str:
    parts = [_response(document.pick(step[key])) for key in ("result", "result2") if key in step]
    if "user" in step:
        parts.append(document.pick(step["user"]))
    return "\n\n".join(parts)


def _answered(step: Mapping[str, Any], document: Document, tools: Mapping[str, Tool], said: str) -> str:
    if "answer" in step:
        return document.pick(step["answer"])
    calls = step["call"] if isinstance(step["call"], list) else [step["call"]]
    lines = []
    for call in calls:
        ((kind, values),) = call.items()
        tool = tools[kind]
        filled = {
            role: document.pick(value if isinstance(value, list) else str(value)) for role, value in values.items()
        }
        # an optional value that nobody mentioned could only be guessed
        known = {
            role: value for role, value in filled.items() if role in tool.required or value in said or len(value) > 12
        }
        lines.append(tool.call(known))
    return "\n".join(lines)


def _bind_document(document: Document, rng: random.Random, held_out: bool) -> None:
    text = office_text(rng, held_out)
    sections = [line for line in text.split("\n") if line.strip()]
    section = rng.choice(sections)
    words = section.strip().split(" ")
    document.bound |= {
        "doc": text,
        "doc_head": "\n".join(sections[:3]),
        "doc_tail": "\n".join(sections[-3:]),
        "doc_section": section.strip(),
        "doc_mark": " ".join(words[: min(3, len(words))]),
    }


def tool_request(language: str, held_out: bool, rng: random.Random) -> Turns:
    """Ask for calls of invented tools, one after the other, with every value in the request, and report their results."""
    korean = language == "ko"
    words = load_lists("phrases")
    document = new_document(rng)
    tools: dict[str, Tool] = {}
    while len(tools) < 3 or (len(tools) < 6 and rng.random() < 0.5):
        tool = invent_tool(korean, held_out, rng)
        tools[tool.schema["name"]] = tool
    turns = [("system", system_text(document.pick(words["systems"][language]), list(tools.values()), rng))]
    for _ in range(rng.randrange(2, 6)):
        tool = rng.choice(list(tools.values()))
        values = _values(tool, words["samples"][language], document)
        said = [load_lists("tools")["roles"][role][language].replace("$v", value) for role, value in values.items()]
        document.bound |= {
            "task": tool.schema["description"].rstrip("."),
            "said": ", ".join(said),
            "ref": document.expand("$code"),
            "value": next(iter(values.values())),
        }
        turns += [("user", document.pick(words["requests"][language])), ("assistant", tool.call(values))]
        result = {tool.parameters[role]: value for role, value in values.items()} | {"ref": document.bound["ref"]}
        as_json = json.dumps(result, ensure_ascii=False)
        shown = as_json if rng.random() < 0.6 else "\n".join(f"{key}: {value}" for key, value in result.items())
        turns += [("user", _response(shown)), ("assistant", document.pick(words["reports"][language]))]
    return tuple(turns)


def _values(tool: Tool, samples: Mapping[str, str], document: Document) -> dict[str, str]:
    rng = document.rng
    chosen = [role for role in tool.parameters if role in tool.required or rng.random() < 0.6]
    values = {role: document.expand(samples[role]) for role in chosen}
    if "status" in values:
        values["status"] = rng.choice(load_lists("tools")["roles"]["status"]["enum"])
    return values


def _response(text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


def quotation(language: str, passages: Sequence[str], rng: random.Random) -> Turns | None:
    """Show lines of a real text as a tool result and ask for some of them word for word."""
    lines = [line for line in rng.choice(passages).split("\n") if len(line.strip()) > 15]
    if len(lines) < 4:
        return None
    begin = rng.randrange(0, len(lines) - 3)
    shown = [line.strip()[:300] for line in lines[begin : begin + rng.randrange(3, 8)]]
    if len(set(shown)) < len(shown):
        return None  # repeated lines would teach loops
    words = load_lists("phrases")
    asks = words["quotes"][language]
    document = new_document(rng)
    kinds = rng.sample(["search_documents", "search_policy", "search_notes", "search_mail", "read_file"], 3)
    tools = [draw_tool(kind, language == "ko", rng) for kind in kinds]
    turns = [("system", system_text(document.pick(words["systems"][language]), tools, rng))]
    chosen = rng.choice(shown)
    mark = " ".join(chosen.split(" ")[:2])
    answers = {
        "line": chosen,
        "first": "\n".join(shown[:2]),
        "last": f'"{shown[-1]}"',
        "list": "\n".join(f"- {line}" for line in shown),
    }
    result = _response("\n".join(shown)) + "\n\n"
    for kind in rng.sample(sorted(answers), rng.randrange(1, 4)):
        # the text of a corpus may hold a dollar sign: only the question is a template
        turns += [("user", result + rng.choice(asks[kind]).replace("$mark", mark)), ("assistant", answers[kind])]
        result = ""
    return tuple(turns)


def essay(rng: random.Random) -> str | Turns:
    """Write an essay paragraph by paragraph, plain or in a dialogue; no sentence comes twice."""
    lists = load_lists("essays")
    document = new_document(rng)
    words = {key: value for key, value in lists.items() if key not in ("sentences", "asks", "system", "notes")}
    document.add_lists(words)
    order = rng.sample(lists["sentences"], len(lists["sentences"]))
    paragraphs: list[str] = []
    while len(order) > 4 and len(paragraphs) < 4:
        size = rng.randrange(3, 7)
        paragraphs.append(" ".join(document.expand(sentence) for sentence in order[:size]))
        order = order[size:]
    if rng.random() < 0.4:
        return "\n\n".join(paragraphs)
    tools = [draw_tool(kind, True, rng) for kind in ("search_notes", "save_version")]
    turns = [("system", system_text(document.pick(lists["system"]), tools, rng))]
    for index, paragraph in enumerate(paragraphs):
        ask = document.pick(lists["asks"])
        note = (
            f"<tool_response>\n{document.pick(lists['notes'])}\n</tool_response>\n\n"
            if index and rng.random() < 0.3
            else ""
        )
        turns += [("user", note + ask), ("assistant", paragraph)]
    return tuple(turns)
