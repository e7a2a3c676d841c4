"""What the stages see of a language model: a scan for positions, draws from it, and log-probabilities.

Texts go in, numpy arrays and texts come out: no stage imports torch, and no backend knows thresholds, tools or weights.
Positions are character offsets, because two tokenisations of a text agree on characters and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolformer_core.records import Prompt

__all__ = [
    "CountsTokens",
    "Draw",
    "DrawRequest",
    "LanguageModel",
    "Scan",
    "ScanAround",
    "ScoreRequest",
    "tokens_passed",
]


class DrawRequest(NamedTuple):
    """One draw after " [" at one position of one text of a scan."""

    text: int  # index into the texts given to `LanguageModel.scan`
    position: int  # one of the scan's positions for that text
    seed: int  # 64 bits; the same seed at the same place gives the same draw


class Draw(NamedTuple):
    """The text drawn after " [": without the closing "]" if it ended, all of it if it did not."""

    text: str
    ended: bool


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """log p(x_j | z, x_1:j-1) is wanted for the first `tokens` tokens of the text from `position` on."""

    prefix: str  # z, e.g. e(c, r); "" for the plain text
    text: str  # x
    position: int  # character offset of token i
    tokens: int


class Scan(Protocol):
    """p(" [") at every position of a batch of texts, and the state from which calls can be drawn there."""

    @property
    def texts(self) -> Sequence[int]:
        """Which of the texts given to `scan` this batch holds."""
        ...

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        """Per text, the character offsets at which a token starts, ascending, beginning with 0.  (n_i,)"""
        ...

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        """Per text, log p(" [" | P(x), x_1:i-1) at each of those positions, natural log.  (n_i,)"""
        ...

    def draw(self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float) -> list[Draw]:
        """Sample a continuation of [P(x), x_1:i-1, " ["] for each request, until "]" closes it in text.

        Temperature 0 takes the likeliest token.
        """
        ...


Inner = TypeVar("Inner", bound=Scan)


class ScanAround(Generic[Inner]):
    """A scan made by another, whose draws are made elsewhere: the base of classes that say where."""

    def __init__(self, inner: Inner) -> None:
        self.inner = inner

    @property
    def texts(self) -> Sequence[int]:
        """See `Scan`."""
        return self.inner.texts

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        """See `Scan`."""
        return self.inner.positions

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        """See `Scan`."""
        return self.inner.log_probs


class LanguageModel(Protocol):
    """A causal language model."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """Digest of weights, architecture and tokenizer: what a result depends on."""
        ...

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        """Scan texts in batches of the backend's choice. A scan is valid until the next one is asked for."""
        ...

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Return, per request, log p of up to `tokens` tokens from the position on (fewer at the text's end)."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A model that counts what passes through it."""

    @property
    def tokens(self) -> int:
        """Tokens passed so far, padding included."""
        ...


def tokens_passed(lm: LanguageModel) -> int:
    """Return how many tokens have passed through a model, 0 if it does not count them."""
    return lm.tokens if isinstance(lm, CountsTokens) else 0
