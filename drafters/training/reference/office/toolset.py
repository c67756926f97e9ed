"""Tools of one dialogue: schemas with names drawn anew, and calls that fit them, written as the instrument writes them."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drafters.training.reference.office.grammar import load_lists
from drafters.training.reference.tokenizer import TOOL_INTRODUCTION, TOOL_USAGE

VERBS = ("get", "find", "list", "create", "update", "delete", "check", "send", "register", "export", "cancel", "assign")
NOUNS = (
    "invoice", "contract", "vehicle", "visitor", "meeting", "training", "budget_line", "shipment", "warranty", "expense",
    "leave", "asset", "campaign", "candidate", "survey", "certificate", "permit", "quote", "backup", "alert", "room",
    "payroll", "parcel", "audit", "holiday", "badge", "license", "proposal", "delivery", "inspection",
)  # fmt: skip
NOUNS_KO = (
    "청구서", "계약", "차량", "방문객", "회의", "교육", "예산 항목", "출하", "보증", "경비",
    "휴가", "자산", "캠페인", "지원자", "설문", "인증서", "허가", "견적", "백업", "경보", "회의실",
    "급여", "소포", "감사", "휴일", "출입증", "라이선스", "제안서", "배송", "점검",
)  # fmt: skip
VERBS_KO = ("조회", "찾기", "목록", "생성", "수정", "삭제", "확인", "발송", "등록", "내보내기", "취소", "배정")
HELD_OUT_NAMES = 0.1


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of one dialogue: its OpenAI function schema and the parameter name of each role."""

    schema: Mapping[str, Any]
    parameters: Mapping[str, str]
    required: tuple[str, ...]

    def call(self, values: Mapping[str, str]) -> str:
        """Write a call from values by role; roles that the schema lacks are left out."""
        arguments = {
            self.parameters[role]: typed(role, value) for role, value in values.items() if role in self.parameters
        }
        text = json.dumps(arguments, ensure_ascii=False)
        return f'<tool_call>{{"name": {json.dumps(self.schema["name"])}, "arguments": {text}}}</tool_call>'


def typed(role: str, value: str) -> Any:
    """Return a value as its role's JSON type."""
    kind = load_lists("tools")["roles"][role]["type"]
    if kind == "integer":
        return int(value)
    if kind == "number":
        return float(value) if "." in value else int(value)
    if kind == "boolean":
        return value == "true"
    return value.split(", ") if kind == "array" else value


def draw_tool(kind: str, korean: bool, rng: random.Random) -> Tool:
    """Draw names for a tool of the list."""
    entry = load_lists("tools")["tools"][kind]
    description = rng.choice(entry["ko" if korean else "en"])
    return _tool(rng.choice(entry["names"]), description, entry["roles"], rng)


def invent_tool(korean: bool, held_out: bool, rng: random.Random) -> Tool:
    """Make a tool that no list holds; a tenth of the possible names is kept for evaluation."""
    roles = [role for role in load_lists("tools")["roles"] if role not in ("search", "replace")]
    while True:
        verb, noun = rng.randrange(len(VERBS)), rng.randrange(len(NOUNS))
        name = f"{VERBS[verb]}_{NOUNS[noun]}"
        if is_held_out_name(name) == held_out:
            break
    chosen = rng.sample(roles, rng.randrange(1, 5))
    marked = [role + ("!" if index == 0 or rng.random() < 0.5 else "") for index, role in enumerate(chosen)]
    english = f"{VERBS[verb].capitalize()} a {NOUNS[noun].replace('_', ' ')}."
    return _tool(name, f"{NOUNS_KO[noun]} {VERBS_KO[verb]}" if korean else english, marked, rng)


def is_held_out_name(name: str) -> bool:
    """Tell whether an invented tool of this name is for evaluation only."""
    return hashlib.sha256(name.encode()).digest()[0] < HELD_OUT_NAMES * 256


def _tool(name: str, description: str, marked: Sequence[str], rng: random.Random) -> Tool:
    roles = load_lists("tools")["roles"]
    parameters: dict[str, str] = {}
    properties: dict[str, Any] = {}
    required = []
    for mark in marked:
        role = mark.rstrip("!")
        free = [candidate for candidate in roles[role]["names"] if candidate not in properties]
        parameter = rng.choice(free or [role])
        parameters[role] = parameter
        schema: dict[str, Any] = {"type": roles[role]["type"]}
        if schema["type"] == "array":
            schema["items"] = {"type": "string"}
        if "enum" in roles[role]:
            schema["enum"] = roles[role]["enum"]
        properties[parameter] = schema
        if mark.endswith("!"):
            required.append(role)
    function = {
        "name": name,
        "description": description,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": [parameters[role] for role in required],
        },
    }
    return Tool(function, parameters, tuple(required))


def system_text(words: str, tools: Sequence[Tool], rng: random.Random) -> str:
    """Write a system prompt with its tools; now and then with the spaces that a chat template's ``tojson`` puts."""
    separators = (", ", ": ") if rng.random() < 0.25 else (",", ":")
    lines = [json.dumps(tool.schema, ensure_ascii=False, separators=separators) for tool in tools]
    return "\n".join([words, "", TOOL_INTRODUCTION, *lines, TOOL_USAGE])
