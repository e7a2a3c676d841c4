"""The interface between stages and a language model: a scan for positions, samples from a scan, log-probabilities.

Texts go in; numpy arrays and texts come out. Positions are character offsets, because two tokenisations of a text agree
on nothing else. No backend knows thresholds, tools or the weights of a loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolformer_core.records import Prompt

__all__ = [
    "Draw",
    "DrawRequest",
    "Insertion",
    "LanguageModel",
    "Scan",
    "ScanWrapper",
    "ScoreRequest",
    "tokens_passed",
    "uniform",
]


class Insertion(NamedTuple):
    """A text whose second copy in the prompt is written up to a position, and after it one or more calls.

    Its scan has one position, after the calls: [P(x), x_1:i-1, e(c_1, r_1), ...].
    """

    text: str  # x
    position: int  # i, a character offset; the scan's one position bears this number, too
    inserted: str  # e(c_1, r_1) ...

    @property
    def written(self) -> str:
        """The second copy as far as it is written."""
        return self.text[: self.position] + self.inserted


class DrawRequest(NamedTuple):
    """A request for one draw after " [" at one position of one text of a scan."""

    text: int  # index into the texts given to `LanguageModel.scan`
    position: int  # one of the scan's positions for that text
    seed: int  # 64 bits; the same seed at the same place gives the same draw


class Draw(NamedTuple):
    """The text drawn after " [". If a "]" closed it, `ended` is True and the text stops in front of that "]"."""

    text: str
    ended: bool
    log_p_begin: float | None = None  # log p(it begins so | P(x), x_1:i-1, " ["), nats; None: not requested


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A request for log p(x_j | z, x_1:j-1) of the first `tokens` tokens x_j of the text from `position` on."""

    prefix: str  # z, e.g. e(c, r); "" for the plain text
    text: str  # x
    position: int  # character offset of token i
    tokens: int


class Scan(Protocol):
    """p(" [") at every position of a batch of texts, and the model state from which calls can be drawn there."""

    @property
    def texts(self) -> Sequence[int]:
        """Indices, into the texts given to `scan`, of the texts in this batch."""

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        """Per text, the character offsets at which a token starts, ascending and starting with 0.  (n_i,)"""

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        """Per text, log p(" [" | P(x), x_1:i-1) at those positions, natural log; -inf where it is not seen.  (n_i,)"""

    @property
    def bounds(self) -> Sequence[NDArray[np.float32]] | None:
        """Per text, what log p(" [") is at most at each position: itself where it is seen. None: all are seen.  (n_i,)

        Where " [" is not among the N most likely tokens, it is at most as likely as the N-th, and at most 1 / (N + 1).
        """

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        """Sample a continuation of [P(x), x_1:i-1, " ["] for each request, until a "]" in its text closes the call.

        Args:
            requests: where to draw, with a seed each.
            max_tokens: tokens that a draw may take, those of `begin` included.
            temperature: 0 takes the most likely token at every step.
            name: the tool whose calls are wanted. A draw that can no longer become one may end there, not `ended`, with
                the text so far. "": every draw is finished.
            begin: what every draw begins with, without square brackets, e.g. `QA(`. All its tokens but the last are
                given, and the next one is drawn among those with which the text begins with `begin`: `(`, but also
                `()]`. So these are samples from p(. | P(x), x_1:i-1, " [", the text begins with `begin` in this
                tokenization). They tell the log-probability of that, of the given tokens and of the allowed ones
                together, whatever the temperature. A seed's random numbers are used from the first drawn token on.
        """


Inner = TypeVar("Inner", bound=Scan)


class ScanWrapper(Generic[Inner]):
    """Base of scans that make the samples of another scan in a different way."""

    def __init__(self, inner: Inner) -> None:
        self.inner = inner
        self.texts, self.positions = inner.texts, inner.positions
        self.log_probs, self.bounds = inner.log_probs, inner.bounds


class LanguageModel(Protocol):
    """A causal language model."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """Digest of everything a result depends on: weights, architecture and tokenizer."""

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[Scan]:
        """Scan texts in batches that the backend chooses. A scan is valid until the iterator is advanced.

        An insertion that does not fit into the model's context is in no scan.
        """

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Return, per request, log p of up to `tokens` tokens from the position on (fewer at the end of the text)."""


def tokens_passed(lm: LanguageModel) -> int:
    """Return how many tokens a model has processed, padding included; 0 if it does not count them (`tokens`)."""
    return int(getattr(lm, "tokens", 0))


def uniform(seeds: NDArray[np.uint64], step: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) per seed of a draw for this step: SplitMix64's output function, top 53 bits.  (R,)"""
    with np.errstate(over="ignore"):
        z = seeds + np.uint64(step + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return np.asarray((z >> np.uint64(11)).astype(np.float64) / float(1 << 53))
