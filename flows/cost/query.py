"""What a plan by numbers is asked: how many documents, on which cards, at what price, with which tools and settings.

It knows no assumption and computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from toolformer_core.errors import UsageError

__all__ = ["CostQuery", "ToolQuery"]


@dataclass(frozen=True, slots=True)
class ToolQuery:
    """A tool to teach, and how its calls are sampled."""

    key: str
    top_k: int
    draws: int
    tau_f: float
    wordings: int = 1  # of its prompt


@dataclass(frozen=True, slots=True)
class CostQuery:
    """A run that is to be planned.

    Raises:
        UsageError: a number is outside its bounds, or a price is missing.
    """

    documents: float
    tools: tuple[ToolQuery, ...]
    model: str = "embedded"
    score_model: str = ""  # scores in its place; its work is computed with the shape of `model`
    gpu: str = (
        ""  # a card of `cards.CARDS`, or any name with `tflops` and `bandwidth` given; "": the model runs on CPUs
    )
    gpu_count: int = 1
    gpu_price: float | None = None  # for an hour of one card; needed with a card
    workers: int = 4  # processes or threads of work, where no card is named
    shard_documents: int = 256
    max_examples: int = 25_000  # of each tool
    stop_when_full: bool = False
    relevant_share: float | None = None  # of the documents that a prefilter keeps; None: all
    positions: str = "trigger"  # as in `SampleConfig`
    draw_form: str = "free"  # as in `SampleConfig`
    decoys: float = 0.0  # of a scored call, on average
    chain_depth: int = 1  # as in `ChainConfig`
    chain_starts: int = 5  # as in `ChainConfig`
    own_encoder: bool = False  # another model than `model` embeds the documents for it
    remote: bool = False  # the data lies in an object store
    assume: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not math.isfinite(self.documents) or self.documents < 1:
            raise UsageError(f"--documents must be at least 1, got {self.documents:g}")
        if not self.tools:
            raise UsageError("no tool was named; give --tools, e.g. --tools calculator,qa")
        if self.gpu_count < 1:
            raise UsageError(f"--gpu-count must be at least 1, got {self.gpu_count}")
        if self.gpu_price is not None and not (math.isfinite(self.gpu_price) and self.gpu_price >= 0):
            raise UsageError(f"--gpu-price is an amount of money per card and hour, at least 0; got {self.gpu_price:g}")
        if self.gpu and self.gpu_price is None:
            raise UsageError("--gpu needs the price of an hour of one card, e.g. --gpu-price 2.5 (0: it costs nothing)")
        if not self.gpu and (self.gpu_price is not None or self.gpu_count != 1):
            raise UsageError("--gpu-count and --gpu-price need a card: name it with --gpu, e.g. --gpu h100")
