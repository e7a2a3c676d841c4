"""Commands that messages and pages suggest."""

import shlex
from pathlib import Path


def sql_command(snapshot: str | Path, query: str) -> str:
    """Return the command that asks a data folder's snapshot in SQL; DuckDB's own program need not be installed."""
    return shlex.join(["toolformer", "sql", query, "--data", str(Path(snapshot).parent)])
