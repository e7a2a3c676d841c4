"""Muon: an optimizer for weight matrices that orthogonalises the momentum, in the matrices' own precision.

`torch.optim.Muon` works in bfloat16. On a CPU without bfloat16 multiplication that took longer than the passes: about 3
of the 5.5 s of a step (5 layers of 256, 6,144 tokens). The caller must choose suitable parameters: two-dimensional ones
inside the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_QUINTIC = (3.4445, -4.7750, 2.0315)  # steepest at zero (Jordan et al., 2024)
_ITERATIONS = 5


def orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    """Return approximately U V^T of a matrix U S V^T, by Newton-Schulz: singular values end between 0.7 and 1.2.

    Args:
        matrix: (rows, columns), of any floating dtype; the computation uses this dtype.
    """
    a, b, c = _QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)  # no singular value is above 1 from here on
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum whose update is orthogonalised, scaled by sqrt(max(1, rows / columns)).

    Args:
        params: the matrices.
        lr: the learning rate.
        momentum: the weight of the old value in the running mean of gradients.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(list(params), {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no caller here needs the loss again
        """Take a step; `closure` is not supported."""
        if closure is not None:
            raise ValueError("Muon does not support a closure")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                mean = state.setdefault("mean", torch.zeros_like(parameter))
                mean.lerp_(parameter.grad, 1 - group["momentum"])
                ahead = parameter.grad.lerp(mean, group["momentum"])
                rows, columns = parameter.shape
                parameter.add_(orthogonalise(ahead), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)
