"""The processes of one training: started by ``torchrun``, or this one alone.

Gradients are summed by hand instead of by DistributedDataParallel, which takes their mean: the loss is the sum over all
processes divided by a weight that is known only after the forward passes, and a process may have fewer batches in a step
than its neighbour, or none.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from drafters.training.stage import StageError

__all__ = ["World"]

Some = TypeVar("Some")


class World:
    """Rank and size, and the few things that processes tell one another."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank

    @classmethod
    def join(cls) -> World:
        """Take what ``torchrun`` says in the environment and meet the others; alone without it."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend)
        return cls(int(os.environ["RANK"]), size, int(os.environ.get("LOCAL_RANK", "0")))

    def leave(self) -> None:
        """Part from the others."""
        if self.size > 1:
            dist.destroy_process_group()

    def share(self, parts: Sequence[Some]) -> list[tuple[int, Some]]:
        """This process's parts of a step, with their places among all."""
        return [(place, part) for place, part in enumerate(parts) if place % self.size == self.rank]

    def sum(self, values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
        """Add up over the processes, name by name; a name that a process lacks counts as zeros there."""
        if self.size == 1:
            return {name: list(numbers) for name, numbers in values.items()}
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, {name: list(numbers) for name, numbers in values.items()})
        total: dict[str, list[float]] = defaultdict(list)
        for one in gathered:
            for name, numbers in one.items():
                known = total[name] or [0.0] * len(numbers)
                total[name] = [a + b for a, b in zip(known, numbers, strict=True)]
        return dict(total)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over the processes; one that is missing counts as zeros, and is made."""
        held = list(parameters)
        for parameter in held:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.size == 1 or not held:
            return
        gradients = [parameter.grad for parameter in held if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])  # one message instead of one a tensor
        dist.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, summed in zip(gradients, parts, strict=True):
            gradient.copy_(summed.view_as(gradient))

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the first one's values, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def first(self, work: Callable[[], Some]) -> Some:
        """Let the first process alone do something, and give its result to all.

        Where it fails, the others do not wait for it: there its error is a StageError that says the same.
        """
        if self.size == 1:
            return work()
        told: list[Any] = [None, None]
        if self.rank == 0:
            try:
                told[0] = work()
            except Exception as error:
                told[1] = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
                dist.broadcast_object_list(told, 0)
                raise
        dist.broadcast_object_list(told, 0)
        if told[1] is not None:
            raise StageError(f"the first process failed: {told[1]}")
        result: Some = told[0]
        return result
