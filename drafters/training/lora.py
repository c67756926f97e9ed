"""Low-rank changes of linear maps (LoRA, arXiv 2106.09685): W + (alpha / rank) · B · A with W as it was."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

__all__ = ["LoraLinear", "adapt", "merged"]


class LoraLinear(nn.Module):
    """A linear map without bias whose weight stays; trained are ``down`` [rank, in] and ``up`` [out, rank], which
    begins at zero, so that nothing is changed at first."""

    def __init__(self, weight: Tensor, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        self.weight: Tensor
        self.register_buffer("weight", weight.detach().clone())
        drawn = torch.randn((rank, weight.shape[1]), generator=generator) / weight.shape[1] ** 0.5
        self.down = nn.Parameter(drawn.to(weight))
        self.up = nn.Parameter(weight.new_zeros((weight.shape[0], rank)))
        self.scale = alpha / rank

    def forward(self, rows: Tensor) -> Tensor:
        """[..., in] → [..., out]."""
        return linear(rows, self.weight) + self.scale * linear(linear(rows, self.down), self.up)

    def merged(self) -> Tensor:
        """[out, in]: one weight that does the same, summed in float64 and rounded once."""
        change = self.scale * (self.up.detach().double() @ self.down.detach().double())
        return (self.weight.double() + change).to(self.weight.dtype)


def adapt(module: nn.Module, rank: int, alpha: float, seed: int) -> None:
    """Give every linear map below ``module`` a low-rank change, in place, and freeze all else.

    What is frozen becomes a buffer, so ``parameters()`` are what is trained. Raises ValueError for a map with a bias.
    """
    generator = torch.Generator().manual_seed(seed)
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                if child.bias is not None:
                    raise ValueError(f"{name} has a bias; allowed for LoRA here: linear maps without one")
                setattr(parent, name, LoraLinear(child.weight, rank, alpha, generator))
    for part in module.modules():
        if isinstance(part, LoraLinear):
            continue
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach().clone())


def merged(module: nn.Module) -> dict[str, Tensor]:
    """Detached copies of all weights of ``module`` under the names that they have without LoRA."""
    changes = {name: part for name, part in module.named_modules() if isinstance(part, LoraLinear)}
    made = {f"{name}.weight": part.merged() for name, part in changes.items()}
    for name, tensor in module.state_dict().items():
        if name.rpartition(".")[0] not in changes:
            made[name] = tensor.detach().clone()
    return made
