"""Prints the answers of `cli.ask` for a person: a plan, a document's path, other thresholds, dataset versions.

It only prints; its input are the plain records of `plan`, `trace_document` and `what_if`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from cli.render.console import Console
from toolformer_core.config import TOOL_NAMES
from toolformer_core.records import Call
from toolformer_core.syntax import linearize
from warehouse.commits import Dataset

if TYPE_CHECKING:
    from flows.build_dataset.plan import Estimate, Plan, Total
    from flows.build_dataset.what_if import WhatIfQuery
    from flows.document_trace import DocumentTrace
    from warehouse.queries import CurrentBuild, Sample
    from warehouse.what_if import WhatIf

__all__ = ["print_datasets", "print_document_trace", "print_plan", "print_what_if"]

_REASONS = 4  # reasons written out; the others are counted
_WIDTH = 40  # characters of a text in a table
# columns that may be folded
_TEXTS = ("input", "response", "answered", "raw", "context", "detail", "reason", "folder", "model")
_HEADS = {
    "position": "at",
    "loss_plain": "plain",
    "loss_call": "call",
    "loss_response": "L+",
    "answered": "input -> response",
}


def print_plan(plan: Plan) -> None:
    """Print what a build would do per stage and tool, why, and what it is expected to cost."""
    console = Console()
    table = _narrow("What this build would do")
    whys: dict[str, list[str]] = {}  # why -> where; below the table, which is wide enough for figures alone
    for name in ("stage", "tool"):
        table.add_column(name, no_wrap=True)
    rows: list[tuple[str, ...]] = []
    for own in plan.stages:
        reasons = [f"{reason} ({n:,})" if n < own.shards else reason for reason, n in own.because.items()]
        more = [f"and {len(reasons) - _REASONS:,} more"] if len(reasons) > _REASONS else []
        counts = (f"{n:,}" if n else "" for n in (own.shards, own.cached, own.to_do, own.depends))
        rows.append((own.stage, own.tool, *counts, *_figures(own.estimate, own.to_do)))
        if reasons:
            whys.setdefault("; ".join([*reasons[:_REASONS], *more]), []).append(f"{own.stage} {own.tool}".strip())
    heads = ("shards", "cached", "to do", "depends", "seconds", "LM tokens", "kB")
    filled = [i for i in range(2, 2 + len(heads)) if any(row[i] for row in rows)]
    for i in filled:
        table.add_column(heads[i - 2], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row[:2], *(row[i] for i in filled))
    console.print(table)
    for why, where in whys.items():
        console.print(f"{escape(why)}: {', '.join(where)}", highlight=False)
    for note in plan.notes:
        console.print(f"[yellow]{escape(note)}[/yellow]", highlight=False, soft_wrap=True)
    if plan.nothing_to_do:
        console.print("Nothing is left to do: every shard is found done, and no model would be loaded.")
        return
    known = [own.estimate for own in plan.stages if own.estimate is not None]
    lacking = [f"{own.stage} {own.tool}".strip() for own in plan.stages if own.to_do and own.estimate is None]
    if any(own.to_do for own in plan.stages):
        console.print(f"To do: {_sum(plan.total)}.", highlight=False)
    if any(own.depends for own in plan.stages):
        most = _sum(plan.total_at_most)
        console.print(
            f"depends: found done if what is done anew before gives the same rows; with all of it: {most}.",
            highlight=False,
        )
    if lacking:
        console.print(f"No past run to estimate from: {', '.join(lacking)}.", highlight=False)
    if plan.pilot:
        console.print("Run a pilot, then plan again:", highlight=False)
        console.print(f"  {plan.pilot}", soft_wrap=True, highlight=False, markup=False)
    if any(not one.same_draws for one in known):
        console.print("Estimated in part from runs with other k and m, in proportion to k * m.", highlight=False)
    if any(not one.same_model for one in known):
        console.print("Estimated in part from runs with another model.")


def _figures(one: Estimate | None, to_do: int) -> tuple[str, str, str]:
    if one is None:
        return ("?" if to_do else "", "", "")
    return (f"{one.seconds:,.1f}", f"{one.lm_tokens:,.0f}" if one.lm_tokens else "", f"{one.bytes / 1000:,.0f}")


def _sum(total: Total) -> str:
    about = "at least" if total.lower_bound else "about"
    tokens = "LM tokens unknown" if total.lm_tokens_unknown else f"{total.lm_tokens:,.0f} LM tokens"
    return f"{about} {total.seconds:,.0f} s of work, {tokens}, {total.bytes:,.0f} bytes"


def print_document_trace(trace: DocumentTrace) -> None:
    """Print one document's path through the stages, and what used it."""
    console = Console()
    explanation = trace.explanation
    if (document := explanation.document) is not None:
        where = f"{document['source']}:{document['line']}  {document['url'] or ''}".rstrip()
        console.print(f"[bold]{document['doc_id']}[/bold]  {escape(where)}", highlight=False)
        console.print(escape(document["text"]), highlight=False)
    if trace.not_annotated:
        tools = ", ".join(trace.not_annotated)
        why = "they had enough examples before its shard (--stop-when-full)"
        console.print(f"[yellow]not annotated for {tools}: {why}[/yellow]", highlight=False, soft_wrap=True)
    _rows(console, "prefilter", explanation.prefiltered, ("tool", "kept", "reason", "context"))
    _rows(console, "positions", trace.positions, ("tool", "rank", "position", "p", "draws", "parsed"))
    _rows(console, "draws", explanation.sampled, ("tool", "position", "raw", "outcome", "count"))
    _rows(console, "responses", explanation.executed, ("tool", "input", "response", "failure", "detail"))
    columns = ("tool", "position", "loss_plain", "loss_call", "loss_response", "gain", "fate", "answered")
    calls = [{**call, "answered": f"{call['input']} -> {call['response']}".strip()} for call in trace.calls]
    thresholds = ", ".join(f"{tool} {tau:g}" for tool, tau in trace.thresholds.items())
    _rows(console, f"scores, in nats (tau_f: {thresholds})", calls, columns)
    for stage, rows in sorted(explanation.further.items()):
        _rows(console, stage, rows, [name for name in rows[0] if name != "doc_id"] if rows else ())
    for example in explanation.examples:
        console.print("\n[bold]in C*[/bold]")
        console.print(escape(example["text"]), highlight=False)
    datasets = [{"dataset": f"{d['name']}@{d['version']}", "calls": len(d["calls"])} for d in explanation.datasets]
    _rows(console, "datasets", datasets, ("dataset", "calls"))
    _rows(console, "checkpoints", trace.checkpoints, ("folder", "arm", "dataset", "used"))
    _rows(console, "evaluations", trace.evaluations, ("task", "arm", "k", "model"))


def _rows(console: Console, title: str, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    if not rows:
        console.print(f"\n[bold]{escape(title)}[/bold]: nothing", highlight=False)
        return
    table = _narrow(title)
    for name in columns:
        table.add_column(_HEADS.get(name, name), overflow="fold", no_wrap=name not in _TEXTS)
    for row in rows:
        table.add_row(*(_shown(row[name]) for name in columns))
    console.print(table)


def _narrow(title: str) -> Table:
    """Return a table that is as narrow as possible, for terminals of 80 columns."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else escape("" if value is None else str(value))


def print_what_if(asked: WhatIfQuery, found: WhatIf, limit: int, now: CurrentBuild | None = None) -> None:
    """Print what other thresholds would keep.

    Args:
        now: the run and dataset that the other thresholds are compared with.
        limit: maximum examples per tool, as C* was assembled.
    """
    console = Console()
    if now is not None:
        console.print(escape(f"now: {now}"), soft_wrap=True, highlight=False)
    table = _narrow("Examples with calls, now and then")
    table.add_column("tool")
    for name in ("tau_f", "examples", "calls"):
        table.add_column(name, justify="right")
    for change in found.changes:
        before, after = change.before, change.after
        table.add_row(
            after.tool,
            _then(f"{before.tau_f:g}", f"{after.tau_f:g}"),
            _then(f"{before.examples:,}", f"{after.examples:,}"),
            _then(f"{before.calls:,}", f"{after.calls:,}"),
        )
    console.print(table)
    for title, samples in (("would come", found.comes), ("would go", found.goes)):
        if samples:
            console.print(f"\n[bold]{title}[/bold] (the largest gains among them, in nats)")
            _calls(console, samples)
    if any(change.after.examples > limit for change in found.changes):
        console.print(f"\nOf each tool at most {limit:,} examples go into C*.", highlight=False)
    for note in asked.notes:
        console.print(f"[yellow]{escape(note)}[/yellow]", highlight=False, soft_wrap=True)


def _then(before: str, after: str) -> str:
    return after if before == after else f"{before} -> {after}"


def _calls(console: Console, samples: Iterable[Sample]) -> None:
    for s in samples:
        before, after = (escape(" ".join(text.split())) for text in (s.before[-_WIDTH:], s.after[:_WIDTH]))
        call = escape(linearize(Call(TOOL_NAMES.get(s.tool, s.tool), s.input), s.response))
        console.print(
            f"  {s.gain:+.2f}  {s.doc_id[:8]}  …{before}[bold cyan]{call}[/bold cyan] {after}…",
            soft_wrap=True,
            highlight=False,
        )


def print_datasets(found: Iterable[tuple[Dataset, Sequence[str]]]) -> None:
    """Print dataset records, newest last, with the files that are missing; `export` takes the first word of each."""
    console = Console()
    for d, gone in found:
        console.print(f"[bold]{escape(d.label)}[/bold]  {d.created[:19]}", highlight=False, soft_wrap=True)
        kept = ", ".join(f"{tool} {n:,} (tau_f {d.thresholds.get(tool, 0):g})" for tool, n in d.counts.items())
        card = {"examples": kept, "model": d.model, "corpus": d.corpus, "licence": d.licence, "run": d.run_id}
        for name, value in card.items():
            if value:
                console.print(f"  {name:<9} {escape(value)}", highlight=False, soft_wrap=True)
        if gone:
            damage = (
                f"{len(gone)} of {len(d.files)} files gone or cut short: toolformer reconcile --check, then build again"
            )
            console.print(f"  [red]damaged   {damage}[/red]", highlight=False, soft_wrap=True)
