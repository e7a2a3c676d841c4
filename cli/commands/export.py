"""`toolformer export`: C* as files, or shown with what of it is trained. `toolformer push`: a model on the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cli.commands.warehouse import built_store, published_snapshot
from cli.options import AsJson, Data, with_options
from cli.terminal import keep_run_logs_off_the_terminal, print_json, say
from flows.export.parameters import ExportParameters
from tasks.environment import names_server, prepare_environment
from toolformer_core.errors import UsageError

if TYPE_CHECKING:
    from flows.export.previews import Preview
    from flows.export.run import ExportResult, Pushed


@with_options(ExportParameters, optional={"out"})
def export(
    parameters: ExportParameters,
    preview: Annotated[bool, Option("--preview", help="Show ten examples and what is trained; write nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Export C*: as text, as JSONL with the calls' spans, for `datasets`, or in the form that a trainer reads.

    A card in the hub's form and a manifest with digests are written beside it. --push uploads all of it in one commit.

    Example: toolformer export --format chat --dialect sharegpt --dev 0.05 cstar.jsonl

    Another: toolformer export --format tokens --tokenizer path/to/model --preview

    To the hub: toolformer export --format chat cstar.jsonl --push OWNER/NAME --dry-run
    """
    from flows.export.previews import preview as preview_of

    settings = parameters.settings()
    if preview:
        _print_preview(preview_of(built_store(parameters.data), parameters.dataset, settings), as_json=as_json)
        return
    if not parameters.out:
        raise UsageError("name the file to write, or look at the examples with --preview")
    built_store(parameters.data)
    result = _export(parameters)
    _print_result(result, parameters.out, as_json=as_json)
    if parameters.dry_run and not as_json:
        from flows.export.delivery import uploads_of

        sizes = {path: file.stat().st_size for path, file in uploads_of(result).items()}
        dataset = result.manifest["dataset"]
        _print_dry_run(str(parameters.push), "dataset", sizes, dataset["weights_licence"], dataset["licence"])


def push(
    job: Annotated[str, Argument(help="The training: its name, or its folder")],
    repository: Annotated[str, Argument(metavar="OWNER/NAME", help="Model repository on the Hugging Face hub")],
    data: Data = None,
    licence: Annotated[str | None, Option(help="Of the weights (default: the base model's, by its README.md)")] = None,
    public: Annotated[bool, Option("--public", help="Whether all may read it (default: private)")] = False,
    replace: Annotated[bool, Option("--replace", help="Push also where other files lie")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would be sent; send nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a finetuned model to the Hugging Face hub, with a card that names the licences, in one commit.

    It needs HF_TOKEN. The card tells how the model was trained and what it answered.

    Example: toolformer push cstar-toolformer-0a1b2c3d4e5f6789 OWNER/NAME --dry-run
    """
    from flows.export.model import push_model

    store = built_store(data)
    published_snapshot(data)
    done = push_model(store, job, repository, licence=licence, public=public, replace=replace, dry_run=dry_run)
    if as_json:
        print_json(done)
    elif done.pushed is None:
        _print_dry_run(repository, "model", dict(done.files), done.weights, done.texts)
    else:
        _print_pushed(done.pushed)


def _print_dry_run(repository: str, kind: str, sizes: Mapping[str, int], weights: str, texts: str) -> None:
    for path, size in sizes.items():
        say(f"{size:>15,} bytes  {path}")
    say(f"licence of the weights: {weights or 'not stated'}; of the texts: {texts or 'not stated'}")
    say(f"nothing was sent: without --dry-run these files go to the {kind} repository {repository}")


def _export(parameters: ExportParameters) -> ExportResult:
    """Export in a flow run where a Prefect server is named; one of the command's own would take seconds to start."""
    prepare_environment()
    if names_server():
        from flows.export.flow import run_export

        keep_run_logs_off_the_terminal()
        return run_export(parameters)
    from flows.export.delivery import deliver

    return deliver(parameters)


def _print_result(result: ExportResult, out: str, *, as_json: bool) -> None:
    if as_json:
        hub = {"pushed": result.pushed} if result.pushed is not None else {}
        print_json({**result.manifest, "out": [str(path) for path in result.files], **hub})
        return
    dev = f", {result.dev:,} of them in the dev split" if result.dev else ""
    say(f"{result.examples:,} examples written to {out}{dev}")
    if result.left_out:
        from flows.report.tables import counted

        say(f"{sum(result.left_out.values()):,} left out: {counted(result.left_out)}")
    if "trained" in result.counts:
        unit, total = next(iter(result.counts.items()))
        say(f"{result.counts['masked']:,} of {total:,} {unit} masked")
    for note in result.notes:
        say(f"note: {note}")
    if result.pushed is not None:
        _print_pushed(result.pushed)


def _print_pushed(pushed: Pushed) -> None:
    made = "made, " if pushed.created else ""
    say(f"{pushed.url} ({made}{'private' if pushed.private else 'public'}), commit {pushed.commit}")


def _print_preview(shown: list[Preview], *, as_json: bool) -> None:
    """Print examples: what is masked in another colour; where there are no colours, between ⟦ and ⟧."""
    if as_json:
        named = ("text", "trained")
        parts = [[dict(zip(named, part, strict=True)) for part in one.parts] for one in shown]
        print_json([{"doc_id": one.doc_id, "parts": of_it} for one, of_it in zip(shown, parts, strict=True)])
        return
    if not shown:
        say("no example of it can be exported")
        return
    from rich.text import Text

    from cli.render.console import Console

    console = Console(soft_wrap=True)
    coloured = console.color_system is not None and not console.no_color

    def part(text: str, trained: bool) -> Text:
        if coloured:
            return Text(text, style="green" if trained else "black on yellow")
        return Text(text if trained else f"⟦{text}⟧")

    console.print(Text.assemble(part("trained", True), ", ", part("masked", False)))
    for one in shown:
        console.print(Text(f"\n{one.doc_id}", style="bold"))
        console.print(Text.assemble(*(part(text, trained) for text, trained in one.parts)))
