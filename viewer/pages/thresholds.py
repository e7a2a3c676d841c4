"""Move: other thresholds, their yields, the calls that would come and go, the command that does the same.

Where nothing is given for a tool, it stays as the current C* has it. The answer is `toolformer what-if`'s.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from flows.build_dataset.what_if_query import WhatIfQuery, ask
from toolformer_core.errors import UsageError
from viewer.charts import gain_chart
from viewer.data import ViewedData
from viewer.query import Query, WrongQueryError
from viewer.rendering import tool_class
from warehouse.indexed_calls import CallKey

_ROWS = 10
_MAX_TAU = 100.0  # nats
_SLIDER_TAU = 5.0  # where the slider ends; the field beside it takes more


def page(viewed: ViewedData, query: Query) -> Mapping[str, Any]:
    problem = ""
    current = viewed.thresholds()
    try:
        what_if, changes = requested(viewed, query)
    except (UsageError, WrongQueryError) as exc:  # told beside the sliders, which stay
        problem, what_if, changes = str(exc), current, {}
    before, after = what_if.before, what_if.after
    places = {f"{name}_after": None if problem else query.place(name, CallKey) for name in ("comes", "goes")}
    moved, then = viewed.calls().moved(before, after, _ROWS, **places), viewed.calls().yields(after)
    names, bins = viewed.names(), viewed.histogram()
    now = {one.tool: one for one in viewed.yields_now()}
    tools = []
    for one in then:
        tool, own = one.tool, [part for part in bins if part.tool == one.tool]
        taus = {"now": before.tau_f[tool], "then": after.tau_f[tool]}
        chart = gain_chart(names.get(tool, tool), own, taus, tool_class(tool)) if own else ""
        shown = {"key": tool, "now": now[tool], "then": one, "chart": chart, "bins": own}
        tools.append(shown | _fields(what_if, tool))
    return {
        "problem": problem,
        "notes": what_if.notes,
        "tools": tools,
        "tables": {
            **{"now": list(now.values()), "then": then, "gains": bins},
            **{"comes": moved.comes.calls, "goes": moved.goes.calls},
        },
        "repeats": query.values.get("repeats", ""),
        "lists": [
            (name, f"Calls that would be {word}", calls, query.further("/thresholds", name, calls.last, name))
            for name, word, calls in (("comes", "added", moved.comes), ("goes", "removed", moved.goes))
        ],
        "command": _command(viewed.data, changes),
        "limit": int(what_if.stored.assembled.get("max_examples", 25_000)),
        "slider_tau": _SLIDER_TAU,
    }


def requested(viewed: ViewedData, query: Query) -> tuple[WhatIfQuery, dict[str, Any]]:
    """Return the thresholds of a query string or a form, and those that are not the current ones, by option."""
    current = viewed.thresholds()
    now = current.before
    tau_f, top_k, tau_s = dict[str, float](), dict[str, int](), dict[str, float]()
    for tool, sampled in current.stored.sampled.items():
        tau = query.number(f"tau.{tool}", -_MAX_TAU, _MAX_TAU)
        k, p = query.whole(f"k.{tool}", 1), query.number(f"p.{tool}", 0, 1)
        if tau is not None and tau != now.tau_f[tool]:
            tau_f[tool] = tau
        if k is not None and k != now.top_k.get(tool, sampled["top_k"]):
            top_k[tool] = k
        if p is not None and p != now.tau_s.get(tool, sampled["tau_s"]):
            tau_s[tool] = p
    repeats = {"": None, "keep": True, "drop": False}[query.choice("repeats", ("keep", "drop"))]
    changes = {"--tau": tau_f, "--top-k": top_k, "--tau-s": tau_s, "repeats": repeats}
    return ask(viewed.snapshot, tau_f, top_k or None, tau_s or None, repeats), changes


def _fields(what_if: WhatIfQuery, tool: str) -> dict[str, Any]:
    sampled, after = what_if.stored.sampled[tool], what_if.after
    floor = what_if.stored.floors.get(tool)
    return {
        "tau": after.tau_f[tool],
        "low": -_SLIDER_TAU if floor is None else floor,
        "k": after.top_k.get(tool, sampled["top_k"]),
        "most_k": sampled["top_k"],
        "p": after.tau_s.get(tool, sampled["tau_s"]),
        "least_p": sampled["tau_s"],
    }


def _command(data: str, changes: Mapping[str, Any]) -> str:
    words = ["toolformer", "what-if"]
    for option in ("--tau", "--top-k", "--tau-s"):
        if values := changes.get(option):
            words += [option, ",".join(f"{tool}={value!r}" for tool, value in values.items())]
    if (repeats := changes.get("repeats")) is not None:
        words.append("--keep-repeats" if repeats else "--drop-repeats")
    return shlex.join([*words, "--data", data])
