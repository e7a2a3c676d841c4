"""A user's own query, in a process of its own: it only reads (`warehouse.queries.guarded`), and can always be ended.

When its time is over, the query is interrupted, and its process killed if it does not end then.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

TIMEOUT_S = 10.0
MAX_ROWS = 500
_MEMORY = "500MB"
_MAX_CHARS = 2_000  # of a cell
_MAX_ANSWER = 16 << 20  # bytes
_GRACE_S = 10.0  # for the process to start, and to end after the interrupt


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The first rows of a query, or why there are none."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str | None]] = ()  # cells as text; None: NULL
    more: bool = False  # whether there are further rows
    problem: str = ""


def ask_in_process(snapshot: Path, sql: str, timeout_s: float = TIMEOUT_S) -> SqlAnswer:
    command = [sys.executable, "-m", "viewer.sql_process", str(snapshot.absolute()), str(timeout_s)]
    try:
        done = subprocess.run(
            command,
            input=sql.encode(errors="replace"),
            capture_output=True,
            check=False,
            timeout=timeout_s + _GRACE_S,
            cwd=Path(__file__).parents[1],  # where no file of the user's is imported as a module
        )
        return SqlAnswer(**json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return SqlAnswer(problem=f"the query took longer than {timeout_s:g} s and was ended")
    except ValueError:
        return SqlAnswer(problem="the query's process ended without an answer: it may have needed too much memory")


def _answer(snapshot: Path, sql: str, timeout_s: float) -> SqlAnswer:
    from warehouse.errors import WarehouseError
    from warehouse.queries.guarded import run_query

    try:
        with run_query(snapshot, sql, timeout_s, _MEMORY) as rows:
            shown, size = [], 0
            for row in islice(rows, MAX_ROWS + 1):
                shown.append([_cell(value) for value in row])
                size += sum(len(cell or "") for cell in shown[-1])
                if size > _MAX_ANSWER // 4:
                    break
            return SqlAnswer(rows.columns, shown[:MAX_ROWS], len(shown) > MAX_ROWS or size > _MAX_ANSWER // 4)
    except WarehouseError as exc:
        return SqlAnswer(problem=" ".join(str(exc).split()))


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"


def main() -> None:
    """Answer the query on standard input; the arguments are the snapshot and the seconds that it may take."""
    snapshot, timeout_s = sys.argv[1:]
    sql = sys.stdin.buffer.read().decode(errors="replace")
    sys.stdout.write(json.dumps(asdict(_answer(Path(snapshot), sql, float(timeout_s)))))


if __name__ == "__main__":
    main()
