"""Answers amid a crowd: others join, leave and vanish between rounds, and nobody's text changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.drafters.engine.serving import Served
from tests.drafters.engine.test_server import events

PATH = "/v1/completions"
COMMON = list(range(40, 140))
"""How many prompts begin, of those who are looked at and of others, so that they find each other's work in memory."""
GREEDY: list[dict[str, Any]] = [{"temperature": 0, "drafter": drafter} for drafter in ("lookup", "tree", "table", None)]
# The table drafts less when others are there, and then a seed gives other draws: the same distribution, not the same text.
SEEDED: list[dict[str, Any]] = [
    {"temperature": temperature, "top_p": 0.95, "seed": 11 + place, "drafter": drafter}
    for place, drafter in enumerate(("lookup", "tree", None))
    for temperature in (0.7, 1.0)
]
WANTED = [
    {
        "model": "babble", "prompt": COMMON + [150 + place] * 9, "max_tokens": 150, "ignore_eos": True,
        "return_token_ids": True, "return_rounds": True, **wish,
    }
    for place, wish in enumerate([*GREEDY, *SEEDED])
]  # fmt: skip
VISITORS = 12


@dataclass(frozen=True)
class Told:
    """What a client was told, its rounds included."""

    token_ids: list[int]
    text: str
    rounds: list[dict[str, int]]

    @property
    def batches(self) -> list[int]:
        """How many requests each of its rounds decoded for."""
        return [step["batch_size"] for step in self.rounds]


def ask(served: Served, asked: Mapping[str, Any], stream: bool) -> Told:
    """One answer."""
    chunks = events(served, PATH, asked) if stream else [served.post(PATH, asked)]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return Told(
        [token for choice in choices for token in choice.get("token_ids", ())],
        "".join(choice["text"] for choice in choices),
        chunks[-1]["metrics"]["rounds"],
    )


async def visit(served: Served, chance: random.Random) -> None:
    """Ask for something, and be gone when it is there, after a while, or at once; sometimes without a goodbye."""
    prompt = COMMON[: chance.choice([0, 50, 100])] + [
        chance.randrange(3, 200) for _ in range(chance.choice([3, 60, 900]))
    ]
    asked = {
        "model": "babble", "prompt": prompt, "max_tokens": chance.choice([1, 20, 400]),
        "temperature": chance.choice([0, 1]), "seed": chance.choice([None, 11, 12]), "ignore_eos": True,
        "drafter": chance.choice(["lookup", "tree", "table", None]), "stream": chance.random() < 0.5,
        "stop": chance.choice([[], ["zzz"]]),
    }  # fmt: skip
    body = json.dumps(asked).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection(*served.address)
    writer.write(head + body)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(chance.choice([0.0, 0.02, 0.1, 0.5])):
            while await reader.read(4096):
                pass
    if chance.random() < 0.5:
        linger = struct.pack("ii", 1, 0)  # a reset instead of a goodbye
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()


async def amid_a_crowd(served: Served, seed: int) -> list[Told]:
    """All that is wanted at once, every second one as a stream, while visitors come and go until the last is there."""
    done = asyncio.Event()

    async def visitor(number: int) -> None:
        chance = random.Random(seed + number)
        while not done.is_set():
            await visit(served, chance)

    visitors = [asyncio.create_task(visitor(number)) for number in range(VISITORS)]
    try:
        wanted = (asyncio.to_thread(ask, served, asked, place % 2 == 0) for place, asked in enumerate(WANTED))
        return await asyncio.gather(*wanted)
    finally:
        done.set()
        await asyncio.gather(*visitors)


def test_a_crowd_around_a_request_changes_neither_its_tokens_nor_its_text(babble: Served) -> None:
    """Greedy with every drafter, and sampled with a seed: what was said alone is said again token for token, beside requests
    with drafts and prompts of other lengths, prefixes found in memory, and clients that are gone in the middle of it."""
    babble.settled()
    babble.post("/reset_prefix_cache")
    alone = [ask(babble, asked, stream=False) for asked in WANTED]
    assert {size for told in alone for size in told.batches} == {1}
    assert len({tuple(told.token_ids) for told in alone[len(GREEDY) :]}) == len(SEEDED)  # each seed its own text
    for seed in (100, 200):
        crowded = asyncio.run(amid_a_crowd(babble, seed))
        assert [told.token_ids for told in crowded] == [told.token_ids for told in alone]
        assert [told.text for told in crowded] == [told.text for told in alone]
        assert all(max(told.batches) > 1 for told in crowded)
        first = min(told.rounds[0]["round_index"] for told in crowded)
        page = babble.get(f"/rounds?since={first}")["rounds"]
        joined = {step["round_index"] for step in page if step["prefill_tokens"]}
        # Nobody was left alone, and beside most of them prompts of others were read.
        beside = [bool(joined & {step["round_index"] for step in told.rounds}) for told in crowded]
        assert sum(beside) > len(WANTED) // 2
        assert babble.settled()["owned_tokens"] == 0
