"""The command line: `toolformer`, from one module on top of the flows (its longer groups lie in `cli_*`).

Commands import what they need when they run, so that `--help` answers at once. A mistake of the user's ends with one
line that says what to do (exit 2); a failure of ours or of the machine's with one line and exit 1. Data lives under one
folder: `--data`, else $TOOLFORMER_DATA, else ./toolformer-data.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from flows.cli_diagnose import diagnose
from flows.cli_evaluate import evaluate, tables
from flows.cli_teach import finetune
from flows.cli_use import chat, generate, serve
from flows.cli_warehouse import built_store, gc, reconcile
from flows.terminal import parse_tau_f, print_json, stopping_at_once, tell_failures_once, validated
from tasks.settings import data_folder, prepare

if TYPE_CHECKING:
    from flows.build_dataset import BuildResult
    from flows.parameters import BuildParameters

__all__ = ["app", "main"]

app = typer.Typer(
    name="toolformer",
    help="A language model teaches itself to use tools: from your corpus to C*, and what comes of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    add_completion=False,
)
tools_app = typer.Typer(help="The tools: list them, try one.", no_args_is_help=True)
app.add_typer(tools_app, name="tools", rich_help_panel="use")

_BUILD, _ASK, _TEACH, _OPERATE = "build", "ask", "teach", "operate"

Data = Annotated[
    str | None, typer.Option("--data", help="Data folder or URL (default: $TOOLFORMER_DATA, else ./toolformer-data)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]


class ExportFormat(StrEnum):
    """How C* leaves the warehouse."""

    text = "text"
    jsonl = "jsonl"
    hf = "hf"


def _build(parameters: BuildParameters, runner: str, *, quiet: bool) -> BuildResult:
    """Run a build with its progress shown."""
    from flows.display import BuildDisplay

    _check(parameters, runner)
    prepare(parameters.data)
    from flows.build_dataset import run_build
    from flows.ledger import reporting_to
    from flows.server import end_orphan

    end_orphan()
    tell_failures_once()
    with BuildDisplay(quiet=quiet) as display, reporting_to(display), stopping_at_once(display):
        return run_build(parameters, runner)


def _check(parameters: Any, runner: str) -> None:
    """Answer a mistake before any server starts or any folder is made.

    Raises:
        UsageError: a path, name or value is wrong.
    """
    from flows.parameters import resolve
    from toolformer_core.errors import UsageError

    if runner not in ("threads", "dask") and "://" not in runner:
        raise UsageError(f"--runner: {runner!r} is not threads, dask, or a scheduler's address (tcp://host:8786)")
    resolve(parameters, run_id="check")


@app.command(rich_help_panel=_BUILD)
def demo(data: Data = None, as_json: AsJson = False) -> None:
    """Run the whole loop once, small, on the embedded model and corpus. Needs no network and no server.

    Example: toolformer demo --data /tmp/demo
    """
    from flows.cli_evaluate import run_evaluations
    from flows.cli_teach import run_trainings

    prepare()
    from flows.demo import demo_evaluations, demo_parameters, demo_table, demo_trainings
    from flows.display import print_demo, print_summary

    folder = data_folder(data)
    built = _build(demo_parameters(folder), "threads", quiet=as_json)
    if not as_json:
        print_summary(built)
    trained = run_trainings(demo_trainings(folder), quiet=as_json)
    asked, measured = run_evaluations(demo_evaluations(folder, trained), quiet=as_json)
    table = demo_table(asked, measured)
    if as_json:
        print_json({"table": [asdict(row) for row in table], "trainings": [asdict(one) for one in trained]})
    else:
        print_demo(table, asked.tracking)


@app.command(rich_help_panel=_BUILD)
def build(
    corpus: Annotated[str, typer.Option(help="File or folder: JSONL (plain, .gz, .zst), Parquet, saved HF dataset")],
    data: Data = None,
    model: Annotated[
        str, typer.Option(help="'embedded', a folder written by save_pretrained, or a hub name")
    ] = "embedded",
    tools: Annotated[str, typer.Option(help="Comma-separated")] = "calculator,calendar,wikisearch,qa,mt",
    dataset: Annotated[str, typer.Option(help="Name under which C* is kept")] = "cstar",
    limit: Annotated[int | None, typer.Option(help="Read at most this many documents")] = None,
    tau_s: Annotated[
        float | None, typer.Option(help="Sampling threshold on p(' [') (paper: 0.05; calculator, mt 0)")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Positions per document (paper: 5; calculator, mt 20)")] = None,
    draws: Annotated[int | None, typer.Option(help="Calls drawn per position (paper: 5; calculator, mt 10)")] = None,
    tau_f: Annotated[
        str, typer.Option(help="Filtering thresholds, e.g. calculator=0.5,qa=1.2 (paper: 1.0; calculator, mt 0.5)")
    ] = "",
    max_examples: Annotated[int, typer.Option(help="Examples per tool at most")] = 25_000,
    seed: Annotated[int, typer.Option(help="Seed of every random choice")] = 0,
    shard_documents: Annotated[int, typer.Option(help="Documents per shard, the unit of work and of restart")] = 256,
    temperature: Annotated[float, typer.Option(help="Temperature of the draws")] = 1.0,
    max_call_tokens: Annotated[int, typer.Option(help="Tokens a call may take before it is given up")] = 64,
    mt_chunk_tokens: Annotated[int, typer.Option(help="Words a foreign passage must have for mt (paper: 10)")] = 10,
    max_chars: Annotated[int, typer.Option(help="Longer texts are rejected as too_long")] = 200_000,
    text_column: Annotated[str | None, typer.Option(help="Column of the text, if not recognised")] = None,
    url_column: Annotated[str | None, typer.Option(help="Column of the URL, if not recognised")] = None,
    date_column: Annotated[str | None, typer.Option(help="Column of the date, if not recognised")] = None,
    prompts: Annotated[str | None, typer.Option(help="Folder of your own prompts, <tool>.txt")] = None,
    passages: Annotated[str | None, typer.Option(help="JSONL of title, section, text for wikisearch and qa")] = None,
    phrases: Annotated[str | None, typer.Option(help="Phrase table for mt, tab-separated")] = None,
    licence: Annotated[str, typer.Option(help="The corpus's licence, for the dataset's card")] = "",
    runner: Annotated[str, typer.Option(help="threads, dask, or a Dask scheduler's address")] = "threads",
    workers: Annotated[int, typer.Option(help="Tasks at a time, or Dask workers")] = 4,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no tool: use what tools answered before, and stop where that lacks")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Corpus to C*: prefilter, sample, execute, score, filter, assemble. Stop it at any time; run it again to go on.

    Example: toolformer build --corpus c4.jsonl --data runs/c4 --model EleutherAI/gpt-j-6b --tools calculator,qa
    """
    prepare()
    from flows.parameters import BuildParameters

    parameters = validated(
        BuildParameters,
        corpus=corpus,
        data=data_folder(data),
        model=model,
        tools=[t for t in tools.split(",") if t.strip()],
        dataset=dataset,
        limit=limit,
        tau_s=tau_s,
        top_k=top_k,
        draws=draws,
        tau_f=parse_tau_f(tau_f),
        max_examples=max_examples,
        seed=seed,
        shard_documents=shard_documents,
        temperature=temperature,
        max_call_tokens=max_call_tokens,
        mt_chunk_tokens=mt_chunk_tokens,
        max_chars=max_chars,
        text_column=text_column,
        url_column=url_column,
        date_column=date_column,
        prompts=prompts,
        passages=passages,
        phrases=phrases,
        workers=workers,
        licence=licence,
        offline=offline,
    )
    result = _build(parameters, runner, quiet=as_json)
    if as_json:
        print_json(asdict(result))
    else:
        from flows.display import print_summary

        print_summary(result)


def _snapshot(data: str | None) -> Path:
    from toolformer_core.errors import UsageError
    from warehouse.snapshot import SNAPSHOT

    path = built_store(data).beside / SNAPSHOT
    if not path.is_file():
        raise UsageError(f"there is no {path}; run toolformer reconcile --data {data_folder(data)}")
    return path


@app.command(rich_help_panel=_ASK)
def stats(data: Data = None, as_json: AsJson = False) -> None:
    """Rows in, kept, dropped by reason per stage and tool; examples per tool at each threshold.

    Example: toolformer stats --data runs/c4 --json
    """
    from flows.display import print_stats
    from warehouse.queries import stats as query

    found = query(_snapshot(data))
    if as_json:
        balances = [{**asdict(b), "conserved": b.conserved} for b in found.balances]
        print_json({"conserved": found.conserved, "balances": balances, "yield": [asdict(y) for y in found.yields]})
    else:
        print_stats(found)


@app.command(rich_help_panel=_ASK)
def explain(
    doc_id: Annotated[str, typer.Argument(help="The document's id, or how it begins")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """One document's whole path: verdicts, draws, responses, losses, and what became of it.

    Example: toolformer explain 3f2a... --data runs/c4     (the id may be shortened)
    """
    from flows.display import print_explanation
    from toolformer_core.errors import UsageError
    from warehouse.explain import explain as query
    from warehouse.queries import rows_of

    path = _snapshot(data)
    sql = "SELECT doc_id FROM documents WHERE starts_with(doc_id, $id) LIMIT 2"
    ids = [row["doc_id"] for row in rows_of(path, sql, {"id": doc_id})]
    if len(ids) != 1:
        found = "more than one document has" if ids else "no document has"
        raise UsageError(f"{found} an id beginning with {doc_id!r}; the table documents of {path} lists them")
    explanation = query(path, ids[0])
    if as_json:
        print_json(asdict(explanation))
    else:
        print_explanation(explanation)


@app.command(rich_help_panel=_BUILD)
def datasets(data: Data = None, as_json: AsJson = False) -> None:
    """List the versions of C* with their cards.

    Example: toolformer datasets --data runs/c4
    """
    from flows.display import print_datasets

    found = built_store(data).datasets()
    if as_json:
        print_json([d.to_json() for d in found])
    else:
        print_datasets(found)


@app.command(rich_help_panel=_BUILD)
def export(
    out: Annotated[Path, typer.Argument(help="File (text, jsonl) or folder (hf) to write; it must not exist yet")],
    dataset: Annotated[str, typer.Option(help="Name, or name@version; the newest version by default")] = "cstar",
    format_: Annotated[ExportFormat, typer.Option("--format", help="text, jsonl or hf")] = ExportFormat.jsonl,
    data: Data = None,
) -> None:
    """Take C* away: as text, as JSONL with the calls' spans, or as a folder that `datasets.load_from_disk` reads.

    Example: toolformer export --dataset cstar --format jsonl cstar.jsonl
    """
    from flows.export import export_dataset

    written = export_dataset(built_store(data), dataset, format_.value, out)
    print(f"{written:,} examples written to {out}")


@tools_app.command("list")
def tools_list(as_json: AsJson = False) -> None:
    """List the tools.

    Example: toolformer tools list
    """
    from flows.display import print_tools
    from toolformer_core.config import TOOL_NAMES
    from toolformer_core.tools.build import build_tools

    tools = build_tools(list(TOOL_NAMES)).values()
    if as_json:
        print_json([{"key": t.key, "name": t.name, "description": t.description} for t in tools])
    else:
        print_tools(tools)


@tools_app.command("test", context_settings={"ignore_unknown_options": True})  # an input may begin with a minus
def tools_test(
    name: Annotated[str, typer.Argument(help="calculator, calendar, wikisearch, qa or mt")],
    input_: Annotated[str, typer.Argument(metavar="INPUT")] = "",
    context: Annotated[str, typer.Option(help="What the tool must know, e.g. the calendar's ISO date")] = "",
    passages: Annotated[Path | None, typer.Option(help="JSONL of title, section, text for wikisearch and qa")] = None,
    phrases: Annotated[Path | None, typer.Option(help="Phrase table for mt")] = None,
) -> None:
    """Ask a tool one thing; a failure says why and ends with exit 1.

    Example: toolformer tools test calculator "27 + 4 * 2"     prints 35
    """
    from toolformer_core.records import ToolFailure
    from toolformer_core.tools.build import ToolSettings, build_tools

    tool = next(iter(build_tools([name], ToolSettings(passages, phrases)).values()))
    result = tool.run(input_, context)
    if isinstance(result, ToolFailure):
        print(f"{tool.name}({input_}) gave nothing: {result.reason} {result.detail}".rstrip(), file=sys.stderr)
        raise typer.Exit(1)
    print(result.text)


app.command(rich_help_panel=_TEACH)(diagnose)
app.command(rich_help_panel=_TEACH)(finetune)
app.command(rich_help_panel=_TEACH)(evaluate)
app.command(rich_help_panel=_TEACH)(tables)
app.command(rich_help_panel=_OPERATE)(reconcile)
app.command(rich_help_panel=_OPERATE)(gc)
for _command in (generate, chat, serve):
    app.command(rich_help_panel="use")(_command)


def main() -> None:
    """Run the command line; no traceback reaches a user for a mistake of theirs."""
    from toolformer_core.errors import ToolformerError, UsageError
    from warehouse.errors import WarehouseError

    try:
        code = app(standalone_mode=False)
    except TyperException as exc:
        _print_wrong_use(exc)
        code = exc.exit_code
    except (typer.Abort, KeyboardInterrupt):
        print("stopped; run the same command again to go on", file=sys.stderr)
        code = 130
    except UsageError as exc:
        print(f"error: {exc}", file=sys.stderr)
        code = 2
    except (ToolformerError, WarehouseError) as exc:
        print(f"error: {exc}", file=sys.stderr)
        code = 1
    except BrokenPipeError:
        code = 1
    except OSError as exc:  # the machine's: a full disk, a folder that may not be written
        print(f"error: {exc.filename or ''}: {exc.strerror or exc}".replace(": : ", ": "), file=sys.stderr)
        code = 1
    _leave(int(code or 0))


def _print_wrong_use(exc: TyperException) -> None:
    """Print what is wrong with the command line and where its help is; nothing if its help was just printed."""
    if message := " ".join(exc.format_message().split()):
        message += "" if message.endswith((".", "?", "!")) else "."
        context = getattr(exc, "ctx", None)
        hint = f" Try '{context.command_path} --help'." if context is not None else ""
        print(f"error: {message}{hint}", file=sys.stderr)


def _leave(code: int) -> None:
    """End the process after its exit functions, without taking the interpreter apart.

    With torch and duckdb in one process the latter step prints pages of "leaked instance" notes, which are not ours
    and not true.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    main()
