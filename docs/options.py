"""Writes the tables of the documentation that follow from the code: `python docs/options.py`, after an option changed.

A table stands between two comments in its page. The options are those of the command line, which follow from the flows'
parameters (`flows/*/parameters.py`); one that several commands share stands in a table of its own. The paper's defaults
are the stages' (`toolformer_core/config.py`); tables and columns those of a snapshot of nothing.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import typer.main

from cli.main import app
from cli.options import option_name
from flows.build_dataset.parameters import BuildParameters
from toolformer_core.config import TOOL_NAMES, AssembleConfig, SampleConfig, tau_f_for
from warehouse.catalog import Catalog
from warehouse.snapshot.publish import publish
from warehouse.store import Store

ROOT = Path(__file__).resolve().parents[1]
_OPTION = re.compile(r"--[a-z][a-z-]*")
_BEGIN = "<!-- written by `python docs/options.py` -->"
_END = "<!-- end of what it writes -->"
_SHARED = 3  # commands that have an option, for it to stand among the shared ones
_HEADER = ["| option | default | |", "|---|---|---|"]


def written(page: str) -> str:
    """Return a page of `PAGES` with its table as it should be."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise ValueError(f"{page}: its table stands between {_BEGIN} and {_END}, each once")
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{PAGES[page]()}{_END}{rest.partition(_END)[2]}"


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, one in getattr(command, "commands", {}).items():
        yield from _commands(one, f"{name} {word}")
    if not getattr(command, "commands", {}):
        yield name, command


def _options() -> str:
    """Return a section for each command with its own options, after the options that several commands share."""
    commands = dict(_commands(typer.main.get_command(app), "toolformer"))
    rows = {name: {_row(one): _names(one) for one in command.params} for name, command in commands.items()}
    count = Counter(row for own in rows.values() for row in own)
    shared: dict[str, str] = {}  # names of an option -> its commonest row
    for row, names in ((row, names) for own in rows.values() for row, names in own.items()):
        if count[row] >= max(_SHARED, count[shared.get(names, "")] + 1):
            shared[names] = row
    lines = ["## Shared options", "", *_HEADER, *shared.values()]
    for name, command in commands.items():
        build = rows["toolformer build"] if name == "toolformer plan" else {}
        common = [names for row, names in rows[name].items() if shared.get(names) == row]
        own = [one for one in command.params if shared.get(_names(one)) != _row(one) and _row(one) not in build]
        intro = "All options of `build`, and:" if build else f"Shared: {', '.join(common)}."
        summary = command.help.strip().partition("\n\n")[0].replace("\n", " ")
        lines += ["", f"## {name}", "", _cell(summary), *(("", intro) if common else ())]
        lines += ["", *_table(own)] if own else []
    return "\n".join(lines) + "\n"


def _row(option: Any) -> str:
    return f"| {_names(option)} | {_default(option)} | {_cell(option.help or '')} |"


def _table(options: Sequence[Any]) -> list[str]:
    headings: dict[str, list[Any]] = {}
    for option in options:
        headings.setdefault(option.rich_help_panel or "", []).append(option)
    lines = list(_HEADER)
    for heading, own in headings.items():
        lines += [f"| **{heading}** | | |"] if heading else []
        lines += [_row(one) for one in own]
    return lines


def _names(option: Any) -> str:
    if option.param_type_name == "argument":
        return f"`{option.name.upper()}`"
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _default(option: Any) -> str:
    if option.required:
        return "required"
    none = option.default is None or option.default is False or option.default == ""
    return "" if none else f"`{option.default}`"


def _cell(text: str) -> str:
    plain = text.replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")
    return _OPTION.sub(lambda found: f"`{found[0]}`", plain)


def _defaults() -> str:
    figures = {
        name: {tool: getattr(SampleConfig.for_tool(tool), name) for tool in TOOL_NAMES}
        for name in ("tau_s", "top_k", "samples")
    }
    figures["tau_f"] = {tool: tau_f_for(tool) for tool in TOOL_NAMES}
    figures["max_examples"] = dict.fromkeys(TOOL_NAMES, AssembleConfig().max_examples)
    usual = {name: max(by_tool.values(), key=list(by_tool.values()).count) for name, by_tool in figures.items()}
    others = [tool for tool in TOOL_NAMES if any(figures[name][tool] != usual[name] for name in figures)]
    lines = [f"| what | option | default | {' | '.join(others)} |", "|---|---|---|" + "---|" * len(others)]
    for name, by_tool in figures.items():
        what = str(BuildParameters.model_fields[name].description).partition(" (paper")[0]
        own = " | ".join(f"{by_tool[tool]:,}" if by_tool[tool] != usual[name] else "" for tool in others)
        lines.append(f"| {_cell(what)} | `{option_name(name)}` | {usual[name]:,} | {own} |")
    return "\n".join(lines) + "\n"


def _columns() -> str:
    named = """
        SELECT table_name AS name, comment, table_name AS read FROM duckdb_tables() WHERE schema_name = 'main'
        UNION ALL SELECT view_name, comment, view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal
        UNION ALL SELECT DISTINCT function_name || '(' || array_to_string(parameters, ', ') || ')', comment,
                         function_name || '(' || array_to_string([1 FOR _ IN parameters], ', ') || ')'
        FROM duckdb_functions() WHERE function_type = 'table_macro' AND schema_name = 'main' AND NOT internal
        ORDER BY name"""
    with (
        tempfile.TemporaryDirectory() as folder,
        Catalog(Path(folder, "catalog.duckdb")) as catalog,
        duckdb.connect(publish(Store(folder), catalog), read_only=True) as snapshot,
    ):
        lines = [
            f"| `{name}` | {_cell(comment)} | `{', '.join(snapshot.sql(f'FROM {read}').columns)}` |"
            for name, comment, read in snapshot.sql(named).fetchall()
        ]
    return "\n".join(["| table | | columns |", "|---|---|---|", *lines]) + "\n"


# Page -> what stands in its table.
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/building.md": _defaults,
    "docs/options.md": _options,
    "docs/tables.md": _columns,
}

if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(written(page), encoding="utf-8")
