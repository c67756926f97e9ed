"""A small service for orders, kept in memory."""

from dataclasses import asdict, dataclass, field
from itertools import count

numbers = count(1)


@dataclass
class Order:
    """One order of a customer."""

    customer: str
    lines: dict[str, int]
    number: int = field(default_factory=lambda: next(numbers))
    status: str = "new"


class Orders:
    """All orders by number."""

    def __init__(self) -> None:
        self._orders: dict[int, Order] = {}

    def add(self, customer: str, lines: dict[str, int]) -> Order:
        """Take an order."""
        if not lines:
            raise ValueError("an order needs at least one line")
        order = Order(customer, lines)
        self._orders[order.number] = order
        return order

    def ship(self, number: int) -> dict[str, object]:
        """Mark an order as shipped and return it as a plain dictionary."""
        order = self._orders[number]
        if order.status != "new":
            raise ValueError(f"order {number} is already {order.status}")
        order.status = "shipped"
        return asdict(order)
