"""Writes the tables of options in the documentation: `python docs/options.py`, after a parameter was changed.

A table stands between two comments in its page. It is made of the command line's options, and these of the flows'
parameters (`flows/*/parameters.py`), so nothing of it is written by hand. The defaults that differ from tool to tool
are the stages' (`toolformer_core/config.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer.main

from cli.main import app
from cli.options import option_name
from flows.build_dataset.parameters import BuildParameters
from toolformer_core.config import TOOL_NAMES, AssembleConfig, SampleConfig, tau_f_for

ROOT = Path(__file__).resolve().parents[1]
# Page -> what its table holds: the options of a command, or the paper's defaults.
PAGES: Mapping[str, str] = {
    "README.md": "defaults",
    "docs/build.md": "build",
    "docs/evaluation.md": "evaluate",
    "docs/export.md": "export",
    "docs/finetune.md": "finetune",
    "docs/ground.md": "ground benchmarks",
    "docs/recipes.md": "run",
}
_OPTION = re.compile(r"--[a-z][a-z-]*")
_BEGIN = "<!-- written by `python docs/options.py` -->"
_END = "<!-- end of what it writes -->"


def written(page: str) -> str:
    """Return a page of `PAGES` with its table as it should be.

    Raises:
        ValueError: the page has no place for a table.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise ValueError(f"{page}: its table stands between {_BEGIN} and {_END}, each once")
    table = _defaults() if PAGES[page] == "defaults" else _options(PAGES[page])
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{table}{_END}{rest.partition(_END)[2]}"


def _options(command: str) -> str:
    """Return a table of a command's options, under the headings of its help."""
    headings: dict[str, list[Any]] = {}
    found: Any = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    for option in found.params:
        headings.setdefault(option.rich_help_panel or "", []).append(option)
    lines = ["| option | default | |", "|---|---|---|"]
    for heading, options in headings.items():
        lines += [f"| **{heading}** | | |"] if heading else []
        lines += [f"| {_names(one)} | {_default(one)} | {_cell(one.help)} |" for one in options]
    return "\n".join(lines) + "\n"


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
    """Return a help text as Markdown shows it, options in it as code."""
    plain = text.replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")
    return _OPTION.sub(lambda found: f"`{found[0]}`", plain)


def _defaults() -> str:
    """Return the table of the paper's defaults, with a column for each tool that has others."""
    figures = {
        name: {tool: getattr(SampleConfig.for_tool(tool), name) for tool in TOOL_NAMES}
        for name in ("tau_s", "top_k", "draws")
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


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(written(page), encoding="utf-8")
