"""Find the parts that must be ordered."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One part in the store."""

    code: str
    on_hand: int
    minimum: int
    price: float


def to_order(parts: list[Part], reserve: float = 1.2) -> dict[str, int]:
    """Return how many of each part are missing, a reserve included."""
    missing: dict[str, int] = {}
    for part in parts:
        wanted = round(part.minimum * reserve)
        if part.on_hand < part.minimum:
            missing[part.code] = wanted - part.on_hand
    return missing


def order_value(parts: list[Part], missing: dict[str, int]) -> float:
    """Return the price of an order."""
    prices = {part.code: part.price for part in parts}
    return sum(prices[code] * count for code, count in missing.items())
