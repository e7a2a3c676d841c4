"""The commands `view`, `report` and `ratings`: C* in a browser and as one HTML file, and ratings of its calls."""

import json
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option

from cli.commands.warehouse import built_store, check_new, published_snapshot
from cli.options import AsJson, Data
from cli.terminal import as_plain, print_json, say
from tasks.environment import prepare_environment
from tasks.settings import data_folder
from toolformer_core.errors import UsageError


def view(
    data: Data = None,
    port: Annotated[int, Option(min=0, max=65535, help="0 takes a free one")] = 8001,
    host: Annotated[str, Option(help="Address to bind; who reaches it reads data and writes ratings")] = "127.0.0.1",
) -> None:
    """Show C* in a browser: documents with their calls, why each was kept, what other thresholds would keep, SQL.

    The pages read the published snapshot, also while a build runs, and load nothing from the network. They write
    ratings (see toolformer ratings) and the versions that Materialise makes, as what-if --materialise does. Other
    host names than localhost and pages of other origins are refused; TOOLFORMER_ALLOWED_HOSTS and
    TOOLFORMER_ALLOWED_ORIGINS allow more.

    Example: toolformer view                    shows ./toolformer-data; then open http://127.0.0.1:8001
    Example: toolformer view --data runs/c4
    """
    prepare_environment()
    from toolformer_core.endpoints import is_loopback
    from viewer.server import ViewerServer

    folder = data_folder(data)
    if "://" not in folder and not Path(folder).is_dir():
        raise UsageError(
            f"there is no folder {folder}; toolformer build --data {quote(folder)} makes one, "
            "make demo ./toolformer-data"
        )
    server = ViewerServer(folder, host, port)
    if not is_loopback(host):
        say(f"warning: {host} can be reached from other machines, and the viewer asks for no password", error=True)
    print(f"the viewer of {folder}: {server.url}; Ctrl-C ends it", flush=True)
    server.serve_until_ended()


def report(
    out: Annotated[Path, Argument(metavar="OUT.html", help="The file to write")],
    dataset: Annotated[str, Option(help="name or name@version (default: the current build's)")] = "",
    data: Data = None,
    examples: Annotated[int, Option(min=0, help="Calls of each tool to show, drawn at random")] = 5,
    seed: Annotated[int, Option(help="Seed of that draw")] = 0,
) -> None:
    """Write a version of C* as one HTML page: figures by tool, gains, examples, rows by stage, parameters.

    The page needs no other file and no network: attach it to a paper, a model card or a message.

    Example: toolformer report cstar.html --data runs/c4
    """
    from flows.export.find import find_dataset
    from viewer.report import report_page
    from warehouse.queries import current_build

    check_new(out)
    if not out.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {out.absolute().parent}")
    store = built_store(data)
    if not dataset:
        build = current_build(published_snapshot(data))
        dataset = build.name if build is not None else ""
    found = find_dataset(store, dataset or "cstar")
    page = report_page(store, found, examples, seed)
    out.write_text(page, encoding="utf-8")
    print(f"{out}: {found.label}, {len(page.encode()):,} bytes")


def ratings(
    tau: Annotated[str, Option("--tau", help="Further thresholds in nats at which to tell the precision")] = "0.5,1,2",
    export: Annotated[Path | None, Option(metavar="OUT.jsonl", help="Write every rated call there")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Summarise people's ratings of calls: precision by tool with its interval, and agreement between raters.

    A call is right if more people accept than reject it, wrong if more reject it, else open. The precision is that of
    the judged calls; it speaks for all of a tool's calls if those were drawn at random. `toolformer build` and
    `what-if` heed ratings with --ratings.

    Example: toolformer ratings --data runs/c4
    Example: toolformer ratings --export judged.jsonl --data runs/c4
    """
    from flows.report.judging import judgements

    try:
        thresholds = [float(part) for part in tau.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--tau: {tau!r} is no list of numbers; write e.g. 0.5,1,2") from None
    if export is not None:
        check_new(export)
    found = judgements(built_store(data), published_snapshot(data), thresholds)
    if export is not None:
        rows = (
            {**asdict(of.call), "gain": of.gain, "verdicts": dict(of.verdicts), "judgement": of.judgement}
            for of in found.calls
        )
        export.write_text("".join(json.dumps(as_plain(row)) + "\n" for row in rows), encoding="utf-8")
    if as_json:
        print_json({**asdict(found), "calls": len(found.calls), "users": found.users})
        return
    from cli.render.answers import print_judgements

    print_judgements(found)
    if export is not None:
        print(f"{export}: {len(found.calls):,} rated calls")
