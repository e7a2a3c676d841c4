"""What other thresholds would keep, and a new version of C* assembled with them.

Everything is computed from stored scores; no model is loaded. Stored scores cannot say what positions or thresholds
beyond those sampled would add; a note says so. A new version is assembled by the same stage as in a build, in a run of
its own that lists the commits it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.build_dataset.versions import coverage_note, write_card, write_version
from flows.ledger import new_run_id, now, open_run, reporting_to
from tasks.example_limit import excess_examples
from tasks.run_shard import ShardResult, result_of
from tasks.stage import Inputs, Shard, files_of, run_stage, shards_of
from tasks.stages.assemble import ASSEMBLE, NOT_ANNOTATED, AssemblySpec, PositionFilter
from toolformer_core.config import TOOL_NAMES, AssembleConfig, check_tools, tau_f_for
from toolformer_core.errors import UnknownNameError, UsageError
from warehouse.commits import Commit, CommitKey, Dataset, Run, check_name
from warehouse.errors import StoreError
from warehouse.queries import coverage
from warehouse.schema import WHAT_IF
from warehouse.store import Store
from warehouse.what_if import CallFilter, StoredScores, count_unranked, stored_scores

__all__ = ["WhatIfQuery", "ask", "materialise"]


@dataclass(frozen=True, slots=True)
class WhatIfQuery:
    """The thresholds in use, the other ones, and notes on what stored scores cannot answer."""

    stored: StoredScores
    before: CallFilter
    after: CallFilter
    notes: tuple[str, ...]


def ask(
    snapshot: str | Path,
    tau_f: Mapping[str, float],
    top_k: int | None = None,
    tau_s: float | None = None,
    keep_repeats: bool | None = None,
) -> WhatIfQuery:
    """Return the thresholds of the current C* and the other ones, filled in from the current scores.

    Args:
        snapshot: path of the published snapshot.
        tau_f: other filtering thresholds in nats, by tool; the rest stay as they are.
        top_k: positions per document, for every tool; None: as sampled.
        tau_s: sampling threshold, for every tool; None: as sampled.
        keep_repeats: whether calls that are repeated nearby are kept; None: as C* was assembled.

    Raises:
        UsageError: a tool has no scores, or stored scores can answer nothing of the query.
        SnapshotError: there is no snapshot.
    """
    scores = stored_scores(snapshot)
    if not scores.sampled:
        raise UsageError("no scores are stored yet: run toolformer build to its end first")
    for tool in tau_f:
        if tool not in scores.sampled:
            raise UnknownNameError("tool", tool, scores.sampled)
    config: Mapping[str, Any] = scores.assembled
    before = CallFilter(
        tau_f={tool: tau_f_for(tool, config.get("tau_f")) for tool in scores.sampled},
        top_k=dict(config.get("top_k", {})),
        tau_s=dict(config.get("tau_s", {})),
        keep_repeats=bool(config.get("keep_repeats", False)),
    )
    fewer, higher = dict(before.top_k), dict(before.tau_s)
    notes: list[str] = []
    for tool, sampled in scores.sampled.items():
        if top_k is not None and top_k > sampled["top_k"]:
            notes.append(_unknown(tool, "k", sampled["top_k"], f"--top-k {top_k}"))
        if tau_s is not None and tau_s < sampled["tau_s"]:
            notes.append(_unknown(tool, "tau_s", sampled["tau_s"], f"--tau-s {tau_s:g}"))
        if top_k is not None:
            fewer = _with(fewer, tool, top_k, top_k < sampled["top_k"])
        if tau_s is not None:
            higher = _with(higher, tool, tau_s, tau_s > sampled["tau_s"])
    if notes and not tau_f and keep_repeats is None and (fewer, higher) == (dict(before.top_k), dict(before.tau_s)):
        raise UsageError(notes[0])
    if fewer and (lost := count_unranked(snapshot)):
        notes.append(
            f"{lost:,} calls take no part under --top-k: the draws they came from are gone, and their ranks with them"
        )
    notes += map(str, coverage(snapshot))
    repeats = before.keep_repeats if keep_repeats is None else keep_repeats
    return WhatIfQuery(scores, before, CallFilter({**before.tau_f, **tau_f}, fewer, higher, repeats), tuple(notes))


def _unknown(tool: str, parameter: str, sampled: Any, option: str) -> str:
    return (
        f"{tool} was sampled with {parameter} = {sampled:g}: what {option} would add cannot be known from the stored "
        f"scores; toolformer build {option} finds out"
    )


def _with(values: dict[str, Any], tool: str, value: Any, narrows: bool) -> dict[str, Any]:
    rest = {name: other for name, other in values.items() if name != tool}
    return {**rest, tool: value} if narrows else rest


def materialise(store: Store, asked: WhatIfQuery, name: str) -> Dataset:
    """Assemble C* with the other thresholds, as a new version of a dataset.

    Args:
        store: the data.
        asked: the query that `ask` returned.
        name: name of the dataset.

    Raises:
        UsageError: the name is unsafe, or the build that made the scores has not finished.
        WarehouseError: data is damaged, or the result could not be written.
    """
    try:
        check_name("dataset", name)
    except StoreError as exc:
        raise UsageError(f"--materialise: {exc}") from exc
    base = _base(store, asked)
    config: Mapping[str, Any] = asked.stored.assembled
    overrides = {
        **config.get("tau_f", {}),
        **{t: v for t, v in asked.after.tau_f.items() if v != asked.before.tau_f[t]},
    }
    positions = PositionFilter(asked.after.top_k, asked.after.tau_s)
    run = Run(
        run_id=new_run_id(),
        flow=WHAT_IF,
        started=now(),
        finished=None,
        state="running",
        parameters={
            **base.run.parameters,
            "dataset": name,
            "tau_f": overrides,
            "narrowing": _plain(positions),
            "keep_repeats": asked.after.keep_repeats,
        },
        corpus=base.run.corpus,
        model=base.run.model,
    )
    assembly = AssemblySpec(
        run_id=run.run_id,
        data=store.root,
        config=AssembleConfig(
            overrides, config.get("max_examples", 25_000), config.get("seed", 0), keep_repeats=asked.after.keep_repeats
        ),
        tool_names={tool: TOOL_NAMES[tool] for tool in base.tools},
        positions=positions,
        not_annotated=base.not_annotated,
    )
    notes = "Assembled from stored scores by `toolformer what-if`." + (
        f" Of the positions that were sampled, these take part: {_plain(positions)}." if positions else ""
    )
    with open_run(store, run) as ledger, reporting_to(_ignore):
        ledger.expect("assemble", len(base.shards))
        assembly = replace(assembly, excess=excess_examples(assembly, base.scored, base.sampled))
        parts = [run_stage(ASSEMBLE, base.inputs(assembly, shard)) for shard in base.shards]
        notes = "\n\n".join(filter(None, (notes, coverage_note(store, parts))))
        for result in base.reused:
            ledger.expect(result.key.stage, 1)
            ledger.add(result)
        for part in parts:
            ledger.add(part)
        licence = str(base.run.parameters.get("licence", ""))
        with ledger.own_snapshot() as snapshot:
            dataset = write_version(ledger, name, parts, base.tools, overrides, snapshot, licence=licence, notes=notes)
    write_card(store, dataset)
    return dataset


@dataclass(frozen=True, slots=True)
class _Base:
    """The run whose scores are used, and its results that a new version is assembled from."""

    run: Run
    tools: tuple[str, ...]
    shards: list[Shard]
    scored: dict[str, list[ShardResult]]  # shard -> the losses, of every tool
    sampled: dict[str, list[ShardResult]]
    not_annotated: dict[str, list[str]]  # shard -> tools that had enough examples before it
    reused: list[ShardResult]  # of all stages but `assemble`

    def inputs(self, assembly: AssemblySpec, shard: Shard) -> Inputs[AssemblySpec]:
        files = {"ingest": (shard.documents,), "score": files_of(self.scored[shard.name])}
        if assembly.positions:
            files["sample"] = files_of(self.sampled[shard.name])
        return Inputs(assembly, shard.name, files=files)


def _base(store: Store, asked: WhatIfQuery) -> _Base:
    """Return the run that made the current scores.

    Raises:
        UsageError: there is none, or it has not scored every shard.
    """
    runs = store.runs([asked.stored.run_id]) if asked.stored.run_id else []
    if not runs:
        raise UsageError("the scores belong to no run: run toolformer build to its end first")
    run = runs[0]
    tools = check_tools(run.parameters["tools"])
    commits = [c for key in run.commits if key.stage != "assemble" and (c := store.read_commit(key)) is not None]
    results = {(c.stage, c.tool, c.shard): result_of(c, skipped=True) for c in commits}
    shards = [shard for key, result in results.items() if key[0] == "ingest" for shard in shards_of(result)]
    assembled = {c.shard: c.config for key in run.commits if (c := _assembled(store, key)) is not None}
    missing = {s.name: list(assembled.get(s.name, {}).get(NOT_ANNOTATED, ())) for s in shards}
    try:
        scored, sampled = (
            {s.name: [results[stage, tool, s.name] for tool in tools if tool not in missing[s.name]] for s in shards}
            for stage in ("score", "sample")
        )
    except KeyError as exc:
        raise UsageError(f"run {run.run_id} has not scored every shard: run the same toolformer build again") from exc
    return _Base(run, tools, shards, scored, sampled, missing, list(results.values()))


def _assembled(store: Store, key: CommitKey) -> Commit | None:
    return store.read_commit(key) if key.stage == "assemble" else None


def _ignore(stage: str, finished: int, total: int, result: ShardResult) -> None:
    """Report progress to nobody."""


def _plain(positions: PositionFilter) -> dict[str, Any]:
    return {"top_k": dict(positions.top_k), "tau_s": dict(positions.tau_s)}
