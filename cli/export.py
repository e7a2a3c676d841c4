"""`toolformer export`: C* as files, or shown with what of it is trained."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import AsJson, Data
from cli.terminal import print_json, say
from cli.warehouse import built_store

if TYPE_CHECKING:
    from flows.export import ExportResult, Preview

__all__ = ["export"]


class ExportFormat(StrEnum):
    """How C* leaves the warehouse."""

    text = "text"
    jsonl = "jsonl"
    hf = "hf"
    tokens = "tokens"
    segments = "segments"
    chat = "chat"


class Dialect(StrEnum):
    """How a conversation is written."""

    openai = "openai"
    sharegpt = "sharegpt"
    text = "text"


class ArgumentForm(StrEnum):
    """How the arguments of a call are written."""

    dict = "dict"
    json = "json"


def export(
    out: Annotated[Path | None, typer.Argument(help="File (hf: folder) to write; it must not exist yet")] = None,
    dataset: Annotated[str, typer.Option(help="Name, or name@version; the newest version by default")] = "cstar",
    format_: Annotated[
        ExportFormat, typer.Option("--format", help="Whole texts, or what a trainer reads: docs/export.md")
    ] = ExportFormat.jsonl,
    separator: Annotated[
        str | None, typer.Option(help="The line that ends each document of --format text (default: <|endoftext|>)")
    ] = None,
    dialect: Annotated[
        Dialect | None,
        typer.Option(
            help="Of --format chat: openai for TRL and axolotl (default), sharegpt for LLaMA-Factory, or text"
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Whose tokens, or whose chat template --dialect text renders: embedded, folder, hub name"),
    ] = None,
    arguments: Annotated[
        ArgumentForm | None,
        typer.Option(help="Of calls in chats (default: a JSON string in openai, a dict for a template)"),
    ] = None,
    request: Annotated[str | None, typer.Option(help="What the user of a chat says in front of the text")] = None,
    next_request: Annotated[
        str | None, typer.Option(help="What the user says between a text and the next call (sharegpt)")
    ] = None,
    dev: Annotated[float, typer.Option(help="Share of the documents for a dev split beside it, e.g. 0.05")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the dev split")] = 0,
    preview: Annotated[
        bool, typer.Option(help="Show ten examples, what is trained and what is not; write nothing")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Take C* away: as text, as JSONL with the calls' spans, for `datasets`, or in the form that a trainer reads.

    A card in the hub's form and a manifest with digests are written beside it.

    Example: toolformer export --format chat --dialect sharegpt --dev 0.05 cstar.jsonl

    Another: toolformer export --format tokens --tokenizer path/to/model --preview
    """
    from flows.export import ExportSettings, export_to
    from flows.export import preview as preview_of
    from toolformer_core.errors import UsageError

    settings = ExportSettings(
        format=format_.value,
        separator=separator,
        dialect=dialect.value if dialect else None,
        tokenizer=tokenizer,
        arguments=arguments.value if arguments else None,
        request=request,
        next_request=next_request,
        dev=dev,
        seed=seed,
    )
    if preview:
        shown = preview_of(built_store(data), dataset, settings)
        _print_preview(shown, as_json=as_json)
        return
    if out is None:
        raise UsageError("name the file to write, or look at the examples with --preview")
    _print_result(export_to(built_store(data), dataset, out, settings), out, as_json=as_json)


def _print_result(result: ExportResult, out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({**result.manifest, "out": [str(path) for path in result.files]})
        return
    dev = f", {result.dev:,} of them in the dev split" if result.dev else ""
    say(f"{result.examples:,} examples written to {out}{dev}")
    if result.left_out:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in result.left_out.items())
        say(f"{sum(result.left_out.values()):,} left out: {reasons}")
    if "trained" in result.counts:
        unit, total = next(iter(result.counts.items()))
        say(f"{result.counts['masked']:,} of {total:,} {unit} masked")
    for note in result.notes:
        say(f"note: {note}")


def _print_preview(shown: list[Preview], *, as_json: bool) -> None:
    """Print examples: what is masked in another colour; where there are no colours, between ⟦ and ⟧."""
    if as_json:
        print_json(
            [
                {"doc_id": one.doc_id, "parts": [{"text": text, "trained": trained} for text, trained in one.parts]}
                for one in shown
            ]
        )
        return
    if not shown:
        say("no example of it can be exported")
        return
    from rich.text import Text

    from cli.render.console import Console

    console = Console(highlight=False, soft_wrap=True)
    coloured = console.color_system is not None and not console.no_color

    def part(text: str, trained: bool) -> Text:
        if coloured:
            return Text(text, style="green" if trained else "black on yellow")
        return Text(text if trained else f"⟦{text}⟧")

    legend = Text.assemble(part("trained", True), ", ", part("masked", False))
    console.print(legend)
    for one in shown:
        console.print(Text(f"\n{one.doc_id}", style="bold"))
        console.print(Text.assemble(*(part(text, trained) for text, trained in one.parts)))
