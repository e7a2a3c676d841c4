"""Whether two ways to compute the same logits agree, as far as the precision they are computed in lets them.

The measure is relative to the logits themselves, so it means the same for a model with flat distributions and for one
with sharp ones: a bound in nats would not, as rounding errors grow with the logits. It knows no models.
"""

from __future__ import annotations

import torch

__all__ = ["REFUSING", "agree", "difference", "tolerance"]

# Both ways round what every layer writes, in different places. Measured with random and trained models of 2 to 64
# layers in bfloat16 and float16: 0.4 to 4.4 epsilons between two correct ways, 6 to 150 between a correct one and one
# whose attention leaves out a token it should see, or sees one it should not.
_ROUNDINGS = 6
# Half precision is summed in float32. In float32 the sums round too: 1 to 12 epsilons measured, 1.4e-6; broken
# attention differs by 1e-3 and more.
_SUMS = 1e-4

# Before a model is refused, not only worked with more slowly: half precision may send a token to another expert when
# its batch is another one. Models that are refused rightly (both ways, other positions) differ by 80 epsilons and more.
REFUSING = 4.0


def tolerance(dtype: torch.dtype) -> float:
    """Return the largest `difference` that rounding explains: 0.047 in bfloat16, 0.006 in float16, 1e-4 in float32."""
    return _ROUNDINGS * torch.finfo(dtype).eps + _SUMS


def difference(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return how far logits (N, V) are from those wanted, relative to these; of all rows the largest.

    Root mean squares over the vocabulary, after each row's mean is taken off: a softmax does not see it.
    """
    apart = got - wanted
    apart = (apart - apart.mean(-1, keepdim=True)).norm(dim=-1)
    size = (wanted - wanted.mean(-1, keepdim=True)).norm(dim=-1)
    return float(torch.where(apart == 0, 0.0, apart / size).max())  # 0 / 0 is no difference; NaN stays NaN


def agree(got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype, *, slack: float = 1.0) -> bool:
    """Return whether logits (N, V) are those wanted, but for rounding; never if one of them is NaN.

    Args:
        dtype: the precision in which the model computed both.
        slack: multiplies `tolerance`.
    """
    return difference(got, wanted) <= slack * tolerance(dtype)
