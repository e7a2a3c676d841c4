"""Graphics cards: the rate of their bf16 matrix products without sparsity, and of their memory, as their makers state.

    | column     | unit                                                                  |
    |------------|-----------------------------------------------------------------------|
    | tflops     | TFLOP/s, bf16, dense: half of what data sheets print "with sparsity"   |
    | bandwidth  | GB/s of its own memory                                                |
    | memory     | GB                                                                    |

What share of these rates a model reaches is not known here. A card that is missing is described by assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CARDS", "Card"]


@dataclass(frozen=True, slots=True)
class Card:
    """What a maker says of a card."""

    name: str
    tflops: float
    bandwidth: float
    memory: float
    source: str


_ALL = (
    Card("a100", 312.0, 2039.0, 80, "NVIDIA A100 data sheet, A100 80GB SXM"),
    Card("a100-40gb", 312.0, 1555.0, 40, "NVIDIA A100 data sheet, A100 40GB SXM (the card of Toolformer, App. B)"),
    Card("h100", 989.4, 3350.0, 80, "NVIDIA H100 data sheet, H100 SXM"),
    Card("h100-pcie", 756.0, 2000.0, 80, "NVIDIA H100 data sheet, H100 PCIe"),
    Card("h200", 989.4, 4800.0, 141, "NVIDIA H200 data sheet, H200 SXM"),
    Card("b200", 2250.0, 8000.0, 180, "NVIDIA Blackwell data sheet, HGX B200, per GPU"),
    Card("l40s", 362.05, 864.0, 48, "NVIDIA L40S data sheet"),
    Card("l4", 121.0, 300.0, 24, "NVIDIA L4 data sheet (242 with sparsity)"),
    Card("mi300x", 1307.4, 5300.0, 192, "AMD Instinct MI300X data sheet"),
)

CARDS = {card.name: card for card in _ALL}
