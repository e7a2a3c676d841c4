"""Markdown from templates (`templates/`): the cards of versions, exports and models, and the summary of a build."""

from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from flows.report.tables import markdown_table


def rendered(template: str, **values: Any) -> str:
    """Return the text of a template; its filter `cell` escapes a value for a table."""
    return _environment().get_template(template).render(**values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("flows.report"),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters |= {"cell": _cell, "number": "{:,}".format, "repr": repr}
    environment.globals["markdown_table"] = markdown_table
    return environment


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
