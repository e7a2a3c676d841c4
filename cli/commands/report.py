"""The command `report`: a version of C* as one HTML file. `cli.main` registers it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.warehouse import built_store, published_snapshot
from cli.options import Data
from toolformer_core.errors import UsageError


def report(
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The file to write")],
    dataset: Annotated[str, typer.Option(help="name or name@version (default: the current build's)")] = "",
    data: Data = None,
    examples: Annotated[int, typer.Option(min=0, help="Calls of each tool to show, drawn at random")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of that draw")] = 0,
) -> None:
    """Write a version of C* as one HTML page: figures by tool, gains, examples, rows by stage, parameters.

    The page needs no other file and no network: attach it to a paper, a model card or a message.

    Example: toolformer report cstar.html --data runs/c4
    """
    from flows.export.find import find_dataset
    from viewer.report import report_page
    from warehouse.queries import current_build

    if out.exists():
        raise UsageError(f"{out} exists already; name another, or remove it first")
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
