"""The first page: the current build by tool, where to start, the versions of C*, and the newest runs."""

from collections.abc import Mapping
from typing import Any

from toolformer_core.errors import UsageError
from viewer.charts import funnel_chart, gain_chart
from viewer.data import ViewedData
from viewer.query import Query
from viewer.rendering import tool_class


def page(viewed: ViewedData, query: Query) -> Mapping[str, Any]:
    if not viewed.snapshot.is_file():
        return {"build": None, "tools": [], "document": None, "versions": [], "runs": []}
    made, runs, funnel, bins = viewed.versions(), viewed.rows("runs"), viewed.rows("funnel"), viewed.histogram()
    return {
        "build": viewed.build(),
        "tools": _charts(viewed, funnel),
        "document": viewed.random_document(),
        "versions": made,
        "runs": runs,
        "tables": {"funnel": funnel, "gains": bins, "versions": made, "runs": runs},
    }


def _charts(viewed: ViewedData, funnel: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        tau_f: Mapping[str, float] = viewed.thresholds().before.tau_f
    except UsageError:  # nothing is scored yet
        tau_f = {}
    names, bins = viewed.names(), viewed.histogram()
    charts = []
    for row in funnel:
        key = row["tool"]
        name, colour, own = names.get(key, key), tool_class(key), [one for one in bins if one.tool == key]
        gains = gain_chart(name, own, {"now": tau_f[key]}, colour) if own and key in tau_f else None
        stages = {stage: rows for stage, rows in row.items() if stage != "tool"}
        charts.append({"key": key, "funnel": funnel_chart(name, stages, colour), "gains": gains})
    return charts
