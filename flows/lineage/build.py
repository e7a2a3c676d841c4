"""The steps of a flow run, from its commits: one for the run, and one for each stage and tool.

A commit names the files that it read by their digests. Where files of several tables have the same bytes (two empty
ones), the stage's declaration says which of them it reads.
"""

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flows.lineage.names import benchmark_at, model_at, place, table_at, training_of
from flows.lineage.steps import Data, Step
from tasks.stages import BUILD_STAGES, EVALUATION_STAGES
from warehouse.commits import Commit, DataFile, Run, canonical_json, digest
from warehouse.schema import CALL_OUTCOMES, REJECTS, STAGES, TABLES
from warehouse.store import Store

_DECLARED = {stage.name: stage for stage in (*BUILD_STAGES, *EVALUATION_STAGES)}
_RANK = {name: rank for rank, name in enumerate(_DECLARED)}
_TYPES = {"int64": "long", "large_string": "string"}  # as other producers name them
_PROGRAM = "toolformer-platform"  # the package whose version is that of this program
_MODELS = ("model", "large_model")  # in the config of commits, with `<name>_digest` beside it

_Key = tuple[str, str]  # stage and tool


@dataclass(slots=True)
class _Table:
    commits: list[Commit] = field(default_factory=list)
    files: dict[str, DataFile] = field(default_factory=dict)  # by path
    rejects: dict[str, DataFile] = field(default_factory=dict)
    outcomes: dict[str, DataFile] = field(default_factory=dict)  # of calls

    def add(self, commit: Commit) -> None:
        self.commits.append(commit)
        for file in commit.files:
            rejected = file.path.startswith("rejects/")
            (self.files if file.is_result else self.rejects if rejected else self.outcomes)[file.path] = file


def run_steps(store: Store, run: Run, checkpoints: Mapping[str, str]) -> list[Step]:
    """Return the steps of a flow run, its own first, then by stage; `checkpoints` are paths by training job."""
    tables: dict[_Key, _Table] = defaultdict(_Table)
    for key in run.commits:
        if (commit := store.read_commit(key)) is not None:
            tables[key.stage, key.tool].add(commit)
    tables = {key: tables[key] for key in sorted(tables, key=lambda key: (_RANK.get(key[0], len(_RANK)), key))}
    commits = [commit for table in tables.values() for commit in table.commits]
    return [_run_step(run, commits), *(_stage_step(store, run, key, tables, checkpoints) for key in tables)]


def _run_step(run: Run, commits: Sequence[Commit]) -> Step:
    facts = {name: getattr(run, name) for name in ("flow", "corpus", "model", "dataset", "parameters")}
    return Step(
        job=run.flow,
        run=run.run_id,
        kind="FLOW",
        about="A flow run; its stages are runs of jobs of their own.",
        state=run.state,
        started=run.started,
        ended=run.finished or "",
        program=_versions(commits).get(_PROGRAM, ""),
        facts={**facts, **_work(run, commits)},
    )


def _stage_step(
    store: Store, run: Run, key: _Key, tables: Mapping[_Key, _Table], checkpoints: Mapping[str, str]
) -> Step:
    stage, tool = key
    table = tables[key]
    started, ended = _times(run, table.commits)
    written = (
        ("shards", key, table.files),
        ("rejects", key, table.rejects),
        ("shards", (CALL_OUTCOMES, tool), table.outcomes),
    )
    inputs = [*_sources(run, table.commits), *_tables_read(store, key, tables)]
    return Step(
        job=".".join(filter(None, (run.flow, stage, tool))),
        run=run.run_id,
        kind="STAGE",
        about=STAGES[stage].about if stage in STAGES else f"The stage {stage}.",
        state=run.state,
        started=started,
        ended=ended,
        inputs=(*inputs, *_models(run, table.commits, checkpoints)),
        outputs=tuple(_table(store, folder, at, files.values()) for folder, at, files in written if files),
        parent=(run.flow, run.run_id),
        program=_versions(table.commits).get(_PROGRAM, ""),
        facts={
            "stage": stage,
            "tool": tool,
            "stageVersion": ", ".join(sorted({commit.stage_version for commit in table.commits})),
            "rows": _rows(table.commits),
            "parts": _common_parts(table.commits),
            **_work(run, table.commits),
        },
    )


def _tables_read(store: Store, key: _Key, tables: Mapping[_Key, _Table]) -> Iterator[Data]:
    read = {read for commit in tables[key].commits for read in commit.inputs}
    for other, table in tables.items():
        files = [file for file in table.files.values() if file.digest in read]
        if files and _may_read(key, other):
            yield _table(store, "shards", other, files, table.files.values())


def _may_read(key: _Key, other: _Key) -> bool:
    declared = _DECLARED.get(key[0])
    if declared is None:
        return other[0] != key[0] and (not key[1] or other[1] in ("", key[1]))
    return declared.is_read_for(key[1], *other)


def _table(
    store: Store, folder: str, key: _Key, files: Iterable[DataFile], whole: Iterable[DataFile] | None = None
) -> Data:
    """Return a stage's table as it is read or written: `files` of it, of `whole`, by which its version is named."""
    stage, tool = key
    schema = REJECTS if folder == "rejects" else STAGES[stage].schema if stage in STAGES else TABLES.get(stage, ())
    columns = tuple((field.name, _type(field.type)) for field in schema)
    return contents(table_at(store, folder, stage, tool or "_"), files, columns, {"stage": stage, "tool": tool}, whole)


def contents(
    at: tuple[str, str],
    files: Iterable[DataFile],
    columns: tuple[tuple[str, str], ...] = (),
    facts: Mapping[str, Any] | None = None,
    whole: Iterable[DataFile] | None = None,
    version: str = "",
) -> Data:
    """Return data files as a dataset; without a version of its own it is named by the files' digests, in any order."""
    listed = list(files)
    named = digest(canonical_json(sorted(file.digest for file in (listed if whole is None else whole))))
    return Data(
        *at,
        kind="TABLE",
        version=version or named[:16],
        rows=sum(file.rows for file in listed),
        bytes=sum(file.bytes for file in listed),
        files=len(listed),
        columns=columns,
        facts={**(facts or {}), "digest": named},
    )


def _type(kind: Any) -> str:
    text = str(kind).partition("<")[0]
    return _TYPES.get(text, "array" if text == "list" else text)


def _sources(run: Run, commits: Sequence[Commit]) -> Iterator[Data]:
    for commit in commits:
        if commit.stage == "ingest":
            rows = sum(balance.rows_in for balance in commit.balances)
            yield Data(*place(run.corpus), kind="FILE", version=commit.parts.get("inputs", ""), rows=rows)
        if commit.stage == "benchmark":
            at = benchmark_at(str(commit.config.get("task", "")), str(commit.config.get("path") or ""))
            yield Data(*at, kind="FILE", version=commit.parts.get("source", ""))


def _models(run: Run, commits: Sequence[Commit], checkpoints: Mapping[str, str]) -> list[Data]:
    models: dict[tuple[str, str], Data] = {}
    for commit in commits:
        for name, version in _named_models(run, commit):
            named = model(name, version, checkpoints)
            models.setdefault(named.key, named)
    return [models[key] for key in sorted(models)]


def model(name: str, version: str, checkpoints: Mapping[str, str]) -> Data:
    """Return a model that was used or trained; a checkpoint of this data folder has its training's version."""
    trained = training_of(name, checkpoints).rpartition("-")[2]
    facts = {"digest": version} if version else {}
    return Data(*model_at(name, checkpoints), kind="MODEL", version=trained or version, facts=facts)


def _named_models(run: Run, commit: Commit) -> Iterator[tuple[str, str]]:
    # Evaluations have name and digest in the commit; a build has the digest there, and the name in its run.
    for name in _MODELS:
        if commit.config.get(name) and commit.config.get(f"{name}_digest"):
            yield str(commit.config[name]), str(commit.config[f"{name}_digest"])
    if "model" in commit.parts and "model_digest" not in commit.config:
        yield run.model, commit.parts["model"]
    if "encoder" in commit.parts and run.parameters.get("encoder"):
        yield str(run.parameters["encoder"]), commit.parts["encoder"]


def _times(run: Run, commits: Sequence[Commit]) -> tuple[str, str]:
    made = [(dt.datetime.fromisoformat(c.created), c.seconds) for c in commits if c.run_id == run.run_id]
    if not made:
        return run.started, run.started
    began, ended = min(end - dt.timedelta(seconds=seconds) for end, seconds in made), max(end for end, _ in made)
    return began.isoformat(timespec="microseconds"), ended.isoformat(timespec="microseconds")


def _rows(commits: Iterable[Commit]) -> list[dict[str, Any]]:
    sums: dict[str, dict[str, Counter[str]]] = {}
    for balance in (balance for commit in commits for balance in commit.balances):
        unit = sums.setdefault(balance.unit, defaultdict(Counter))
        unit["counts"].update({"in": balance.rows_in, "kept": balance.kept})
        unit["dropped"].update(balance.dropped)
        unit["failed"].update(balance.failed)
    return [
        {"unit": unit, **of["counts"], **{name: dict(sorted(of[name].items())) for name in ("dropped", "failed")}}
        for unit, of in sums.items()
    ]


def _common_parts(commits: Sequence[Commit]) -> dict[str, str]:
    first = commits[0].parts
    shared = {name for name in first if all(commit.parts.get(name) == first[name] for commit in commits)}
    return {name: first[name] for name in sorted(shared - {"inputs"})}


def _work(run: Run, commits: Sequence[Commit]) -> dict[str, Any]:
    made = [commit for commit in commits if commit.run_id == run.run_id]
    reused, seconds = len(commits) - len(made), round(sum(commit.seconds for commit in made), 3)
    return {"commits": len(commits), "reused": reused, "seconds": seconds, "versions": _versions(made)}


def _versions(commits: Iterable[Commit]) -> dict[str, str]:
    found: dict[str, set[str]] = defaultdict(set)
    for commit in commits:
        for package, version in commit.versions.items():
            found[package].add(version)
    return {package: ", ".join(sorted(versions)) for package, versions in sorted(found.items())}
