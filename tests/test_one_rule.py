"""Assembling C*, what-if and the viewer keep the same calls: those of the plain rule, of ten thousand random ones."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wh_fixtures import put, scored, snapshot_of

from tasks.shards import arrow
from tasks.shards.stage import Inputs
from tasks.stages.assemble import AssemblySpec, judged_calls
from tests.support.plain_filter import plain_reasons
from toolformer_core.annotate.call_filter import CallFilter
from toolformer_core.config import AssembleConfig
from toolformer_core.records import ScoredCall
from viewer.data import ViewedData
from warehouse.commits import Commit
from warehouse.queries import CallInContext, Yield, rows_of, yield_by_threshold
from warehouse.store import Store
from warehouse.what_if import what_if

TOOLS = ("calculator", "mt", "qa")
GAINS = [n / 8 for n in range(-4, 17)]  # few and exact, so that calls gain alike


def random_call(chosen: random.Random, doc: str, position: int) -> dict[str, Any]:
    seen = {"seen_before": chosen.random() < 0.5, "seen_after": chosen.random() < 0.5}
    gain, input = (float("nan") if chosen.random() < 0.05 else chosen.choice(GAINS)), chosen.choice("abc")
    row = scored(doc, chosen.choice(TOOLS), position, gain, input=input, response=input.upper(), **seen)
    more = {} if chosen.random() > 0.1 else {"loss_call": None, "loss_plain": 3.0 + gain}
    return {**row, "log_p": -float(position), "window_end": position + chosen.choice([2, 3]), **more}


def write_shard(store: Store, chosen: random.Random, shard: str, calls: int) -> dict[str, tuple[Any, ...]]:
    """Write a shard of so many single calls and some chains behind them; return the files that assembling reads."""
    docs = [f"{shard}-{n}" for n in range(calls // 20)]
    unique = {}
    while len(unique) < calls:
        row = random_call(chosen, chosen.choice(docs), chosen.randrange(8))
        unique.setdefault((row["doc_id"], row["tool"], row["position"], row["input"]), row)
    single, chains = list(unique.values()), {}
    for first in chosen.sample(single, calls // 5):
        links = [{name: first[name] for name in ("tool", "input", "response")}]
        chain = random_call(chosen, first["doc_id"], first["position"])
        row = {**chain, "preceding_calls": links, "log_p": 0.0}
        row["loss_shorter"] = row["loss_plain"]
        chains[row["doc_id"], row["tool"], row["position"], row["input"], tuple(links[0].values())] = row
    put(store, "ingest", "", shard, [{"doc_id": doc, "text": f"text of {doc}"} for doc in docs])

    def files(stage: str, rows: Iterable[dict[str, Any]]) -> tuple[Any, ...]:
        own = {tool: [row for row in rows if row["tool"] == tool] for tool in TOOLS}
        made: list[Commit] = [put(store, stage, tool, shard, rows) for tool, rows in own.items()]
        return tuple(file for commit in made for file in commit.files)

    drawn = [{**row, "rank": row["position"], "outcome": "ok"} for row in single]
    return {
        "sample": files("sample", drawn),
        "score": files("score", single),
        "score_2": files("score_2", chains.values()),
    }


def config_of(choice: CallFilter) -> AssembleConfig:
    repeats = {tool: tool in choice.keep_repeats for tool in TOOLS}
    return AssembleConfig(choice.tau_f, 10**6, 0, repeats, choice.top_k, choice.tau_s)


def identity(call: ScoredCall | CallInContext) -> tuple[Any, ...]:
    links = tuple((one.tool, one.input) for one in call.preceding_calls)
    return call.doc_id, call.position, call.tool, call.input, links


def test_assemble_what_if_and_the_viewer_keep_the_calls_of_the_plain_rule(tmp_path: Path) -> None:
    chosen, store = random.Random(1), Store(tmp_path)
    shards = {f"s{n}": write_shard(store, chosen, f"s{n}", 1700) for n in range(5)}
    put(store, "assemble", "", "s0", [], config={})
    before = CallFilter(dict.fromkeys(TOOLS, 0.5))
    after = CallFilter(
        {"calculator": 0.0, "mt": 0.75, "qa": 1.0},
        {"mt": 6, "qa": 3},
        {"calculator": 0.005},  # e^-5 = 0.0067
        frozenset({"qa"}),
    )
    files = [file for own in shards.values() for stage in ("score", "score_2") for file in own[stage]]
    calls = [call for file in files for call in arrow.scored_of(store.read(file))]
    assert len(calls) > 10_000
    ranks = {(call.tool, call.doc_id, call.position): call.position for call in calls if not call.preceding_calls}
    plain = [dict(zip(map(identity, calls), plain_reasons(calls, one, ranks), strict=True)) for one in (before, after)]
    was, becomes = ({call for call, reason in reasons.items() if not reason} for reasons in plain)
    assert {"", "position_left_out", "seen_only_after", "shorter_chain", "lower_gain"} <= set(plain[1].values())
    assert "repeated_nearby" in plain[0].values()

    for choice, reasons in zip((before, after), plain, strict=True):
        spec = AssemblySpec("r", store.root, config_of(choice), {tool: tool for tool in TOOLS})
        judged = [judged_calls(Inputs(spec, shard, files=own)) for shard, own in shards.items()]
        assert {identity(call) for one in judged for call in one.kept} == {c for c, why in reasons.items() if not why}
        dropped = sum(sum(one.reasons.values()) for one in judged)
        assert dropped == sum(map(bool, reasons.values()))

    path = snapshot_of(store)
    found = what_if(path, before, after, n=len(calls))
    viewed = ViewedData(str(tmp_path))
    listed = viewed.calls().moved(before, after, len(calls))
    for comes, goes in ((found.comes, found.goes), (listed.comes.calls, listed.goes.calls)):
        assert {identity(call) for call in comes} - {identity(call) for call in goes} == becomes - was
        assert {identity(call) for call in goes} - {identity(call) for call in comes} == was - becomes
    page = viewed.calls().by_gain(after, len(calls), outcome="kept")
    assert (page.total, {identity(call) for call in page.calls}) == (len(becomes), becomes)
    assert [change.after for change in found.changes] == viewed.calls().yields(after) == counted(becomes, after.tau_f)

    # and so does SQL, which reads what the snapshot holds of the rule
    [shared] = [one for one in yield_by_threshold(path) if (one.tool, one.tau_f) == ("qa", 0.5)]
    assert shared == counted(was, before.tau_f)[-1]
    lowest = CallFilter(dict.fromkeys(TOOLS, -9.0), keep_repeats=frozenset({"mt"}))  # as by default
    reasons = plain_reasons(calls, lowest)
    best = {identity(c) for c, why in zip(calls, reasons, strict=True) if not (why or c.preceding_calls)}
    rows = rows_of(path, 'SELECT doc_id, "position", tool, input FROM best_calls')
    assert {(*row.values(), ()) for row in rows} == best


def counted(kept: Iterable[tuple[Any, ...]], tau_f: Any) -> list[Yield]:
    links = [(tool, call[0]) for call in kept for tool in (call[2], *(tool for tool, _ in call[4]))]
    return [
        Yield(tool, tau_f[tool], len({link for link in links if link[0] == tool}), sum(t == tool for t, _ in links))
        for tool in sorted(TOOLS)
    ]
