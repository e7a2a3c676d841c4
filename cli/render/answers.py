"""Prints the answers of `cli.commands.ask` for a person: a plan, a document's path, other thresholds, dataset versions.

It only prints; its input is the plain records of `plan`, `trace_document` and `what_if`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from cli.render.console import Console, narrow_table, stages_table
from toolformer_core.syntax import written_calls
from warehouse.commits import Dataset

if TYPE_CHECKING:
    from flows.build_dataset.estimate import Estimate, Plan, Total
    from flows.build_dataset.what_if_query import WhatIfQuery
    from flows.report.document_trace import DocumentTrace
    from warehouse.queries import Sample
    from warehouse.queries.builds import CurrentBuild
    from warehouse.what_if import WhatIf

_MAX_REASONS = 4  # reasons that are printed; the others are counted
_CONTEXT_CHARACTERS = 40  # of the text before a call, and of that after it
_FOLDED_COLUMNS = ("input", "response", "answered", "raw", "context", "detail", "reason", "folder", "model")
_HEADERS = {
    "position": "at",
    "loss_plain": "plain",
    "loss_call": "call",
    "loss_response": "L+",
    "best_decoy": "decoy",
    "answered": "input -> response",
}


def print_plan(plan: Plan) -> None:
    """Print what a build would do per stage and tool, why, and what it is expected to cost."""
    console = Console()
    stages_by_reason: dict[str, list[str]] = {}  # printed below the table, which has room for figures alone
    rows: list[tuple[str, ...]] = []
    for stage in plan.stages:
        reasons = [f"{reason} ({n:,})" if n < stage.shards else reason for reason, n in stage.because.items()]
        more = [f"and {len(reasons) - _MAX_REASONS:,} more"] if len(reasons) > _MAX_REASONS else []
        counts = (f"{n:,}" if n else "" for n in (stage.shards, stage.cached, stage.to_do, stage.depends))
        rows.append((stage.stage, stage.tool, *counts, *_format_estimate(stage.estimate, stage.to_do)))
        if reasons:
            reason = "; ".join([*reasons[:_MAX_REASONS], *more])
            stages_by_reason.setdefault(reason, []).append(f"{stage.stage} {stage.tool}".strip())
    headers = ("shards", "cached", "to do", "depends", "seconds", "LM tokens", "kB")
    console.print(stages_table("What this build would do", headers, rows))
    for reason, stages in stages_by_reason.items():
        console.print(f"{escape(reason)}: {', '.join(stages)}")
    for note in plan.notes:
        console.say(note, "yellow")
    if plan.nothing_to_do:
        console.print("Nothing is left to do: every shard is found done, and no model would be loaded.")
        return
    estimates = [stage.estimate for stage in plan.stages if stage.estimate is not None]
    unknown = [f"{stage.stage} {stage.tool}".strip() for stage in plan.stages if stage.to_do and stage.estimate is None]
    if any(stage.to_do for stage in plan.stages):
        console.print(f"To do: {_format_total(plan.total)}.")
    if any(stage.depends for stage in plan.stages):
        at_most = _format_total(plan.total_at_most)
        console.print(
            f"depends: found done if the stages before give the same rows as last time; otherwise, in all: {at_most}."
        )
    if unknown:
        console.print(f"No past run to estimate from: {', '.join(unknown)}.")
    if plan.pilot:
        console.print("Run a pilot, then plan again:")
        console.say(f"  {plan.pilot}")
    if any(not estimate.same_draws for estimate in estimates):
        console.print("Estimated in part from runs with other k and m, in proportion to k * m.")
    if any(not estimate.same_model for estimate in estimates):
        console.print("Estimated in part from runs with another model.")


def _format_estimate(estimate: Estimate | None, to_do: int) -> tuple[str, str, str]:
    if estimate is None:
        return ("?" if to_do else "", "", "")
    tokens = f"{estimate.lm_tokens:,.0f}" if estimate.lm_tokens else ""
    return f"{estimate.seconds:,.1f}", tokens, f"{estimate.bytes / 1000:,.0f}"


def _format_total(total: Total) -> str:
    about = "at least" if total.lower_bound else "about"
    tokens = "LM tokens unknown" if total.lm_tokens_unknown else f"{total.lm_tokens:,.0f} LM tokens"
    return f"{about} {total.seconds:,.0f} s of work, {tokens}, {total.bytes:,.0f} bytes"


def print_document_trace(trace: DocumentTrace) -> None:
    """Print one document's path through the stages, and what used it."""
    console = Console()
    explanation = trace.explanation
    if (document := explanation.document) is not None:
        origin = f"{document['source']}:{document['line']}  {document['url'] or ''}".rstrip()
        console.print(f"[bold]{document['doc_id']}[/bold]  {escape(origin)}")
        console.print(escape(document["text"]))
    if (dropped := explanation.dropped) is not None:
        console.print(f"[bold]{dropped['doc_id']}[/bold]  {escape(dropped['source'])}:{dropped['line']}")
        console.print(escape(dropped["beginning"]))
        console.print(f"[yellow]dropped as {escape(dropped['reason'])}[/yellow]: {escape(dropped['detail'])}")
        return
    if near := explanation.near_duplicates:
        _print_rows(console, "near-duplicates dropped", near, ("doc_id", "likeness", "source", "line"))
    if trace.not_annotated:
        tools = ", ".join(trace.not_annotated)
        reason = "they had enough examples before its shard (--stop-when-full)"
        console.say(f"not annotated for {tools}: {reason}", "yellow")
    _print_rows(console, "prefilter", explanation.prefiltered, ("tool", "kept", "reason", "context"))
    form = ("p_form",) if any("p_form" in row for row in trace.positions) else ()
    columns = ("tool", "rank", "position", "p", *form, "draws", "parsed")
    _print_rows(console, "positions", trace.positions, columns)
    draws = [{**row, "raw": _in_chain(row, row["raw"])} for row in explanation.sampled]
    _print_rows(console, "draws", draws, ("tool", "position", "raw", "outcome", "count"))
    _print_rows(console, "responses", explanation.executed, ("tool", "input", "response", "failure", "detail"))
    decoys = ("best_decoy",) if any(call.get("decoy_gains") for call in trace.calls) else ()
    shorter = ("loss_shorter",) if any(call.get("preceding_calls") for call in trace.calls) else ()
    losses = ("loss_plain", *shorter, "loss_call", "loss_response")
    columns = ("tool", "position", *losses, "gain", *decoys, "fate", "answered")
    calls = [
        {
            **call,
            "loss_shorter": call.get("loss_shorter"),
            # a bound, where L(e(c, eps)) was not computed
            "gain": call["gain"] if call.get("bound") is None else f"<={call['bound']:.3f}",
            "best_decoy": max(call.get("decoy_gains") or (), default=None),
            "answered": _in_chain(call, f"{call['input']} -> {call['response']}".strip()),
        }
        for call in trace.calls
    ]
    thresholds = ", ".join(f"{tool} {tau:g}" for tool, tau in trace.thresholds.items())
    _print_rows(console, f"scores, in nats (tau_f: {thresholds})", calls, columns)
    for stage, rows in sorted(explanation.further.items()):
        _print_rows(console, stage, rows, [name for name in rows[0] if name != "doc_id"] if rows else ())
    for example in explanation.examples:
        console.print("\n[bold]in C*[/bold]")
        console.print(escape(example["text"]))
    datasets = [{"dataset": f"{d['name']}@{d['version']}", "calls": len(d["calls"])} for d in explanation.datasets]
    _print_rows(console, "datasets", datasets, ("dataset", "calls"))
    _print_rows(console, "checkpoints", trace.checkpoints, ("folder", "arm", "dataset", "used"))
    _print_rows(console, "evaluations", trace.evaluations, ("task", "arm", "k", "model"))


def _in_chain(call: Mapping[str, Any], text: str) -> str:
    """Return a text about a call after the calls of its chain that stand in front of it, if there are any."""
    links = [f"[{one['tool']}: {one['input']} -> {one['response']}]" for one in call.get("preceding_calls") or ()]
    return " ".join((*links, text))


def _print_rows(console: Console, title: str, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    if not rows:
        console.print(f"\n[bold]{escape(title)}[/bold]: nothing")
        return
    table = narrow_table(title)
    for name in columns:
        table.add_column(_HEADERS.get(name, name), overflow="fold", no_wrap=name not in _FOLDED_COLUMNS)
    for row in rows:
        table.add_row(*(_format_value(row[name]) for name in columns))
    console.print(table)


def _format_value(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else escape("" if value is None else str(value))


def print_what_if(
    query: WhatIfQuery, answer: WhatIf, limit: int, names: Mapping[str, str], build: CurrentBuild | None
) -> None:
    """Print what other thresholds would keep, in comparison with those of `build`.

    `limit` is the most examples of a tool in C*; `names` are the tools' names in calls, by key.
    """
    console = Console()
    if build is not None:
        console.say(f"now: {build}")
    table = narrow_table("Examples with calls, before and after", ["tool"], ["tau_f", "examples", "calls"])
    for change in answer.changes:
        before, after = change.before, change.after
        table.add_row(
            after.tool,
            _format_change(f"{before.tau_f:g}", f"{after.tau_f:g}"),
            _format_change(f"{before.examples:,}", f"{after.examples:,}"),
            _format_change(f"{before.calls:,}", f"{after.calls:,}"),
        )
    console.print(table)
    for title, samples in (("would come", answer.comes), ("would go", answer.goes)):
        if samples:
            console.print(f"\n[bold]{title}[/bold] (the largest gains among them, in nats)")
            _print_calls(console, samples, names)
    if any(change.after.examples > limit for change in answer.changes):
        console.print(f"\nOf each tool at most {limit:,} examples go into C*.")
    for note in query.notes:
        console.say(note, "yellow")


def _format_change(before: str, after: str) -> str:
    return after if before == after else f"{before} -> {after}"


def _print_calls(console: Console, samples: Iterable[Sample], names: Mapping[str, str]) -> None:
    for sample in samples:
        context = (sample.before[-_CONTEXT_CHARACTERS:], sample.after[:_CONTEXT_CHARACTERS])
        before, after = (escape(" ".join(text.split())) for text in context)
        call = escape(written_calls(sample.links, names))
        line = f"  {sample.gain:+.2f}  {sample.doc_id[:8]}  …{before}[bold cyan]{call}[/bold cyan] {after}…"
        console.print(line, soft_wrap=True)


def print_datasets(versions: Iterable[tuple[Dataset, Sequence[str]]]) -> None:
    """Print dataset records, newest last, each with its missing files.

    The first word of each is its label, which `export` takes.
    """
    console = Console()
    for dataset, missing in versions:
        console.print(f"[bold]{escape(dataset.label)}[/bold]  {dataset.created[:19]}", soft_wrap=True)
        kept = ", ".join(
            f"{tool} {n:,} (tau_f {dataset.thresholds.get(tool, 0):g})" for tool, n in dataset.counts.items()
        )
        values = (kept, dataset.model, dataset.corpus, dataset.licence, dataset.run_id)
        for name, value in zip(("examples", "model", "corpus", "licence", "run"), values, strict=True):
            if value:
                console.say(f"  {name:<9} {value}")
        if missing:
            damage = (
                f"{len(missing)} of {len(dataset.files)} files gone or cut short: toolformer reconcile --check, then "
                "build again"
            )
            console.say(f"  damaged   {damage}", "red")
