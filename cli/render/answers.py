"""Prints plain records for a person: plans, a document's path, other thresholds, dataset versions, ratings."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.render.console import Console, narrow_table, stages_table
from flows.build_dataset.estimate import Estimate, Plan, Total
from flows.build_dataset.what_if_query import WhatIfQuery
from flows.report.document_trace import DocumentTrace
from flows.report.judging import Judgements
from flows.report.tables import counted
from toolformer_core.syntax import written_calls
from warehouse.commits import Dataset
from warehouse.queries import CallInContext
from warehouse.queries.builds import CurrentBuild, KeptCalls, Stats, ToolCosts
from warehouse.what_if import WhatIf

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
        counts = (f"{n:,}" if n else "" for n in (stage.shards, stage.cached, stage.to_do, stage.depends))
        rows.append((stage.stage, stage.tool, *counts, *_format_estimate(stage.estimate, stage.to_do)))
        if reasons := [f"{reason} ({n:,})" if n < stage.shards else reason for reason, n in stage.because.items()]:
            stages_by_reason.setdefault("; ".join(reasons), []).append(f"{stage.stage} {stage.tool}".strip())
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
    if any(not estimate.same_samples for estimate in estimates):
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
    columns = ("tool", "rank", "position", "p", *form, "samples", "parsed")
    _print_rows(console, "positions", trace.positions, columns)
    samples = [{**row, "raw": _in_chain(row, row["raw"])} for row in explanation.sampled]
    _print_rows(console, "samples", samples, ("tool", "position", "raw", "outcome", "count"))
    _print_rows(console, "responses", explanation.executed, ("tool", "input", "response", "failure", "detail"))
    decoys = ("best_decoy",) if any(call.get("decoy_gains") for call in trace.calls) else ()
    shorter = ("loss_shorter",) if any(call.get("preceding_calls") for call in trace.calls) else ()
    losses = ("loss_plain", *shorter, "loss_call", "loss_response")
    columns = ("tool", "position", *losses, "gain", *decoys, "outcome", "answered")
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
    """Print what other thresholds would keep beside `build`, where a tool has at most `limit` examples in C*."""
    console = Console()
    if build is not None:
        console.say(f"now: {build}")
    rows = []
    for change in answer.changes:
        before, after = (
            [f"{one.tau_f:g}", f"{one.examples:,}", f"{one.calls:,}"] for one in (change.before, change.after)
        )
        rows.append((change.after.tool, *(b if a == b else f"{b} -> {a}" for b, a in zip(before, after, strict=True))))
    title = "Examples with calls, before and after"
    console.print(narrow_table(title, ["tool"], ["tau_f", "examples", "calls"], rows))
    for title, shown in (("would come", answer.comes), ("would go", answer.goes)):
        if shown:
            console.print(f"\n[bold]{title}[/bold] (the largest gains among them, in nats)")
            print_calls(console, shown, names)
    if any(change.after.examples > limit for change in answer.changes):
        console.print(f"\nOf each tool at most {limit:,} examples go into C*.")
    for note in query.notes:
        console.say(note, "yellow")


def print_calls(console: Console, shown: Iterable[CallInContext], names: Mapping[str, str]) -> None:
    """Print calls with their gain, their document and what stands around them."""
    for one in shown:
        context = (one.before[-_CONTEXT_CHARACTERS:], one.after[:_CONTEXT_CHARACTERS])
        before, after = (escape(" ".join(text.split())) for text in context)
        call = escape(written_calls(one.links, names))
        line = f"  {one.gain:+.2f}  {one.doc_id[:8]}  …{before}[bold cyan]{call}[/bold cyan] {after}…"
        console.print(line, soft_wrap=True)


def print_datasets(versions: Sequence[tuple[Dataset, Sequence[str]]]) -> None:
    """Print dataset records, newest last, each with its missing files."""
    console = Console()
    if not versions:
        console.print("no version yet: run the same toolformer build to its end")
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


def print_judgements(found: Judgements) -> None:
    """Print people's ratings of calls: precision by tool and threshold, and agreement."""
    console = Console()
    if not found.calls:
        console.print("nobody has judged a call yet: toolformer view, page Judge")
        return
    console.say(f"{len(found.calls):,} rated calls; of {counted(found.users)}")
    unknown = sum(call.gain is None for call in found.calls)
    if unknown:
        console.print(f"{unknown:,} of them are not among the current scores")
    if found.damaged:
        console.print(f"[yellow]{found.damaged:,} lines in ratings/ are no ratings[/yellow]")
    headers = ("tau_f", "right", "wrong", "open", "precision", "95 % interval")
    table = narrow_table("Precision of the judged calls (* the threshold of the current C*)", ["tool"], headers)
    for one in found.precisions:
        judged = not math.isnan(one.precision)
        table.add_row(
            escape(one.tool),
            f"{one.tau_f:g}{'*' if one.is_current else ' '}",
            *(f"{n:,}" for n in (one.right, one.wrong, one.open)),
            f"{one.precision:.3f}" if judged else "",
            f"{one.low:.3f} to {one.high:.3f}" if judged else "",
        )
    console.print(table)
    if found.agreements:
        table = narrow_table("Agreement", ["of"], ["calls", "same verdict", "Cohen's kappa"])
        for pair in found.agreements:
            kappa = "" if math.isnan(pair.kappa) else f"{pair.kappa:.2f}"
            table.add_row(escape(f"{pair.first}, {pair.second}"), f"{pair.calls:,}", f"{pair.same:,}", kappa)
        console.print(table)


def print_stats(stats: Stats, build: CurrentBuild | None = None, kept: Sequence[KeptCalls] = ()) -> None:
    """Print the run, the rows of every stage by what became of them, and the yield per tool and threshold."""
    console = Console()
    if build is not None:
        console.say(str(build))
    table = narrow_table("Rows: in = kept + dropped + failed", ("stage", "tool", "unit"), ("in", "kept"), no_wrap=True)
    table.add_column("dropped and failed, by reason")
    for counts in stats.balances:
        reasons = ", ".join(filter(None, map(counted, (counts.dropped, counts.failed))))
        warning = "" if counts.conserved else "  [red]does not add up[/red]"
        figures = (f"{counts.rows_in:,}", f"{counts.kept:,}", reasons + warning)
        table.add_row(counts.stage, counts.tool, counts.unit, *figures)
    console.print(table)
    for one in stats.benchmarks:
        documents = f"{one.documents:,} documents dropped, not annotated"
        dropped = documents if one.calls is None else f"{one.calls:,} kept calls dropped"
        items = f"{one.found:,} of {one.items:,} items stood in the corpus"
        console.print(f"{escape(one.benchmark)}: {items}, {dropped}")
    if kept:
        title = "Calls kept, and how many of their inputs and responses are distinct"
        distinct = [(of.tool, f"{of.calls:,}", f"{of.inputs:,}", f"{of.responses:,}") for of in kept]
        console.print(narrow_table(title, ["tool"], ["calls", "inputs", "responses"], distinct))
    if called := [_tool_costs(tool) for tool in stats.tools if tool.calls]:
        headers = ("questions", "known", "calls", "retries", "p50", "p95", "p99", "cost")
        console.print(narrow_table("Calls of tools, in milliseconds", ["tool"], headers, called))
    if not stats.yields:  # nothing was scored
        return
    examples = {(y.tool, y.tau_f): f"{y.examples:,}" for y in stats.yields}
    console.print(_by_threshold("Examples with calls, by filtering threshold", examples))
    if stats.rates:
        rates = {(r.tool, r.tau_f): "-" if r.rate is None else f"{r.rate:.3f}" for r in stats.rates}
        console.print(_by_threshold("Estimated rate of false discoveries", rates))
    for coverage in stats.coverage:
        console.say(str(coverage), "yellow")


def _by_threshold(title: str, values: Mapping[tuple[str, float], str]) -> Table:
    thresholds = sorted({tau for _, tau in values})
    tools = dict.fromkeys(tool for tool, _ in values)
    rows = [(tool, *(values.get((tool, tau), "") for tau in thresholds)) for tool in tools]
    return narrow_table(title, ["tool"], [f"tau_f {tau:.1f}" for tau in thresholds], rows)


def _tool_costs(tool: ToolCosts) -> Sequence[str]:
    counts = (tool.questions, tool.from_cache or 0, tool.calls, tool.retries or 0)
    durations = (tool.p50_ms or 0.0, tool.p95_ms or 0.0, tool.p99_ms or 0.0)
    cost = f"{tool.cost:,.6g}" if tool.cost else ""
    return tool.tool, *(f"{n:,}" for n in counts), *(f"{ms:,.3g}" for ms in durations), cost
