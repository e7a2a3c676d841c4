"""Compares logits from two computations: do they agree up to the rounding of the precision they were computed in?

The difference is measured relative to the size of the logits, because rounding errors grow with them.
"""

import torch

# Both computations round the output of every layer, in different places. Measured with random and trained models of 2
# to 64 layers in bfloat16 and float16: 0.4 to 8 epsilons between two correct computations; 6 to 150 between a correct
# one and one whose attention omits a token it should see, or sees one it should not.
_ROUNDINGS = 6
# Half precision is summed in float32. In float32 the sums round, too (1.4e-6 measured); broken attention: 1e-3 and
# more.
_SUMS = 1e-4

# Slack before a model is refused rather than run in a slower way. Models that must be refused (they read both ways, or
# use other positions) differ by 80 epsilons and more.
_SLACK = 4.0


def tolerance(dtype: torch.dtype) -> float:
    """Return the largest `difference` that rounding explains: 0.047 in bfloat16, 0.006 in float16, 1e-4 in float32."""
    return _ROUNDINGS * torch.finfo(dtype).eps + _SUMS


def difference(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the relative difference between logits and expected logits, (N, V) each: the largest over all rows.

    It is a ratio of root mean squares over the vocabulary, after each row's mean is subtracted (softmax ignores it).
    """
    delta = logits - expected
    delta = (delta - delta.mean(-1, keepdim=True)).norm(dim=-1)
    size = (expected - expected.mean(-1, keepdim=True)).norm(dim=-1)
    return float(torch.where(delta == 0, 0.0, delta / size).max())  # 0 / 0 counts as no difference; NaN stays NaN


def agree(logits: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether logits computed in `dtype` equal the expected ones, (N, V) each; NaN equals nothing."""
    return difference(logits, expected) <= _SLACK * tolerance(dtype)
