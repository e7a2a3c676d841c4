"""Prints the list of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.markup import escape
from rich.table import Table

from cli.render.console import Console


def print_tools(rows: Iterable[Mapping[str, str]]) -> None:
    """Print a row a tool.

    Args:
        rows: each with `key`, `name`, `description` and `origin`.
    """
    table = Table()
    for name in ("name", "in a call", "what it does", "from"):
        table.add_column(name)
    for row in rows:
        table.add_row(*(escape(row[name]) for name in ("key", "name", "description", "origin")))
    Console().print(table)
