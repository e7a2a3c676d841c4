"""A version of C* on one self-contained page: the figures that a paper or a model card needs, and examples.

All figures come from the version's own record, commits and files. The page loads nothing and runs no script.
"""

import json
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.resources import files
from statistics import quantiles
from typing import Any, NamedTuple

from flows.build_dataset.record import BuildRecord
from flows.report.judging import judge
from toolformer_core.config import TOOL_NAMES
from viewer.charts import gain_chart
from viewer.rendering import render, tool_class
from warehouse.commits import Dataset
from warehouse.queries.calls import GainBin
from warehouse.ratings import CallIdentity, read_ratings, standing
from warehouse.records import certificates
from warehouse.store import Store

_LOW, _HIGH, _WIDTH = 0.0, 6.0, 0.5  # nats: the bins of the histograms between the open ones
_AROUND = 160  # characters of text before and after a call of the examples
_SHOWN_PARAMETERS = ("tau_s", "top_k", "samples", "draw_form", "decoys")


class _Shown(NamedTuple):
    """A call that is shown, in the order of its key."""

    key: str
    tool: str
    gain: float
    before: str
    written: str
    after: str


@dataclass(slots=True)
class _Tool:
    examples: int = 0
    gains: list[float] = field(default_factory=list)
    right: int = 0
    wrong: int = 0
    shown: list[_Shown] = field(default_factory=list)


def report_page(store: Store, dataset: Dataset, examples: int = 5, seed: int = 0) -> str:
    """Return the page; raise `WarehouseError` if files or commits of the version are damaged or gone."""
    record = BuildRecord.of_run(store, dataset.run_id)
    names, requested = {**TOOL_NAMES, **record.tool_names}, record.requested()
    tools = _read(store, dataset, examples, seed)
    thresholds = sorted({tau for _, tau, _ in dataset.yields})
    by_threshold = {(tool, tau): n for tool, tau, n in dataset.yields}
    rows = [
        {
            "key": tool,
            "tau_f": tau_f,
            "own": (own := tools[tool]),
            "quartiles": quantiles(own.gains, n=4) if len(own.gains) > 1 else own.gains * 3,
            "at": [by_threshold.get((tool, tau), 0) for tau in thresholds],
            "chart": gain_chart(names.get(tool, tool), _bins(tool, own.gains), {"now": tau_f}, tool_class(tool)),
        }
        for tool, tau_f in dataset.thresholds.items()
    ]
    return render(
        "report.html",
        dataset=dataset,
        examples=sum(file.rows for file in dataset.files),
        columns=[
            *("tool", "tau_f", "examples", "calls", "quartiles of the gain (nats)"),
            *(f"examples at {tau:g}" for tau in thresholds),
            "judged right of all judged",
        ],
        tools=rows,
        requested={name: requested[name] for name in _SHOWN_PARAMETERS if requested.get(name) not in (None, "", [])},
        balances=_balances(store, dataset),
        certificates=certificates(store, dataset.name, dataset.version),
        parameters=json.dumps(record.parameters, indent=1, sort_keys=True, default=str),
        style=files("viewer").joinpath("static/viewer.css").read_text(encoding="utf-8"),
    )


def _read(store: Store, dataset: Dataset, most: int, seed: int) -> defaultdict[str, _Tool]:
    said = {call: judge(users.values()) for call, users in standing(read_ratings(store)[0]).items()}
    tools: defaultdict[str, _Tool] = defaultdict(_Tool)
    for file in dataset.files:
        for row in store.read(file).to_pylist():
            for tool in {call["tool"] for call in row["calls"]}:
                tools[tool].examples += 1
            for call in row["calls"]:
                identity = CallIdentity(row["doc_id"], call["tool"], call["position"], call["input"], call["response"])
                own = tools[call["tool"]]
                own.gains.append(call["gain"])
                own.right += said.get(identity) == "right"
                own.wrong += said.get(identity) == "wrong"
                insort(own.shown, _drawn(row["text"], call, identity, seed))
                del own.shown[most:]  # the smallest keys: which ones does not depend on the order of reading
    return tools


def _drawn(text: str, call: Mapping[str, Any], identity: CallIdentity, seed: int) -> _Shown:
    key = blake2b(f"{seed} {identity.digest}".encode(), digest_size=16).hexdigest()
    start, end = call["start"], call["end"]
    around = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    return _Shown(key, call["tool"], call["gain"], around[0], text[start:end], around[1])


def _bins(tool: str, gains: Iterable[float]) -> list[GainBin]:
    number = int((_HIGH - _LOW) / _WIDTH)
    counts = Counter(max(-1, min(number, int((gain - _LOW) // _WIDTH))) for gain in gains)
    edges = [None, *(_LOW + _WIDTH * n for n in range(number + 1)), None]
    return [GainBin(tool, edges[n], edges[n + 1], counts.get(n - 1, 0)) for n in range(number + 2)]


def _balances(store: Store, dataset: Dataset) -> list[dict[str, Any]]:
    order = ["ingest", "prefilter", "sample", "execute", "score", "assemble"]
    keys = [key for run in store.runs([dataset.run_id]) for key in run.commits]
    keys.sort(key=lambda one: ([*order, one.stage].index(one.stage), one.tool, one.shard))
    sums: dict[tuple[str, str, str], dict[str, Any]] = {}
    for commit in filter(None, map(store.read_commit, keys)):
        for one in commit.balances:
            row = sums.setdefault((commit.stage, commit.tool, one.unit), {"in": 0, "kept": 0, "reasons": Counter()})
            row["in"] += one.rows_in
            row["kept"] += one.kept
            row["reasons"].update({**one.dropped, **one.failed})
    return [
        {"stage": stage, "tool": tool, "unit": unit, **row, "reasons": row["reasons"].most_common()}
        for (stage, tool, unit), row in sums.items()
    ]
