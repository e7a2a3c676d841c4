"""How the stored scores were made, and what two filters of them yield; no limit on examples per tool is applied."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer_core.annotate.call_filter import SAME_CALL, CallFilter
from warehouse.indexed_calls import IndexedCalls
from warehouse.queries import CallInContext, Yield
from warehouse.queries.rows import open_snapshot, rows_in
from warehouse.ratings import RATING_REASONS
from warehouse.snapshot.views import queries_beside

_SQL = queries_beside(__file__)


@dataclass(frozen=True, slots=True)
class StoredScores:
    """How the current scores were made: how each tool was sampled, and how C* was assembled."""

    sampled: Mapping[str, Mapping[str, Any]]  # tool -> its config of `sample`: top_k, tau_s, ...
    assembled: Mapping[str, Any]  # the config of `assemble`; empty until C* is assembled
    run_id: str  # the newest run that used the current commits; "" if there is none
    floors: Mapping[str, float]  # tool -> gain below which calls are not scored to the end
    rated_out: Mapping[str, int]  # reason -> calls that ratings left out of the current C*
    elsewhere: Mapping[str, int]  # reason -> calls that other texts kept out of C*


@dataclass(frozen=True, slots=True)
class Change:
    before: Yield
    after: Yield


@dataclass(frozen=True, slots=True)
class WhatIf:
    changes: tuple[Change, ...]  # by tool
    comes: tuple[CallInContext, ...]  # calls that survive only the second filter, the largest gain first
    goes: tuple[CallInContext, ...]  # ... only the first filter


def stored_scores(path: str | Path) -> StoredScores:
    with open_snapshot(path) as connection:
        configs, runs, scoring = (rows_in(connection, _SQL[name]) for name in ("configs", "newest_run", "scoring"))
        left_out = rows_in(connection, _SQL["left_out"], {"reasons": [*RATING_REASONS, SAME_CALL]})
    reasons = {row["reason"]: row["calls"] for row in left_out}
    return StoredScores(
        sampled={row["tool"]: json.loads(row["config"]) for row in configs if row["stage"] == "sample"},
        assembled=next((json.loads(row["config"]) for row in configs if row["stage"] == "assemble"), {}),
        run_id=runs[0]["run_id"] if runs else "",
        floors={row["tool"]: row["floor"] for row in scoring if row["floor"] is not None},
        rated_out={reason: n for reason, n in reasons.items() if reason in RATING_REASONS},
        elsewhere={reason: n for reason, n in sorted(reasons.items()) if reason not in RATING_REASONS},
    )


def what_if(path: str | Path, before: CallFilter, after: CallFilter, n: int = 5) -> WhatIf:
    """Compare two filters of the same tools."""
    calls = IndexedCalls(path, least=min((*before.tau_f.values(), *after.tau_f.values()), default=0.0))
    changes = tuple(map(Change, calls.yields(before), calls.yields(after)))
    moved = calls.moved(before, after, n)
    return WhatIf(changes, moved.comes.calls, moved.goes.calls)
