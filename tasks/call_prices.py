"""What a call of a tool costs, in nats: a price that a call's gain must exceed besides its threshold.

A price is given in nats, or by rates: nats a second that the tool takes, nats a word of its response. A rate is
multiplied by the mean over the build's calls, so a tool has one price, and a call is kept iff

    L- - L+ - price(tool) >= tau_f,        the same as        L- - L+ >= tau_f + price(tool)

Which is how it enters C*: the threshold is raised by the price. Words are counted rather than tokens, since no
tokenizer is at hand where C* is assembled. This module knows no stage and no threshold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tasks.run_shard import ShardResult
from warehouse.store import Store

__all__ = ["SECOND", "WORD", "MeasuredPrice", "measured_prices"]

SECOND, WORD = "second", "word"  # the names of the rates among prices
_WORDS = re.compile(r"\w+|[^\w\s]")
_DIGITS = 3  # to which a measured price is rounded, so that it is read and typed easily


@dataclass(frozen=True, slots=True)
class MeasuredPrice:
    """A tool's price by rates, and what it comes from."""

    tool: str
    nats: float
    seconds: float | None  # mean of a call; None: all answers were known before
    words: float | None  # mean of a response; None: there was none


def measured_prices(
    store: Store,
    rates: Mapping[str, float],
    executed: Mapping[str, Iterable[ShardResult]],
) -> list[MeasuredPrice]:
    """Return the prices of tools by rates.

    Args:
        store: holds the commits and files of `execute`.
        rates: nats a `SECOND`, nats a `WORD`.
        executed: tool -> its results of `execute`.

    Raises:
        StoreError: a file cannot be read.
    """
    return [_measured(store, rates, tool, results) for tool, results in executed.items()]


def _measured(store: Store, rates: Mapping[str, float], tool: str, results: Iterable[ShardResult]) -> MeasuredPrice:
    calls = words = responses = 0
    taken = 0.0
    for result in results:
        commit = store.read_commit(result.key)
        if commit is not None:
            calls += int(commit.counters.get("calls", 0))
            taken += float(commit.counters.get("tool_seconds", 0.0))
        for file in result.files if WORD in rates else ():
            for response in store.read(file, columns=["response"])["response"].to_pylist():
                if response:
                    words += len(_WORDS.findall(response))
                    responses += 1
    seconds = taken / calls if calls else None
    mean = words / responses if responses else None
    nats = rates.get(SECOND, 0.0) * (seconds or 0.0) + rates.get(WORD, 0.0) * (mean or 0.0)
    return MeasuredPrice(tool, _rounded(nats), seconds, mean)


def _rounded(nats: float) -> float:
    return round(nats, _DIGITS - 1 - math.floor(math.log10(nats))) if nats > 0 else 0.0
