"""The command `index wikipedia`, which makes a search index for WikiSearch and QA.

`cli.main` registers it.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.options import AsJson
from cli.terminal import exit_on_signal, print_json, say

index_app = typer.Typer(help="Search indexes on disk, which processes share.", no_args_is_help=True)


class SourceFormat(StrEnum):
    """The files in which an encyclopedia is published."""

    dump = "dump"
    kilt = "kilt"
    psgs = "psgs"
    jsonl = "jsonl"


@index_app.callback()
def _group() -> None:
    """Search indexes on disk, which processes share."""


@index_app.command("wikipedia")
def index_wikipedia(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="pages-articles.xml.bz2, KILT's knowledge source, psgs_w100.tsv, or JSON lines of title, section and "
            "text; each may be compressed",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the index")],
    limit: Annotated[int | None, typer.Option(min=1, help="Index so many passages, for a trial")] = None,
    format_: Annotated[
        SourceFormat | None, typer.Option("--format", help="What SRC is (default: recognised by its first bytes)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Index an encyclopedia for WikiSearch and QA; sections are cut into passages of about 100 words.

    It may be stopped at any time: the same command goes on from the last committed passage.

    Example: toolformer index wikipedia enwiki-latest-pages-articles.xml.bz2 --out enwiki
    """
    from cli.render.index_progress import IndexDisplay
    from toolformer_core.tools.search.index_writer import build_index, finished_index
    from toolformer_core.tools.search.passage_sources import open_source

    opened = open_source(source, format_.value if format_ else None)
    found = finished_index(opened, out, limit)
    if found is None:
        with IndexDisplay(opened.bytes, limit, quiet=as_json) as display, exit_on_signal(display):
            info = build_index(opened, out, limit=limit, on_progress=display)
    else:
        info = found
    if as_json:
        summary = {name: value for name, value in asdict(info).items() if name not in ("files", "identity")}
        print_json({"folder": str(out), "built": found is None, "bytes": sum(info.files.values()), **summary})
        return
    size = sum(info.files.values()) / 1e6
    state = "is finished already" if found is not None else "is finished"
    say(f"the index in {out} {state}: {info.passages:,} passages of {info.source}, {size:,.1f} MB, {info.digest}")
    if info.left_out:
        say("left out:", ", ".join(f"{reason} {n:,}" for reason, n in sorted(info.left_out.items())))
