"""Paths in the notations of others: SQLite files' URLs, and which paths can hold no data; it imports nothing heavy."""

import re
from pathlib import Path

_SQLITE = "sqlite:///"
_UNUSABLE = re.compile(r"[\x00-\x1f?\\]|:memory:")


def sqlite_url(file: Path) -> str:
    """Return the SQLAlchemy URL of an SQLite file. SQLAlchemy 2.0 decodes nothing in it: `%20` is part of a name."""
    return f"{_SQLITE}{file.absolute()}"


def sqlite_file(url: str) -> Path | None:
    """Return the absolute path of an SQLite file from its URL; None: the URL names something else."""
    if not url.startswith(_SQLITE):
        return None
    return Path(url.removeprefix(_SQLITE).partition("?")[0]).absolute()


def text_problem(text: str) -> str:
    """Return in one line that a path or another argument is not UTF-8, which records and tables need; "" if it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{text!a} is not UTF-8: rename it, or choose another path"
    return ""


def database_problem(path: str | Path) -> str:
    r"""Return in one line why an absolute path can hold no data; "" if it can.

    DuckDB writes the log of a database to another folder if the path has a `?`, and reads `\` as `/`. Trainings take no
    control characters, and Prefect writes nothing at all where it sees `:memory:`.
    """
    text = str(path)
    if found := _UNUSABLE.search(text):
        return f"{text!r} holds {found[0]!r}, and no database can lie there: rename it, or choose another path"
    return text_problem(text)
