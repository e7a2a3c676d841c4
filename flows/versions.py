"""Versions of C*: a name and a content address, and a card in Markdown beside each for whoever comes upon the data.

The record (`datasets/<name>/<version>.json`) is the truth; the card (`.md`) is drawn from it and from the snapshot, and
drawn again where it is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.ledger import Ledger, now
from tasks.assembling import examples_per_tool
from tasks.shards import Done
from tasks.works import NOT_ANNOTATED
from toolformer_core.config import tau_f_for
from warehouse.commits import Dataset, dataset_version
from warehouse.queries import Yield, rows_of, yield_by_threshold
from warehouse.store import Store

__all__ = ["card_of", "coverage_note", "write_card", "write_version"]

_SOURCES = 20  # files of the corpus that a card names
_SHARDS = 20  # ... and shards on which a tool was not annotated; the commits of `assemble` name all
_STOPPED = (
    "The build stopped a tool's stages once its examples were enough (`--stop-when-full`): the yields above speak of "
    "the shards that were annotated, not of the whole corpus."
)


def write_version(
    ledger: Ledger,
    name: str,
    assembled: Sequence[Done],
    tools: Sequence[str],
    tau_f: Mapping[str, float],
    *,
    licence: str = "",
    notes: str = "",
) -> Dataset:
    """Record a version of C*, inside the run that assembled it.

    Args:
        tools: those asked for; a tool without examples is counted as 0.
        tau_f: thresholds that are not the paper's, per tool.
        licence: the corpus's, as its owner states it.
        notes: what else a reader must know.
    """
    files = tuple(file for done in assembled for file in done.files)
    run = ledger.run
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
    )
    ledger.record("running")  # a dataset's card names a run whose manifest lists all it stands on
    ledger.store.write_dataset(dataset)
    ledger.catalog.record_dataset(dataset)
    return dataset


def coverage_note(store: Store, assembled: Sequence[Done]) -> str:
    """Return what a card must say of tools that were not annotated on every shard; "" if all were."""
    commits = [store.recorded(done.key) for done in assembled]
    missing: dict[str, list[str]] = {}
    for commit in commits:
        if commit is not None:
            for tool in commit.config.get(NOT_ANNOTATED, ()):
                missing.setdefault(tool, []).append(commit.shard)
    lines = [
        f"- {tool}: annotated on {len(assembled) - len(own):,} of {len(assembled):,} shards; not on "
        + ", ".join(own[:_SHARDS])
        + (f" and {len(own) - _SHARDS:,} more" if len(own) > _SHARDS else "")
        for tool, own in missing.items()
    ]
    return "\n".join([_STOPPED, "", *lines]) if lines else ""


def write_card(store: Store, dataset: Dataset, snapshot: str | Path) -> str:
    """Write a version's card beside its record, from a snapshot in which it is the current one; return it.

    Raises:
        SnapshotError: there is no such snapshot.
        StoreError: it could not be written.
    """
    sources = rows_of(
        snapshot, "SELECT source, count(*) AS documents FROM documents GROUP BY ALL ORDER BY documents DESC, source"
    )
    card = _card(dataset, yield_by_threshold(snapshot), {row["source"]: row["documents"] for row in sources})
    store.files.put(_path(dataset), card.encode())
    return card


def card_of(store: Store, dataset: Dataset) -> str:
    """Return a version's card as it was written; without yields and sources if it was not."""
    found = store.files.get(_path(dataset))
    return found.decode() if found is not None else _card(dataset, [], {})


def _path(dataset: Dataset) -> str:
    return f"datasets/{dataset.name}/{dataset.version}.md"


def _card(dataset: Dataset, yields: Sequence[Yield], sources: Mapping[str, int]) -> str:
    examples = sum(file.rows for file in dataset.files)
    thresholds = sorted({y.tau_f for y in yields})
    by_tool = {(y.tool, y.tau_f): y.examples for y in yields}
    header = "".join(f" examples at {tau:g} |" for tau in thresholds)
    rows = [
        f"| {tool} | {tau_f:g} | {dataset.counts.get(tool, 0):,} |"
        + "".join(f" {by_tool.get((tool, tau), 0):,} |" for tau in thresholds)
        for tool, tau_f in dataset.thresholds.items()
    ]
    lines = [
        f"# {dataset.name}@{dataset.version}",
        "",
        f"{examples:,} texts with tool calls that help a language model predict what follows them.",
        "",
        "| | |",
        "|---|---|",
        f"| licence of the corpus | {_cell(dataset.licence) or 'not stated'} |",
        f"| corpus | {_cell(dataset.corpus)} |",
        f"| annotated and scored by | {_cell(dataset.model)} |",
        f"| made | {dataset.created[:19]} UTC, run {dataset.run_id} |",
        f"| files | {len(dataset.files):,} Parquet, {sum(f.bytes for f in dataset.files):,} bytes |",
        "",
        "## Examples per tool",
        "",
        "An example counts for every tool of which it holds a call; tau_f is in nats.",
        "",
        f"| tool | tau_f | examples |{header}",
        "|---|---|---|" + "---|" * len(thresholds),
        *rows,
    ]
    if sources:
        lines += ["", "## Sources", "", "| file | documents |", "|---|---|"]
        lines += [f"| {_cell(source)} | {n:,} |" for source, n in list(sources.items())[:_SOURCES]]
        lines += [f"| and {len(sources) - _SOURCES:,} more | |"] if len(sources) > _SOURCES else []
    if dataset.notes:
        lines += ["", "## Notes", "", dataset.notes]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Keep a value from breaking a table."""
    return " ".join(text.replace("|", "\\|").split())
