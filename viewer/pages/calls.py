"""Find: the best call of each tool at each position, by gain, with what the current thresholds make of it."""

import math
from collections.abc import Mapping
from typing import Any

from viewer.data import ViewedData
from viewer.query import Query
from warehouse.indexed_calls import CallKey

_ROWS = 25
OUTCOMES = {
    "kept": "kept: kept in C*, unless a tool had enough examples",
    "below_threshold": "below threshold: gains less than its tool's threshold",
    "outdone": "outdone: reaches its threshold, but a better call at the position or nearby is kept",
}


def page(viewed: ViewedData, query: Query) -> Mapping[str, Any]:
    now = viewed.thresholds().before
    low, high = query.number("low"), query.number("high")
    found = viewed.calls().by_gain(
        now,
        _ROWS,
        outcome=query.choice("outcome", OUTCOMES),  # type: ignore[arg-type]  # one of its words
        tool=query.choice("tool", now.tau_f),
        low=-math.inf if low is None else low,
        high=math.inf if high is None else high,
        after=query.place("after", CallKey),
    )
    return {
        "found": found,
        "tables": {"calls": found.calls},
        "further": query.further("/calls", "after", found.last),
        "tau_f": now.tau_f,
        "outcomes": OUTCOMES,
    }
