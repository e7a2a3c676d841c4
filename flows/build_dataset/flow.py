"""The flow `build_dataset`: corpus to C*. Each stage is a task for every tool and group of shards (`pipeline`)."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed

from flows.build_dataset.notes import notes_on_build, nothing_kept
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.pipeline import run_pipeline
from flows.build_dataset.record import BuildRecord
from flows.build_dataset.remote_model import scan_notes, unseen_notes
from flows.build_dataset.resolve import resolve
from flows.build_dataset.tracking import gains_figure, try_to_track_build
from flows.build_dataset.versions import check_replaced, coverage_note, found_table, write_card, write_version
from flows.forms.resolved import resolved
from flows.report.commands import sql_command
from flows.report.markdown import rendered
from flows.report.tables import markdown_table
from flows.runtime.artifacts import embedded_picture, publish_link, publish_summary, run_name_from
from flows.runtime.ledger import Ledger
from flows.runtime.runners import check_gpus, choose_runner, tasks_at_once, workers_are_here
from flows.runtime.running import begin_flow, running
from flows.runtime.stage_tasks import run_source
from tasks.shards.corpus import PartSpec, keep_digests, part_specs
from tasks.shards.reading import read_in_process
from tasks.shards.run_shard import ShardResult
from tasks.shards.stage import Inputs, shards_of
from tasks.specs.build_spec import BuildSpec
from tasks.specs.thresholds import Decided
from tasks.stages.ingest import CORPUS, INGEST, READ, with_latest_date, with_shared_words
from tasks.viewer_links import version_page
from toolformer_core.errors import UsageError
from toolformer_core.prompts.load import PLACEHOLDER
from warehouse.queries import best_calls, gain_histogram
from warehouse.queries.builds import StageBalance, stats
from warehouse.records import write_prompt
from warehouse.store import Store

__all__ = ["BuildResult", "build_dataset", "run_build"]

# What helps where no row at all could be used, by the reason for which rows are rejected.
_ADVICE = {
    "no_text": "name one with --columns text=NAME",
    "not_utf8": "convert the corpus to UTF-8, e.g. by iconv",
    "broken_json": "each row must be one JSON object",
    "not_an_object": "each row must be one JSON object",
}


@dataclass(frozen=True, slots=True)
class BuildResult:
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
    mlflow_run: str = ""  # "": MLflow could not be reached
    runs_view: str = ""  # how to open the table of runs in MLflow


@flow(name="build-dataset", flow_run_name=run_name_from("build {dataset} from {corpus} with {model}, tools: {tools}"))
def build_dataset(parameters: BuildParameters) -> BuildResult:
    """Annotate a corpus with tool calls and keep those that help: corpus to C*."""
    begin = time.monotonic()
    begin_flow()
    check_gpus(parameters.workers, parameters.gpus)  # before a corpus is read
    spec = resolved(parameters, resolve)
    for note in (*scan_notes(spec), *notes_on_build(parameters)):
        get_run_logger().warning(note)
    store, record = spec.store(), BuildRecord.begun(parameters, spec)
    check_replaced(store, parameters)
    with running("build-dataset", spec.run_id, store, parameters, parameters.corpus, record.parameters) as ledger:
        for prompt in spec.prompts.values():
            write_prompt(store, prompt.tool, prompt.digest, f"{prompt.head}{PLACEHOLDER}{prompt.tail}")
        if spec.remote is not None:
            ledger.record("running")  # a later build recognises the model, however this one ends
        assembled, decided = _build(spec, store, ledger, parameters.workers)
        ledger.run = replace(ledger.run, parameters=dict(record.with_found(decided.found).parameters))
        unseen = unseen_notes(store, ledger.keys, spec.tools) if spec.remote is not None else []
        for note in unseen:
            get_run_logger().warning(note)
        notes = (
            "\n".join(f"- {note}" for note in unseen),
            coverage_note(store, assembled) if parameters.stop_when_full else "",
            found_table(decided.found).markdown() if decided.found else "",
        )
        with ledger.own_snapshot() as snapshot:  # the published one may describe another run
            dataset = write_version(
                ledger,
                parameters.dataset,
                assembled,
                spec.tools,
                decided.config.tau_f,
                snapshot,
                licence=parameters.licence,
                notes="\n\n".join(filter(None, notes)),
            )
            balances, gains = stats(snapshot).balances, gain_histogram(snapshot)
            examples = sum(f.rows for f in dataset.files)
            best = [] if examples else best_calls(snapshot, 20)  # it looks at every call
            why = [] if examples else nothing_kept(balances, best, dataset.thresholds, parameters, store.root)
    card = write_card(store, dataset)
    run = try_to_track_build(store, parameters.data, dataset)
    address, run_id, runs_view = (run.address, run.run_id, run.runs_view) if run is not None else (None, "", "")
    picture = embedded_picture(gains_figure(gains, dataset.thresholds), "Scored calls by gain") if gains else ""
    text = build_summary(card, balances, picture, str(ledger.snapshot), address or run_id, why)
    publish_summary(text, "build-summary", "The card of C*, its thresholds, rows by stage, and gains")
    publish_link(address, "build-mlflow-run", "The run in MLflow")
    publish_link(version_page(dataset.label), "build-viewer", "The version in the viewer")
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
        mlflow_run=run_id,
        runs_view=runs_view,
    )


def _build(spec: BuildSpec, store: Store, ledger: Ledger, workers: int) -> tuple[list[ShardResult], Decided]:
    ledger.expect(INGEST.name, 1)
    keep_digests(spec.corpus, store)
    read_corpus_parts(spec, workers)
    ingested = run_source(INGEST, spec, CORPUS)
    ledger.also_record(READ.name)
    ledger.add(ingested)
    shards = shards_of(ingested)
    if not shards:
        raise UsageError(f"no row of {spec.corpus} is a usable document: {_why_rejected(store, ingested)}")
    spec = with_shared_words(with_latest_date(spec, ingested))
    assembled, decided = run_pipeline(spec, ledger, shards, workers)
    return [assembled[shard.name] for shard in shards], decided


@task(name=READ.name, cache_policy=NO_CACHE)
def _read(parts: list[PartSpec]) -> None:
    read_in_process(parts)


def read_corpus_parts(spec: BuildSpec, workers: int) -> None:
    """Read the parts of a corpus that were not read before, as many at a time as workers; inside `use_runner`."""
    # With a limit `ingest` reads part by part itself, and no further than it must; so it does if workers are elsewhere.
    if spec.ingest.limit is not None or not workers_are_here():
        return
    if spec.store().read_commit(INGEST.shard_spec(Inputs(spec, CORPUS)).key) is not None:
        return
    parts = part_specs(spec)
    at_once = min(tasks_at_once(workers), len(parts))
    if at_once > 1:
        for future in as_completed([_read.submit(parts[first::at_once]) for first in range(at_once)]):
            future.result()


def _why_rejected(store: Store, ingested: ShardResult) -> str:
    counts = Counter(dict.fromkeys(_ADVICE, 0))  # of equally common reasons, those with advice come first
    for rows in ingested.counts:
        counts.update({**rows.dropped, **rows.failed})
    parts = {reason: f"{reason} {n:,}" for reason, n in counts.most_common() if n}
    first = next((reason for reason in parts if reason in _ADVICE), None)
    if first is not None:
        commit = store.read_commit(ingested.key) if first == "no_text" else None
        files = [file for file in commit.files if file.path.startswith("rejects/")] if commit is not None else []
        rejects = (row for file in files for row in store.read(file, columns=["reason", "detail"]).to_pylist())
        detail = next((f"{row['detail']}: " for row in rejects if row["reason"] == first and row["detail"]), "")
        parts[first] += f" ({detail}{_ADVICE[first]})"
    return ", ".join(parts.values()) + "; every row's own is in the table rejects of the data folder's warehouse.duckdb"


def build_summary(
    card: str,
    balances: Sequence[StageBalance],
    gains: str,
    snapshot: str,
    mlflow: str,
    nothing_kept: Sequence[str] = (),
) -> str:
    """Return the summary of a build, where `gains` is a picture in Markdown and `mlflow` an address or a run's id."""
    rows = [[b.stage, b.tool, b.unit, f"{b.rows_in:,}", f"{b.kept:,}"] for b in balances]
    return rendered(
        "build_summary.md.jinja",
        card=card,
        nothing_kept=nothing_kept,
        rows=markdown_table(["stage", "tool", "unit", "in", "kept"], rows),
        gains=gains,
        command=sql_command(snapshot, "FROM yield_by_threshold"),
        mlflow=mlflow,
    )


def run_build(parameters: BuildParameters, runner: str | None = None) -> BuildResult:
    """Run the flow in this process; see `choose_runner`."""
    with choose_runner(runner):
        return build_dataset(parameters)
