"""The random numbers of draws: they come from a draw's seed and the step alone, never from a generator's state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def uniform(seeds: NDArray[np.uint64], step: int) -> NDArray[np.float64]:
    """Return one number in [0, 1) per seed for this step: SplitMix64's output function, top 53 bits.  (R,)"""
    with np.errstate(over="ignore"):
        z = seeds + np.uint64(step + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return np.asarray((z >> np.uint64(11)).astype(np.float64) / float(1 << 53))
