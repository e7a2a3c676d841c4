"""Muon in float32: what it makes of a gradient, and that it agrees with torch's own but for the precision."""

from __future__ import annotations

import pytest
import torch

from smallworld.muon import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_singular_values_end_near_hereand_directions_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    found = u.T @ orthogonalise(matrix) @ v.T  # diagonal: the same directions
    values = found.diagonal()
    assert torch.allclose(found, torch.diag(values), atol=1e-4)
    assert s.min() / s.max() > 0.01  # none so small that five iterations would not lift it
    assert float(values.min()) > 0.5
    assert float(values.max()) < 1.3


def test_a_step_is_torch_s_step_in_better_precision() -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(8, 4)) for _ in range(2))
    one, other = Muon([ours], lr=0.1), torch.optim.Muon([theirs], lr=0.1, momentum=0.95, weight_decay=0.0)
    for _ in range(3):
        gradient = torch.randn(8, 4)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        one.step()
        other.step()
    here, there = ours.detach(), theirs.detach()
    assert float((here - there).norm() / (here - 1).norm()) < 0.03  # five iterations in 8 bits


def test_it_takes_no_closure() -> None:
    with pytest.raises(ValueError, match="closure"):
        Muon([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1).step(lambda: 0.0)
