"""Markdown from templates (`templates/`): the cards of versions, exports and models, and the summary of a build."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from flows.report.tables import markdown_table


def rendered(template: str, **values: Any) -> str:
    """Return the text of a template; its filter `cell` escapes a value for a table."""
    return _ENVIRONMENT.get_template(template).render(**values)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


_ENVIRONMENT = Environment(
    loader=PackageLoader("flows.report"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters |= {"cell": _cell, "number": "{:,}".format, "repr": repr}
_ENVIRONMENT.globals["markdown_table"] = markdown_table
