"""The flow `build_dataset`: corpus to C*.

Per tool and shard, prefilter -> sample -> execute -> score runs as a task of its own, with no barrier between shards;
then C* is assembled. The flow process alone holds the catalog, under its lock, and publishes the snapshot that users
query, at least every 30 seconds while shards finish. It decides nothing about the method.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.futures import PrefectFuture, as_completed

from flows.artifacts import named, publish_link, publish_summary, showing
from flows.build_tracking import tracked_build
from flows.ledger import Ledger, keeping, new_run_id, now
from flows.parameters import BuildParameters, resolve
from flows.runners import check_gpus, grouped, model_resources, on, running, taking, tasks_at_most
from flows.server import note_server
from flows.summaries import build_summary
from flows.versions import write_card, write_version
from tasks.assembling import over_limit
from tasks.settings import shared_catalog
from tasks.shards import Done, telling
from tasks.spec import BuildSpec
from tasks.stages import (
    annotate_shards,
    assemble_shards,
    ingest_corpus,
)
from tasks.works import Assembly, Shard, shards_of
from toolformer_core.errors import UsageError
from toolformer_core.records import digest_of
from warehouse.commits import Dataset, Run
from warehouse.queries import gain_histogram, stats
from warehouse.store import Store

__all__ = ["BuildResult", "build_dataset", "run_build"]

# What helps where no row at all could be used, by the reason for which rows are rejected.
_ADVICE = {
    "no_text": "name one with --text-column",
    "not_utf8": "convert the corpus to UTF-8, e.g. by iconv",
    "broken_json": "each line must hold one JSON object",
    "not_an_object": "each line must hold one JSON object",
}


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build left behind."""

    run_id: str
    dataset: str
    version: str
    snapshot: str
    examples: int
    counts: dict[str, int]  # tool -> examples holding one of its calls
    done: int  # shards of stages worked on
    skipped: int  # ... and found done before
    seconds: float


@dataclass(slots=True)
class _Submitted:
    """The futures of a build's tasks, one for each group of shards."""

    groups: list[tuple[Shard, ...]]
    annotated: list[list[PrefectFuture[list[tuple[Done, ...]]]]] = field(default_factory=list)  # ... and of every tool
    assembled: list[PrefectFuture[list[Done]]] = field(default_factory=list)  # parts of C*; [] until they can be


def _submitted(spec: BuildSpec, shards: Sequence[Shard]) -> _Submitted:
    """Submit every task. Where no tool can have too many examples, a shard is assembled as soon as it is scored."""
    most = tasks_at_most()
    out = _Submitted(grouped(_in_turn(spec, shards), most and most // (len(spec.tools) + 1)))
    resources = model_resources()
    within_limit = sum(shard.documents.rows for shard in shards) <= spec.assemble.max_examples
    for group in out.groups:
        with taking(resources):
            annotated: Any = [annotate_shards.submit(spec, tool, group) for tool in spec.tools]
        out.annotated.append(annotated)
        if within_limit:
            assembled: Any = assemble_shards.submit(spec, group, annotated, {})
            out.assembled.append(assembled)
    return out


def _in_turn(spec: BuildSpec, shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards in the order in which they are begun: flows that share them begin at different ones."""
    if shared_catalog() is None:
        return list(shards)
    return sorted(shards, key=lambda shard: digest_of(spec.run_id, shard.name))


@flow(name="build-dataset", flow_run_name=named("build {dataset} from {corpus} with {model}, {tools} tools"))
def build_dataset(parameters: BuildParameters) -> BuildResult:
    """Annotate a corpus with tool calls and keep those that help: corpus to C*.

    Args:
        parameters: corpus, model, tools and thresholds.
    """
    begin = time.monotonic()
    note_server()
    check_gpus(parameters.workers, parameters.gpus)  # before a corpus is read
    spec = resolve(parameters, run_id=new_run_id())
    store = spec.store()
    run = Run(
        run_id=spec.run_id,
        flow="build-dataset",
        started=now(),
        finished=None,
        state="running",
        parameters={**parameters.model_dump(mode="json"), "data": store.root},  # a URL may hold keys
        corpus=parameters.corpus,
        model=parameters.model,
    )
    with keeping(store, run) as ledger, showing(ledger, get_run_logger()), running(parameters.workers, parameters.gpus):
        files = _build(spec, store, ledger)
        dataset = write_version(
            ledger,
            parameters.dataset,
            files,
            spec.tools,
            spec.assemble.tau_f,
            licence=parameters.licence,
        )
    card = write_card(store, dataset, ledger.snapshot)
    fresh = ledger.skipped < len(ledger.keys)
    tracked = tracked_build(store, parameters.data, dataset) if fresh else None
    _tell(card, dataset, ledger.snapshot, tracked)
    return BuildResult(
        run_id=spec.run_id,
        dataset=dataset.name,
        version=dataset.version,
        snapshot=str(ledger.snapshot),
        examples=sum(f.rows for f in dataset.files),
        counts=dataset.counts,
        done=len(ledger.keys) - ledger.skipped,
        skipped=ledger.skipped,
        seconds=time.monotonic() - begin,
    )


def _tell(card: str, dataset: Dataset, snapshot: Path, tracked: tuple[str, str | None] | None) -> None:
    """Leave a summary with the flow run, and a link to its MLflow run if there is one."""
    run_id, address = tracked or ("", None)
    found, gains = stats(snapshot), gain_histogram(snapshot)
    told = build_summary(card, dataset, found.balances, gains, str(snapshot), address or (run_id and f"run {run_id}"))
    publish_summary(told, "build-summary")
    publish_link(address, "build-mlflow-run", "The run in MLflow")


def _build(spec: BuildSpec, store: Store, ledger: Ledger) -> list[Done]:
    ledger.expect("ingest", 1)
    ingested = ingest_corpus(spec)
    ledger.add(ingested)
    shards = shards_of(ingested)
    if not shards:
        raise UsageError(f"no row of {spec.corpus} is a usable document: {_why_rejected(store, ingested)}")
    for stage in ("prefilter", "sample", "execute", "score"):
        ledger.expect(stage, len(shards) * len(spec.tools))
    ledger.expect("assemble", len(shards))
    with telling(ledger.note):
        tasks = _submitted(spec, shards)
    futures: list[PrefectFuture[Any]] = [future for own in tasks.annotated for future in own]
    for future in as_completed([*futures, *tasks.assembled]):
        for finished in future.result():
            for done in finished if isinstance(finished, tuple) else (finished,):
                ledger.add(done)
    if not tasks.assembled:
        annotated = [[future.result() for future in own] for own in tasks.annotated]
        scored = {
            shard.name: [stages[-1] for stages in of_tools]
            for group, own in zip(tasks.groups, annotated, strict=True)
            for shard, of_tools in zip(group, zip(*own, strict=True), strict=True)
        }
        over = over_limit(Assembly(store, spec.run_id, spec.assemble, spec.tool_names), scored)
        for group, own in zip(tasks.groups, annotated, strict=True):
            some: Any = assemble_shards.submit(spec, group, own, {shard.name: over[shard.name] for shard in group})
            tasks.assembled.append(some)
        for future in as_completed(tasks.assembled):
            for done in future.result():
                ledger.add(done)
    parts = {done.key.shard: done for future in tasks.assembled for done in future.result()}
    return [parts[shard.name] for shard in shards]


def _why_rejected(store: Store, ingested: Done) -> str:
    """Return the reasons with their counts, the commonest first, and what can be done about the first of them."""
    counts: Counter[str] = Counter()
    for balance in ingested.balances:
        counts.update({**balance.dropped, **balance.failed})
    order = sorted(
        counts, key=lambda reason: (-counts[reason], list(_ADVICE).index(reason) if reason in _ADVICE else 9)
    )
    told = {reason: f"{reason} {counts[reason]:,}" for reason in order}
    first = next((reason for reason in order if reason in _ADVICE), None)
    if first is not None:
        detail = f"{_first_detail(store, ingested, first)}: " if first == "no_text" else ""
        told[first] += f" ({detail}{_ADVICE[first]})"
    return ", ".join(told.values()) + "; every row's own is in the table rejects of the data folder's warehouse.duckdb"


def _first_detail(store: Store, ingested: Done, reason: str) -> str:
    commit = store.recorded(ingested.key)
    for file in commit.files if commit is not None else ():
        if file.path.startswith("rejects/"):
            rows = store.read(file, columns=["reason", "detail"]).to_pylist()
            if (found := next((row["detail"] for row in rows if row["reason"] == reason), None)) is not None:
                return str(found)
    return ""


def run_build(parameters: BuildParameters, runner: str | None = None) -> BuildResult:
    """Run the flow in this process.

    Args:
        runner: `threads`, `dask` (a local cluster of `parameters.workers` processes), or a Dask scheduler's address;
            default: as $TOOLFORMER_RUNNER says, else threads.

    Raises:
        UsageError: something asked for is wrong.
    """
    with on(runner):
        return build_dataset(parameters)
