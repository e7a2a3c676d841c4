"""The flow `build_dataset`: corpus to C*.

Per tool and shard, prefilter -> sample -> execute -> score runs as a task of its own, with no barrier between shards;
then C* is assembled. The flow process alone holds the catalog, under its lock, and publishes the snapshot that users
query, while shards finish at least every $TOOLFORMER_REFRESH_S seconds. It decides nothing about the method.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect import flow, get_run_logger
from prefect.futures import PrefectFuture, as_completed

from flows.artifacts import named, publish_link, publish_summary, showing
from flows.build_tracking import tracked_build
from flows.filling import annotate_until_full
from flows.ledger import Ledger, keeping, new_run_id, now
from flows.notes import notes_on_build
from flows.nothing_kept import nothing_kept
from flows.parameters import BuildParameters, resolve
from flows.runners import check_gpus, grouped, model_resources, on, running, taking, tasks_at_most
from flows.server import guard_prefects_start, note_server
from flows.stopping import keep_stop_handler
from flows.summaries import build_summary
from flows.versions import coverage_note, write_card, write_version
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
from toolformer_core.prompts.load import PLACEHOLDER
from toolformer_core.records import digest_of
from warehouse.commits import Run
from warehouse.queries import gain_histogram, samples, stats
from warehouse.records import write_prompt
from warehouse.store import Store

__all__ = ["BuildResult", "build_dataset", "run_build"]

_BEST = 20  # calls that are looked at where none was kept

# What helps where no row at all could be used, by the reason for which rows are rejected.
_ADVICE = {
    "no_text": "name one with --text-column",
    "not_utf8": "convert the corpus to UTF-8, e.g. by iconv",
    "broken_json": "each row must be one JSON object",
    "not_an_object": "each row must be one JSON object",
}


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build left behind."""

    run_id: str
    dataset: str
    version: str
    made: str  # tells this way of making the version from others
    snapshot: str
    examples: int
    counts: dict[str, int]  # tool -> examples holding one of its calls
    done: int  # shards of stages worked on
    skipped: int  # ... and found done before
    seconds: float
    thresholds: dict[str, float] = field(default_factory=dict)  # tool -> tau_f, in nats
    nothing_kept: list[str] = field(default_factory=list)  # of an empty C*: what is said of it, why, what to do next


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
    within_limit = _within_limit(spec, shards)
    for group in out.groups:
        with taking(resources):
            annotated: Any = [annotate_shards.submit(spec, tool, group) for tool in spec.tools]
        out.annotated.append(annotated)
        if within_limit:
            assembled: Any = assemble_shards.submit(spec, group, annotated, {})
            out.assembled.append(assembled)
    return out


def _within_limit(spec: BuildSpec, shards: Sequence[Shard]) -> bool:
    """Say whether there are no more documents than a tool may have examples."""
    return sum(shard.documents.rows for shard in shards) <= spec.assemble.max_examples


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
    keep_stop_handler()
    check_gpus(parameters.workers, parameters.gpus)  # before a corpus is read
    spec = resolve(parameters, run_id=new_run_id())
    for note in notes_on_build(parameters):
        get_run_logger().warning(note)
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
        for prompt in spec.prompts.values():
            write_prompt(store, prompt.tool, prompt.digest, f"{prompt.head}{PLACEHOLDER}{prompt.tail}")
        files = _build(spec, store, ledger, parameters.workers)
        with ledger.own_snapshot() as own:  # the published one may speak of another run
            dataset = write_version(
                ledger,
                parameters.dataset,
                files,
                spec.tools,
                spec.assemble.tau_f,
                own,
                licence=parameters.licence,
                notes=coverage_note(store, files) if parameters.stop_when_full else "",
            )
            balances, gains, best = stats(own).balances, gain_histogram(own), samples(own, _BEST)
    examples = sum(f.rows for f in dataset.files)
    why = [] if examples else nothing_kept(balances, best, dataset.thresholds, run.parameters).lines()
    card = write_card(store, dataset)
    fresh = ledger.skipped < len(ledger.keys)
    run_id, address = (tracked_build(store, parameters.data, dataset) if fresh else None) or ("", None)
    place = address or (run_id and f"run {run_id}")
    publish_summary(build_summary(card, dataset, balances, gains, str(ledger.snapshot), place, why), "build-summary")
    publish_link(address, "build-mlflow-run", "The run in MLflow")
    return BuildResult(
        run_id=spec.run_id,
        dataset=dataset.name,
        version=dataset.version,
        made=dataset.made,
        snapshot=str(ledger.snapshot),
        examples=examples,
        counts=dataset.counts,
        done=len(ledger.keys) - ledger.skipped,
        skipped=ledger.skipped,
        seconds=time.monotonic() - begin,
        thresholds=dataset.thresholds,
        nothing_kept=why,
    )


def _build(spec: BuildSpec, store: Store, ledger: Ledger, workers: int) -> list[Done]:
    ledger.expect("ingest", 1)
    ingested = ingest_corpus(spec)
    ledger.add(ingested)
    shards = shards_of(ingested)
    if not shards:
        raise UsageError(f"no row of {spec.corpus} is a usable document: {_why_rejected(store, ingested)}")
    for stage in ("prefilter", "sample", "execute", "score"):
        ledger.expect(stage, len(shards) * len(spec.tools))
    ledger.expect("assemble", len(shards))
    if spec.stop_when_full and not _within_limit(spec, shards):
        return _build_until_full(spec, store, ledger, shards, workers)
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


def _build_until_full(
    spec: BuildSpec, store: Store, ledger: Ledger, shards: Sequence[Shard], workers: int
) -> list[Done]:
    """Annotate until every tool has enough examples, and assemble all shards; see `tasks.filling`."""
    assembly = Assembly(store, spec.run_id, spec.assemble, spec.tool_names)
    used = annotate_until_full(spec, assembly, ledger, shards, workers)
    over = over_limit(assembly, {name: [stages[-1] for stages in own.values()] for name, own in used.items()})
    futures: list[Any] = []
    for group in grouped(shards, tasks_at_most()):
        annotated: Any = [[used[shard.name].get(tool, ()) for shard in group] for tool in spec.tools]
        futures.append(assemble_shards.submit(spec, group, annotated, {s.name: over[s.name] for s in group}))
    for future in as_completed(futures):
        for done in future.result():
            ledger.add(done)
    return [done for future in futures for done in future.result()]


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
    guard_prefects_start()
    with on(runner):
        return build_dataset(parameters)
