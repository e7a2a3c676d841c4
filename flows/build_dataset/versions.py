"""Versions of C*: each has a name, a version derived from its content, and a card in Markdown that describes it.

The same content can be made in several ways. Each has a record, `datasets/<name>/<version>-<made>.json`, which is never
overwritten; the card, `<version>.md`, is made from all of them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.texts import count_texts, texts_section
from flows.evaluate.certificate import certificate_table
from flows.report.markdown import rendered
from flows.report.tables import ResultTable, markdown_table
from flows.runtime.ledger import Ledger, now
from tasks.shards.run_shard import ShardResult
from tasks.specs.example_limit import examples_per_tool
from tasks.stages.assemble import NOT_ANNOTATED
from toolformer_core.annotate.decoys import REASONS, FoundThreshold
from toolformer_core.config import tau_f_for
from toolformer_core.errors import UsageError
from warehouse.commits import Dataset, dataset_version, made_id
from warehouse.queries import rows_of, yield_by_threshold
from warehouse.records import certificates
from warehouse.store import Store

_MAX_SOURCES = 20  # files of the corpus that a card names
_SOURCES_SQL = "SELECT source, count(*) AS documents FROM documents GROUP BY ALL ORDER BY documents DESC, source"
_MAX_SHARDS = 20  # shards without a tool's annotations that a card names; the commits of `assemble` name all
_STOPPED_NOTE = (
    "The build stopped a tool's stages once its examples were enough (`--stop-when-full`): the yields above speak of "
    "the shards that were annotated, not of the whole corpus."
)


def write_version(
    ledger: Ledger,
    name: str,
    assembled: Sequence[ShardResult],
    tools: Sequence[str],
    tau_f: Mapping[str, float],
    snapshot: Path,
    *,
    licence: str = "",
    notes: str = "",
) -> Dataset:
    """Record a version of C* in the run that assembled it; `tau_f` not the paper's, `snapshot` of this run alone."""
    files = tuple(file for done in assembled for file in done.files)
    run, mask_pii = ledger.run, bool(ledger.run.parameters.get("mask_pii"))
    sources = tuple((row["source"], row["documents"]) for row in rows_of(snapshot, _SOURCES_SQL))
    dataset = Dataset(
        name=name,
        version=dataset_version(files),
        files=files,
        counts=examples_per_tool(ledger.store, files, tools),
        thresholds={tool: tau_f_for(tool, tau_f) for tool in tools},
        run_id=run.run_id,
        model=run.model,
        corpus=run.corpus,
        created=now(),
        licence=licence,
        notes=notes,
        yields=tuple((y.tool, y.tau_f, y.examples) for y in yield_by_threshold(snapshot)),
        sources=sources[:_MAX_SOURCES],
        more_sources=max(0, len(sources) - _MAX_SOURCES),
        number=run.number,
    )
    dataset = replace(dataset, texts=count_texts(ledger.store, dataset, snapshot, mask_pii=mask_pii))
    dataset = ledger.store.write_dataset(replace(dataset, made=made_id(dataset, run)))
    ledger.run = replace(run, dataset=dataset.key)
    ledger.catalog.record(datasets=[dataset])
    return dataset


def check_replaced(store: Store, parameters: BuildParameters) -> None:
    """Refuse a build whose version would follow one of another corpus, or of more of its rows, under the same name."""
    runs = () if parameters.replace else reversed(store.runs())
    begins = f"{parameters.dataset}/"
    last = next((run for run in runs if run.flow == "build-dataset" and run.dataset.startswith(begins)), None)
    if last is None:
        return
    corpus, limit = last.corpus, last.parameters.get("limit")
    fewer = parameters.limit is not None and (limit is None or parameters.limit < limit)
    if _absolute(corpus) == _absolute(parameters.corpus) and not fewer:
        return
    examples = sum(file.rows for dataset in store.datasets([last.dataset]) for file in dataset.files)
    raise UsageError(
        f"{parameters.dataset} in {store.root} is made of {_rows(corpus, limit)}, and {examples:,} of these texts hold "
        f"calls; one of {_rows(parameters.corpus, parameters.limit)} would take its place: add --replace or choose "
        "another --dataset or --data"
    )


def _absolute(corpus: str) -> str:
    return corpus if "://" in corpus else str(Path(corpus).resolve())


def _rows(corpus: str, limit: int | None) -> str:
    return corpus if limit is None else f"the first {limit:,} rows of {corpus}"


def coverage_note(store: Store, assembled: Sequence[ShardResult]) -> str:
    """Return the card's note on tools that were not annotated on every shard; "" if there are none."""
    missing: dict[str, list[str]] = defaultdict(list)
    for done in assembled:
        if (commit := store.read_commit(done.key)) is not None:
            for tool in commit.config.get(NOT_ANNOTATED, ()):
                missing[tool].append(commit.shard)
    lines = [
        f"- {tool}: annotated on {len(assembled) - len(shards):,} of {len(assembled):,} shards; not on "
        + ", ".join([*shards[:_MAX_SHARDS], *(["..."] if len(shards) > _MAX_SHARDS else [])])
        for tool, shards in missing.items()
    ]
    return "\n".join([_STOPPED_NOTE, "", *lines]) if lines else ""


def found_table(found: Sequence[FoundThreshold]) -> ResultTable:
    """Return the thresholds that were found for promised rates, with what is estimated at them."""
    notes = dict.fromkeys(f"* {one.tool}: {REASONS[one.reason]}" for one in found if one.reason)
    thresholds = (f"{one.tau_f:g}{'*' if one.reason else ''}" for one in found)
    rows = (
        (one.tool, f"{one.promised:g}", tau_f, one.at.said(), f"{one.at.calls:,} of {one.at.of_calls:,}")
        for one, tau_f in zip(found, thresholds, strict=True)
    )
    legend = (
        "Found by decoys: the estimated rate of false discoveries is that of wrong responses passing as decoys do, "
        "with its 95 % interval."
    )
    title = "Thresholds for a promised rate of false discoveries"
    columns = ("tool", "promised", "tau_f", "estimated rate", "calls that pass")
    return ResultTable("", title, columns, tuple(rows), notes=(*notes, legend))


def write_card(store: Store, dataset: Dataset) -> str:
    """Write the card of a version's content beside its records; return the card."""
    card = card_of(store, dataset)
    store.files.put(f"datasets/{dataset.name}/{dataset.version}.md", card.encode())
    return card


def card_of(store: Store, dataset: Dataset) -> str:
    """Return the card of a version's content: first the given record, then the others with the same content."""
    records = [r for r in store.datasets() if (r.name, r.version) == (dataset.name, dataset.version)]
    return rendered(
        "version_card.md.jinja",
        dataset=dataset,
        records=[dataset, *(record for record in reversed(records) if record.key != dataset.key)],
        certified=[asdict(one) for one in certificates(store, dataset.name, dataset.version)],
        examples_table=examples_table,
        texts_section=texts_section,
        certificate_table=certificate_table,
    )


def examples_table(dataset: Dataset) -> str:
    """Return examples by tool, at its own threshold and at some others, in Markdown."""
    thresholds = sorted({tau for _, tau, _ in dataset.yields})
    by_tool = {(tool, tau): examples for tool, tau, examples in dataset.yields}
    rows = []
    for tool, tau_f in dataset.thresholds.items():
        counts = (dataset.counts.get(tool, 0), *(by_tool.get((tool, tau), 0) for tau in thresholds))
        rows.append((tool, f"{tau_f:g}", *(f"{n:,}" for n in counts)))
    return markdown_table(["tool", "tau_f", "examples", *(f"examples at {tau:g}" for tau in thresholds)], rows)
