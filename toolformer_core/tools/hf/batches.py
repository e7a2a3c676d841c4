"""Models that work on batches of token rows of different lengths, with little padding, and greedy writing."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from toolformer_core.tools.base import ToolLimits
from toolformer_core.tools.hf.checkpoint import Loaded, find_checkpoint

Row = TypeVar("Row")
Result = TypeVar("Result")

_LOADING = threading.Lock()  # two threads asking for one model must not load it twice


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield batches of rows as lists of their numbers, the longest rows first.

    A batch has at most so many tokens, padding included; a longer row is a batch of its own.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: (-lengths[n], n)):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:  # the first row is the longest
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def in_batches(
    rows: Sequence[Row], length: Callable[[Row], int], tokens: int, work: Callable[[list[Row]], Iterable[Result]]
) -> list[Result]:
    """Return what `work` makes of each row, in their order; see `batches`."""
    found: dict[int, Result] = {}
    for numbers in batches([length(row) for row in rows], tokens):
        found.update(zip(numbers, work([rows[number] for number in numbers]), strict=True))
    return [found[number] for number in range(len(rows))]


def padded(rows: Sequence[Sequence[int]], filler: int, device: Any) -> Any:
    """Return rows of token ids as one integer tensor (rows, longest row), filled up on the right."""
    import torch

    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows], device=device)


def write_greedily(
    loaded: Loaded, inputs: Sequence[Sequence[int]], max_tokens: int | Sequence[int], first: int | None = None
) -> list[list[int]]:
    """Return the token ids that an encoder-decoder model writes for each input, always its most probable token.

    What the checkpoint says of sampling, beams, least lengths and repetitions is not followed. The caller holds the
    lock. A text has at most `max_tokens` after the one that starts the decoder and `first`, a token that every text
    begins with, e.g. the code of its language (None: what the checkpoint names); an end and padding may follow.
    """
    import torch
    import transformers

    settings: Any = transformers.GenerationConfig
    limits = [max_tokens] * len(inputs) if isinstance(max_tokens, int) else list(max_tokens)
    model, tokenizer = loaded.model, loaded.tokenizer
    own, config = model.generation_config, model.config
    special = {
        name: getattr(own, name, None) if getattr(own, name, None) is not None else getattr(config, name, None)
        for name in ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id", "forced_bos_token_id")
    }
    # `generate` fills what is not set from the model's own configuration; there, nothing else is set from now on
    model.generation_config = settings(**special)
    if first is not None:
        special["forced_bos_token_id"] = first
    extra = int(special["forced_bos_token_id"] is not None)
    with torch.inference_mode():
        ids = model.generate(
            input_ids=padded(inputs, tokenizer.pad_token_id, loaded.model.device),
            attention_mask=padded([[1] * len(row) for row in inputs], 0, loaded.model.device),
            generation_config=settings(**special, max_new_tokens=max(limits) + extra, num_beams=1, do_sample=False),
        )
    # a text has as many tokens as it may have alone
    return [row[1 : 1 + limit + extra] for row, limit in zip(ids.tolist(), limits, strict=True)]


class BatchedModel(ABC):
    """A checkpoint that is loaded on first use and works on one batch at a time; threads take turns.

    What is pickled is its name; each process loads the checkpoint itself. A `ModelError` if its files are not found.
    """

    batch: int  # texts that are worked on together, at most

    def __init__(self, model: str) -> None:
        self.model = model
        self._checkpoint = find_checkpoint(model)
        self._loaded: Loaded | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model,)

    @property
    def limits(self) -> ToolLimits:
        return ToolLimits(at_once=1, batch=self.batch, timeout_s=600.0)

    def load(self) -> Loaded:
        """Load the model, if it is not loaded yet; a `ModelError` if it cannot be loaded."""
        if self._loaded is None:
            with _LOADING:
                self._loaded = self._loaded or self._load()
        return self._loaded

    @abstractmethod
    def _load(self) -> Loaded:
        """Load the checkpoint."""
