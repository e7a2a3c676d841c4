"""Decoys: wrong responses with which a call is scored as well, to learn how often a wrong one seems to help.

A decoy of (c, r) is the same call at the same place with a response r' that the same tool gave in another document of
the shard, and not in the same document, where it may be right. Its gain is L- - L(e(c, r')), with the L- of the call.
Where a shard has too few different responses, made-up ones of `reserve` fill up; a tool of one's own has none.

Let N calls of a tool be scored, with D decoys in all, and let R(tau) calls and W(tau) decoys gain at least tau. Were
all calls wrong, N W/D of them would pass; R do. So this estimate is an upper one:

    FDR(tau) = (W(tau) / D) / (R(tau) / N)

The threshold for a promised rate q is the least gain of a call such that FDR <= q there and at every larger threshold
that any call reaches. The interval is Wilson's for W/D at the size of a sample of one decoy per call, as decoys of one
call share its place and its losses.
"""

from __future__ import annotations

import math
import tomllib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from toolformer_core.annotate.call_filter import may_be_kept
from toolformer_core.config import ScoreConfig
from toolformer_core.records import DrawnCall, ScoredCall, digest_of, numbers_of

RESERVE_NAME = "reserve/1"  # recorded with the scores: the number is raised when a response of `decoys.toml` changes


@cache
def reserve() -> dict[str, list[str]]:
    """Return the responses that fill up where a shard has too few, by the key of the tool (`decoys.toml`)."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


class DecoyPool:
    """The (document id, response) pairs of one tool in one shard, and at most `decoys` decoys of each of its calls."""

    def __init__(
        self, answered: Iterable[tuple[str, str]], *, decoys: int, seed: int = 0, reserve: Sequence[str] = ()
    ) -> None:
        self._decoys, self._seed = decoys, seed
        self._own: dict[str, set[str]] = {}  # document -> its responses
        for doc_id, response in answered:
            self._own.setdefault(doc_id, set()).add(response)
        self._responses = sorted(set().union(*self._own.values()))
        self._reserve = sorted(set(reserve) - set(self._responses))
        self.from_shard = 0  # decoys given out so far
        self.from_reserve = 0

    @classmethod
    def of(cls, config: ScoreConfig, tool: str, answered: Iterable[tuple[str, str]]) -> DecoyPool | None:
        """Return the pool of a tool, by its key, as a config asks for it; None if it asks for no decoys."""
        if not config.decoys:
            return None
        responses = reserve().get(tool, ())
        return cls(answered, decoys=config.decoys, seed=config.decoy_seed, reserve=responses)

    def decoys_of(self, drawn: DrawnCall, response: str) -> tuple[str, ...]:
        """Return a call's decoys, each a different response."""
        of_call = digest_of(drawn.doc_id, drawn.tool, str(drawn.position), drawn.input, response)
        _, *numbers = numbers_of("decoys", str(self._seed), of_call, count=1 + 2 * self._decoys)
        own = self._own[drawn.doc_id]
        chosen = _choose(self._responses, own, numbers[: self._decoys])
        self.from_shard += len(chosen)
        reserve = _choose(self._reserve, own, numbers[self._decoys :])[: self._decoys - len(chosen)]
        self.from_reserve += len(reserve)
        return (*chosen, *reserve)


def _choose(responses: Sequence[str], forbidden: set[str], numbers: Sequence[int]) -> list[str]:
    """Return a different allowed response for each number, while there are any: a sparse Fisher-Yates shuffle."""
    moved: dict[int, int] = {}
    left, chosen = len(responses), []
    for number in numbers:
        while left:
            at = number % left
            left -= 1
            candidate = responses[moved.get(at, at)]
            moved[at] = moved.get(left, left)
            if candidate not in forbidden:
                chosen.append(candidate)
                break
    return chosen


REASONS: Mapping[str, str] = {
    "no_decoys": "its calls were scored without decoys",
    "too_alike": "its responses are too much alike to tell right ones from wrong ones",
    "none_passes": "decoys pass too often even among its best calls, so none is kept",
    "too_few": "it has too few calls to prove the promise",
}

LEAST_RESPONSES = 8  # different ones of a tool
_LEAST_EXPECTED = 3.0  # decoys that pass at the promised rate if all calls did: to see none has a probability of e^-3
_Z = 1.959963984540054  # of a two-sided 95 % interval


@dataclass(frozen=True, slots=True)
class GainsOfTool:
    """The gains of a tool's calls and of their decoys; only calls that a threshold may keep at all."""

    calls: NDArray[np.float64]  # (N,), sorted
    decoys: NDArray[np.float64]  # (D,), sorted
    with_decoys: int = 0  # calls that have any
    requested: int = 0  # calls for which decoys were looked for
    responses: int = 0  # different responses of the calls, counted up to LEAST_RESPONSES


class GainCollector:
    """Collects the gains of one tool's calls and decoys, shard by shard, in 8 bytes each."""

    def __init__(self) -> None:
        self._calls, self._decoys = array("d"), array("d")
        self._with_decoys = self._requested = 0
        self._responses: set[str] = set()

    def add(self, calls: Iterable[ScoredCall]) -> None:
        """Add calls; those that are dropped at every threshold are left out, with their decoys."""
        for call in filter(may_be_kept, calls):
            self._calls.append(call.gain)
            if len(self._responses) < LEAST_RESPONSES:
                self._responses.add(call.response)
            if call.decoy_gains is not None:
                self._requested += 1
                self._with_decoys += bool(call.decoy_gains)
                self._decoys.extend(gain for gain in call.decoy_gains if not math.isnan(gain))

    def gains(self) -> GainsOfTool:
        return GainsOfTool(
            calls=np.sort(self._calls),
            decoys=np.sort(self._decoys),
            with_decoys=self._with_decoys,
            requested=self._requested,
            responses=len(self._responses),
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    tau_f: float
    calls: int  # R: calls that gain at least tau_f
    of_calls: int  # N
    decoys: int  # W
    of_decoys: int  # D
    rate: float | None  # None: no call passes, or there are no decoys
    low: float | None
    high: float | None

    def said(self) -> str:
        """Return the rate with its interval, as `0.031 (0.020 to 0.047)`."""
        return "unknown" if self.rate is None else f"{self.rate:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, slots=True)
class FoundThreshold:
    tool: str
    promised: float
    tau_f: float
    reason: str  # one of `REASONS`, why it is not one at which the promise holds; "": it is
    at: Estimate  # at tau_f


def estimate(gains: GainsOfTool, tau_f: float) -> Estimate:
    """Return the estimated false-discovery rate at a threshold, at most 1."""
    n, d = len(gains.calls), len(gains.decoys)
    passing = n - int(np.searchsorted(gains.calls, tau_f, "left"))
    wrong = d - int(np.searchsorted(gains.decoys, tau_f, "left"))
    if not passing or not d:
        return Estimate(tau_f, passing, n, wrong, d, None, None, None)
    shares = (wrong / d, *_wilson(wrong / d, max(1, gains.with_decoys)))
    rate, low, high = (min(1.0, share * n / passing) for share in shares)
    return Estimate(tau_f, passing, n, wrong, d, rate, low, high)


def find_threshold(tool: str, gains: GainsOfTool, promised: float, own: float, floor: float = 0.0) -> FoundThreshold:
    """Return the least threshold from `floor` on, from which decoys pass at most `promised` times as often as calls.

    `promised` is the rate q, in (0, 1); `own` the tool's threshold otherwise, in nats. With none below q it is above
    all gains; where decoys cannot tell, it is `own`.
    """

    def keep(reason: str) -> FoundThreshold:
        return FoundThreshold(tool, promised, own, reason, estimate(gains, own))

    if not len(gains.calls):
        return keep("too_few")
    if not len(gains.decoys):
        return keep("too_alike" if gains.requested else "no_decoys")
    if promised * len(gains.decoys) < _LEAST_EXPECTED:
        return keep("too_few")
    if gains.responses < LEAST_RESPONSES or 2 * gains.with_decoys < gains.requested:
        return keep("too_alike")
    tau_f, reason = _least(gains, promised, floor), ""
    if tau_f is None:
        tau_f, reason = math.floor(max(floor, float(gains.calls[-1])) * 10 + 1) / 10, "none_passes"
    return FoundThreshold(tool, promised, tau_f, reason, estimate(gains, tau_f))


def _least(gains: GainsOfTool, promised: float, floor: float) -> float | None:
    """Return the threshold with as few digits as keep the same calls, or None; FDR changes at gains alone."""
    n, d = len(gains.calls), len(gains.decoys)
    values = np.unique(np.concatenate([gains.calls, gains.decoys]))
    values = values[(values >= floor) & (values <= gains.calls[-1])]
    passing = n - np.searchsorted(gains.calls, values, "left")
    wrong = d - np.searchsorted(gains.decoys, values, "left")
    # wrong / d <= promised * passing / n, without division
    too_high = np.flatnonzero(wrong * n > promised * passing * d)
    last = float(values[too_high[-1]]) if len(too_high) else -math.inf
    above = gains.calls[(gains.calls > last) & (gains.calls >= floor)]
    return _rounded(float(above[0]), max(last, np.nextafter(floor, -math.inf))) if len(above) else None


def _rounded(value: float, above: float) -> float:
    """Round a number down to the fewest decimals at which it still exceeds another."""
    for digits in range(1, 16):
        scale = 10.0**digits
        short = math.floor(value * scale) / scale
        if above < short <= value:
            return short
    return value


def _wilson(share: float, n: int) -> tuple[float, float]:
    middle = share + _Z**2 / (2 * n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    below = 1 + _Z**2 / n
    return max(0.0, (middle - half) / below), min(1.0, (middle + half) / below)
