"""Other thresholds than those a dataset was assembled with: what they would give, and C* assembled by them.

Everything comes from stored scores; no model is loaded. What is asked beyond what was sampled cannot be known from
them, and is said in a note. A new version is assembled by the same code as a build's (`tasks.assembling`), inside a run
of its own that names the commits it rests on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.ledger import keeping, new_run_id, now, reporting_to
from flows.versions import coverage_note, write_card, write_version
from tasks.assembling import assemble_part, over_limit
from tasks.shards import Done, done_of
from tasks.works import NOT_ANNOTATED, Assembly, Narrowing, Shard, shards_of
from toolformer_core.config import TOOL_NAMES, AssembleConfig, check_tools, tau_f_for
from toolformer_core.errors import UnknownNameError, UsageError
from warehouse.commits import Commit, CommitKey, Dataset, Run, check_name
from warehouse.errors import StoreError
from warehouse.queries import coverage
from warehouse.schema import WHAT_IF
from warehouse.store import Store
from warehouse.what_if import Choice, Stored, stored, unranked

__all__ = ["Asked", "ask", "materialise"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is kept now, what would be kept instead, and what cannot be known."""

    stored: Stored
    before: Choice
    after: Choice
    notes: tuple[str, ...]


def ask(
    snapshot: str | Path,
    tau_f: Mapping[str, float],
    top_k: int | None = None,
    tau_s: float | None = None,
    keep_repeats: bool | None = None,
) -> Asked:
    """Complete a choice by what the current scores hold.

    Args:
        snapshot: the warehouse's.
        tau_f: filtering thresholds in nats, of the tools that are to have another one.
        top_k: positions per document, for every tool; None: as they were sampled.
        tau_s: sampling threshold, for every tool; None: as they were sampled.
        keep_repeats: whether calls that are repeated nearby are kept; None: as C* was assembled.

    Raises:
        UsageError: a tool has no scores, or nothing that is asked can be known from them.
        SnapshotError: there is no snapshot.
    """
    found = stored(snapshot)
    if not found.sampled:
        raise UsageError("no scores are stored yet: run toolformer build to its end first")
    for tool in tau_f:
        if tool not in found.sampled:
            raise UnknownNameError("tool", tool, found.sampled)
    own: Mapping[str, Any] = found.assembled
    before = Choice(
        tau_f={tool: tau_f_for(tool, own.get("tau_f")) for tool in found.sampled},
        top_k=dict(own.get("top_k", {})),
        tau_s=dict(own.get("tau_s", {})),
        keep_repeats=bool(own.get("keep_repeats", False)),
    )
    fewer, higher = dict(before.top_k), dict(before.tau_s)
    notes: list[str] = []
    for tool, config in found.sampled.items():
        if top_k is not None and top_k > config["top_k"]:
            notes.append(_unknown(tool, "k", config["top_k"], f"--top-k {top_k}"))
        if tau_s is not None and tau_s < config["tau_s"]:
            notes.append(_unknown(tool, "tau_s", config["tau_s"], f"--tau-s {tau_s:g}"))
        if top_k is not None:
            fewer = _with(fewer, tool, top_k, top_k < config["top_k"])
        if tau_s is not None:
            higher = _with(higher, tool, tau_s, tau_s > config["tau_s"])
    if notes and not tau_f and keep_repeats is None and (fewer, higher) == (dict(before.top_k), dict(before.tau_s)):
        raise UsageError(notes[0])
    if fewer and (lost := unranked(snapshot)):
        notes.append(
            f"{lost:,} calls take no part under --top-k: the draws they came from are gone, and with them ranks"
        )
    notes += map(str, coverage(snapshot))
    repeats = before.keep_repeats if keep_repeats is None else keep_repeats
    return Asked(found, before, Choice({**before.tau_f, **tau_f}, fewer, higher, repeats), tuple(notes))


def _unknown(tool: str, what: str, had: Any, option: str) -> str:
    return (
        f"{tool} was sampled with {what} = {had:g}: what {option} would add cannot be known from the stored scores; "
        f"toolformer build {option} finds out"
    )


def _with(values: dict[str, Any], tool: str, value: Any, narrows: bool) -> dict[str, Any]:
    rest = {name: own for name, own in values.items() if name != tool}
    return {**rest, tool: value} if narrows else rest


def materialise(store: Store, asked: Asked, name: str) -> Dataset:
    """Assemble C* by the second choice, as a new version of a dataset.

    Args:
        store: the data.
        asked: what `ask` returned.
        name: the dataset's.

    Raises:
        UsageError: the name is unsafe, or the build whose scores they are has not finished.
        WarehouseError: data is damaged, or the result could not be written.
    """
    try:
        check_name("dataset", name)
    except StoreError as exc:
        raise UsageError(f"--materialise: {exc}") from exc
    base = _base(store, asked)
    own: Mapping[str, Any] = asked.stored.assembled
    overrides = {**own.get("tau_f", {}), **{t: v for t, v in asked.after.tau_f.items() if v != asked.before.tau_f[t]}}
    narrowing = Narrowing(asked.after.top_k, asked.after.tau_s)
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
            "narrowing": _plain(narrowing),
            "keep_repeats": asked.after.keep_repeats,
        },
        corpus=base.run.corpus,
        model=base.run.model,
    )
    assembly = Assembly(
        store=store,
        run_id=run.run_id,
        config=AssembleConfig(
            overrides, own.get("max_examples", 25_000), own.get("seed", 0), keep_repeats=asked.after.keep_repeats
        ),
        tool_names={tool: TOOL_NAMES[tool] for tool in base.tools},
        narrowing=narrowing,
    )
    notes = "Assembled from stored scores by `toolformer what-if`." + (
        f" Of the positions that were sampled, these take part: {_plain(narrowing)}." if narrowing else ""
    )
    with keeping(store, run) as ledger, reporting_to(_silent):
        ledger.expect("assemble", len(base.shards))
        over = over_limit(assembly, base.scored, base.sampled)
        parts = [
            assemble_part(
                assembly, s, base.scored[s.name], over[s.name], base.sampled[s.name], base.not_annotated[s.name]
            )
            for s in base.shards
        ]
        notes = "\n\n".join(filter(None, (notes, coverage_note(store, parts))))
        for done in base.reused:
            ledger.expect(done.key.stage, 1)
            ledger.add(done)
        for part in parts:
            ledger.add(part)
        licence = str(base.run.parameters.get("licence", ""))
        with ledger.own_snapshot() as snapshot:
            dataset = write_version(ledger, name, parts, base.tools, overrides, snapshot, licence=licence, notes=notes)
    write_card(store, dataset)
    return dataset


@dataclass(frozen=True, slots=True)
class _Base:
    """The run whose scores are used, and what of it a new version rests on."""

    run: Run
    tools: tuple[str, ...]
    shards: list[Shard]
    scored: dict[str, list[Done]]  # shard -> the losses, of every tool
    sampled: dict[str, list[Done]]
    not_annotated: dict[str, list[str]]  # shard -> tools that had enough examples before it
    reused: list[Done]


def _base(store: Store, asked: Asked) -> _Base:
    """Find the run whose scores are the current ones.

    Raises:
        UsageError: there is none, or it has not scored every shard.
    """
    runs = store.runs([asked.stored.run_id]) if asked.stored.run_id else []
    if not runs:
        raise UsageError("the scores belong to no run: run toolformer build to its end first")
    run = runs[0]
    tools = check_tools(run.parameters["tools"])
    found = [c for key in run.commits if key.stage != "assemble" and (c := store.recorded(key)) is not None]
    dones = {(c.stage, c.tool, c.shard): done_of(c, skipped=True) for c in found}
    shards = [shard for key, done in dones.items() if key[0] == "ingest" for shard in shards_of(done)]
    assembled = {c.shard: c.config for key in run.commits if (c := _assembled(store, key)) is not None}
    missing = {s.name: list(assembled.get(s.name, {}).get(NOT_ANNOTATED, ())) for s in shards}
    try:
        scored, sampled = (
            {s.name: [dones[stage, tool, s.name] for tool in tools if tool not in missing[s.name]] for s in shards}
            for stage in ("score", "sample")
        )
    except KeyError as exc:
        raise UsageError(f"run {run.run_id} has not scored every shard: run the same toolformer build again") from exc
    return _Base(run, tools, shards, scored, sampled, missing, list(dones.values()))


def _assembled(store: Store, key: CommitKey) -> Commit | None:
    return store.recorded(key) if key.stage == "assemble" else None


def _silent(stage: str, finished: int, total: int, done: Done) -> None:
    """Tell nobody of progress."""


def _plain(narrowing: Narrowing) -> dict[str, Any]:
    return {"top_k": dict(narrowing.top_k), "tau_s": dict(narrowing.tau_s)}
