"""The commands `tools list`, `tools test`, `tools new` and `index wikipedia`."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Exit, Option, Typer

from cli.options import AsJson, option_of, with_options
from cli.terminal import exit_on_signal, print_json, say
from cli.tool_options import ToolData, ToolOptions, build_chosen
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import ToolformerError, UsageError

tools_app = Typer(help="List tools, try one, write your own.", no_args_is_help=True)

References = Annotated[list[str] | None, option_of(ToolOptions, "tool")]


@tools_app.command("list")
def tools_list(tool: References = None, as_json: AsJson = False) -> None:
    """List the paper's tools, the library's, those of installed packages, and your own; say where each comes from.

    Example: toolformer tools list --tool miles.py:miles
    """
    from toolformer_core.tools.build import build_tools
    from toolformer_core.tools.custom.python_tool import entry_point_names
    from toolformer_core.tools.declaration import declaration_of
    from toolformer_core.tools.library import LIBRARY

    paper = list(build_chosen(ToolOptions(tools=list(TOOL_NAMES))).values())
    others = [*entry_point_names(), *(tool or ())]
    own = list(build_chosen(ToolOptions(tool=others)).values()) if others else []
    taken = {*(one.key for one in own), *(one.name for one in own)}  # a library's tool gives way to one of these
    shipped = [one for one in build_tools(list(LIBRARY)).values() if one.key not in taken and one.name not in taken]
    tools = [*paper, *shipped, *own]
    rows: list[dict[str, Any]] = [
        {"key": t.key, "name": t.name, "description": t.description, "origin": declaration_of(t).origin} for t in tools
    ]
    if as_json:
        print_json(rows)
        return
    from rich.markup import escape

    from cli.render.console import Console, narrow_table

    headers = ("name", "in a call", "what it does", "from")
    Console().print(narrow_table("", headers, rows=[[*map(escape, row.values())] for row in rows]))


@tools_app.command("test", context_settings={"ignore_unknown_options": True})  # an input may begin with a minus
@with_options(ToolData)
def tools_test(
    data: ToolData,
    name: Annotated[str, Argument(help="A tool of the paper or the library, or one of your own; see tools list")],
    input_: Annotated[str, Argument(metavar="INPUT")] = "",
    context: Annotated[str, Option(help="What the tool must know, e.g. the calendar's ISO date")] = "",
) -> None:
    """Call a tool once; a failure says why and ends with exit 1.

    Example: toolformer tools test calculator "27 + 4 * 2"     prints 35
    """
    from toolformer_core.records import ToolFailure
    from toolformer_core.tools.responses import run_guarded

    named = {"tools": [name]} if name.lower() in TOOL_NAMES else {"tool": [name]}
    (tool,) = build_chosen(ToolOptions(**data.model_dump(), **named)).values()
    tool.load()
    result = run_guarded(tool, input_, context)
    if isinstance(result, ToolformerError):
        raise result
    if isinstance(result, ToolFailure):
        say(f"{tool.name}({input_}) gave nothing: {result.reason} {result.detail}".rstrip(), error=True)
        raise Exit(1)
    say(result.text)


@tools_app.command("new")
def tools_new(
    name: Annotated[str, Argument(help="The tool's name, e.g. miles; in calls it is written in CamelCase")],
    mcp: Annotated[str, Option(help="Describe an MCP server's tool instead, e.g. mcp+stdio:COMMAND#TOOL")] = "",
) -> None:
    """Write a tool of your own into this folder: NAME.py, its prompt NAME.txt and test_NAME.py. It works as it stands.

    With --mcp it writes NAME.yaml and the draft of a prompt. Nothing that exists is overwritten.

    Example: toolformer tools new miles && toolformer tools test miles.py:miles "26.2 miles"     prints 42.2 km
    """
    from toolformer_core.tools.custom.scaffold import new_mcp_tool, new_python_tool

    if mcp:
        from toolformer_core.tools.mcp import mcp_tool

        tool = mcp_tool(mcp)
        files = new_mcp_tool(name, mcp, tool.description, tool.form.template)
    else:
        files = new_python_tool(name)
    if existing := [file for file in files if os.path.lexists(file)]:  # also a link that leads to nothing
        raise UsageError(f"{', '.join(existing)} exist already; choose another name or folder")
    for file, text in files.items():
        with Path(file).open("x", encoding="utf-8") as new:
            new.write(text)
    reference = next(iter(files)) if mcp else f"{name}.py:{name}"
    todo = f"; write 3 to 5 demonstrations into {list(files)[1]}" if mcp else ""
    say(f"wrote {', '.join(files)}; try it with: toolformer tools test {reference} ...{todo}")


index_app = Typer(help="Build search indexes on disk, shared by processes.", no_args_is_help=True)


@index_app.command("wikipedia")
def index_wikipedia(
    source: Annotated[
        Path,
        Argument(metavar="SRC", help="pages-articles.xml, KILT's source, psgs_w100.tsv or JSONL, plain or compressed"),
    ],
    out: Annotated[Path, Option(help="Folder of the index")],
    limit: Annotated[int | None, Option(min=1, help="Index at most this many passages, for a trial")] = None,
    format_: Annotated[
        Literal["dump", "kilt", "psgs", "jsonl"] | None,
        Option("--format", help="What SRC is (default: recognised by its first bytes)"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Index an encyclopedia for WikiSearch and QA; sections are cut into passages of about 100 words.

    It may be stopped at any time: the same command goes on from the last committed passage.

    Example: toolformer index wikipedia enwiki-latest-pages-articles.xml.bz2 --out enwiki
    """
    from cli.render.progress import IndexDisplay
    from flows.report.tables import counted
    from toolformer_core.tools.search.index_writer import build_index, finished_index
    from toolformer_core.tools.search.passage_sources import open_source

    opened = open_source(source, format_)
    found = info = finished_index(opened, out, limit)
    if info is None:
        with IndexDisplay(opened.identity.bytes, limit, quiet=as_json) as display, exit_on_signal(display):
            info = build_index(opened, out, limit=limit, on_progress=display)
    if as_json:
        summary = {name: value for name, value in asdict(info).items() if name not in ("files", "identity")}
        print_json({"folder": str(out), "built": found is None, "bytes": sum(info.files.values()), **summary})
        return
    size = sum(info.files.values()) / 1e6
    state = "is finished already" if found is not None else "is finished"
    say(f"the index in {out} {state}: {info.passages:,} passages of {info.source}, {size:,.1f} MB, {info.digest}")
    if info.left_out:
        say(f"left out: {counted(dict(sorted(info.left_out.items())))}")
