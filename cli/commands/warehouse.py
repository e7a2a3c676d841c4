"""The commands `sql`, `reconcile`, `gc` and `pack`, which query, repair, clean up and export a warehouse."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from rich.filesize import decimal
from typer import Argument, Exit, Option

from cli.options import AsJson, Data
from cli.terminal import print_json, say, visible
from tasks.settings import data_folder, seconds, shared_catalog
from toolformer_core.errors import UsageError

if TYPE_CHECKING:
    from warehouse.catalog import Catalog
    from warehouse.errors import LockHeldError
    from warehouse.gc import Garbage
    from warehouse.queries.guarded import Rows
    from warehouse.store import Store

_MANY_ROWS = 100_000  # copying a table with at least this many rows is announced, as it takes a moment
_SHOWN_ROWS = 100  # of a printed table
_CELL_CHARS = 60
_MAX_TIMEOUT_S = 7 * 24 * 3600.0  # a week; a timer cannot take any number of seconds


def built_store(data: str | None) -> Store:
    """Return the store of a data folder; a UsageError says that nothing was built there."""
    from warehouse.store import Store

    store = Store(data_folder(data))
    if next(store.files.walk("commits"), None) is None:
        raise UsageError(f"nothing was built in {data_folder(data)} yet; run toolformer build, or name another --data")
    return store


def published_snapshot(data: str | None) -> Path:
    """Return the published snapshot of a data folder; a UsageError says that there is none."""
    from warehouse.snapshot.publish import SNAPSHOT

    path = built_store(data).local_folder / SNAPSHOT
    if not path.is_file():
        raise UsageError(f"there is no {path}; run toolformer reconcile --data {quote(data_folder(data))}")
    return path


def check_new(file: Path) -> None:
    """Raise a UsageError if a file that is to be written is there already."""
    if file.exists():
        raise UsageError(f"{file} exists already; name another, or remove it first")


def _open_catalog(store: Store, rebuild: bool = False) -> Catalog:
    from warehouse.catalog import Catalog

    def report_wait(error: LockHeldError) -> None:
        say(f"waiting at most {seconds('wait'):.0f} s: {error}", error=True)

    location = shared_catalog() or store.local_folder / "catalog.duckdb"
    return Catalog(location, store=store, rebuild=rebuild, wait_s=seconds("wait"), on_wait=report_wait)


def reconcile(
    data: Data = None,
    check: Annotated[bool, Option("--check", help="Read every file, and set aside what is damaged")] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild the catalog and the snapshot from the commits.

    With --check the exit code is 1 if something was damaged; the next build that needs it makes it anew.

    Example: toolformer reconcile --check --data runs/c4
    """
    from warehouse.audit import audit
    from warehouse.snapshot.publish import publish

    store = built_store(data)
    damages = audit(store) if check else []  # first, as opening the catalog sets aside damaged commits that it reads
    with _open_catalog(store, rebuild=True) as open_catalog:
        counts = open_catalog.counts()
        publish(store, open_catalog, anew=True)
    if as_json:
        print_json(counts | ({"damaged": damages} if check else {}))
    else:
        found = ", ".join(f"{counts[name]:,} {name}" for name in ("commits", "runs", "datasets"))
        print(f"found: {found}")
        for damage in damages:
            say(f"damaged  {damage.path} {damage.why}")
        for name in sorted({name for damage in damages for name in damage.datasets}):
            print(f"{name} depends on what is damaged: run the build that made it again")
    if damages:
        raise Exit(1)


def gc(
    data: Data = None,
    delete: Annotated[bool, Option("--delete", help="Remove what is listed")] = False,
    unfinished_days: Annotated[float, Option(min=0.0, help="Keep what unfinished runs did for this many days")] = 7.0,
    as_json: AsJson = False,
) -> None:
    """List files that no dataset version, current build or evaluation needs: superseded shards, remains of killed runs.

    Nothing is removed without --delete. With it the command waits for a flow that uses the same folder. Where machines
    share a catalog it cannot wait for their flows, so it removes nothing while a run goes on.

    Example: toolformer gc --data runs/c4 --delete
    """
    from warehouse.gc import active_runs, delete_garbage, find_garbage

    store = built_store(data)
    with _open_catalog(store) if delete else contextlib.nullcontext() as open_catalog:
        shared = open_catalog is not None and not open_catalog.is_duckdb
        if shared and (runs := active_runs(store, unfinished_days=unfinished_days)):
            advice = "let them finish, or say by --unfinished-days from what age on a run is taken for dead"
            raise UsageError(f"runs go on, or were killed: {', '.join(runs)}; {advice}")
        garbage = find_garbage(store, unfinished_days=unfinished_days, temporary_s=seconds("sweep"))
        if open_catalog is not None:
            delete_garbage(store, open_catalog, garbage)
    total = sum(item.bytes for item in garbage)
    if as_json:
        print_json({"deleted": delete, "bytes": total, "files": garbage})
        return
    if not garbage:
        print("nothing to remove: every file is needed")
        return
    _print_garbage(garbage)
    state = "removed" if delete else "to be removed: run it again with --delete"
    print(f"{len(garbage):,} files, {decimal(total)} {state}")


def pack(
    out: Annotated[Path, Argument(metavar="OUT.duckdb", help="The file to write")],
    data: Data = None,
    tables: Annotated[str, Option(help="Copy only these, e.g. examples,scored, and views that need no others")] = "",
    as_json: AsJson = False,
) -> None:
    """Pack the warehouse into one DuckDB file with all views, to open anywhere.

    The texts, calls and scores that the snapshot only points at are copied into it; paths of this machine are shortened
    to file names. Any DuckDB client opens it. Data on a URL is fetched for it; `toolformer sql` asks it in place.

    Example: toolformer pack c4.duckdb --data runs/c4     and then, wherever the file is:

    duckdb c4.duckdb "SELECT tool, input, response, gain FROM kept_calls ORDER BY gain DESC LIMIT 20"
    """
    from warehouse.files.paths import database_problem
    from warehouse.schema import TABLES
    from warehouse.snapshot.pack import pack as pack_snapshot

    snapshot = published_snapshot(data)
    if problem := database_problem(out.absolute()):
        raise UsageError(problem)
    check_new(out)

    def announce(table: str, rows: int) -> None:
        if rows >= _MANY_ROWS:
            say(f"copying {table}: {rows:,} rows", error=True)

    chosen = [name.strip() for name in tables.split(",") if name.strip()] if tables else None
    if unknown := sorted(set(chosen or ()) - TABLES.keys()):
        raise UsageError(f"--tables: there is no table {', '.join(unknown)}; the tables are: {', '.join(TABLES)}")
    packed = pack_snapshot(snapshot, out, announce, chosen)
    size = out.stat().st_size
    if as_json:
        print_json({"file": str(out), "bytes": size, "tables": packed.tables, "views": packed.views})
        return
    for table, rows in packed.tables.items():
        print(f"{table:<24}  {rows:>14,} rows")
    print(f"views: {', '.join(packed.views)}")
    say(f'{out}, {decimal(size)}. Ask it: duckdb {quote(str(out))} "FROM costs"')


def _print_garbage(garbage: Iterable[Garbage]) -> None:
    groups: dict[tuple[str, str, str], list[Garbage]] = defaultdict(list)
    for item in garbage:
        groups[item.kind, item.path.rpartition("/")[0], item.why].append(item)
    for (kind, folder, reason), items in groups.items():
        size = decimal(sum(item.bytes for item in items))
        say(f"{kind:<10}  {folder:<32}  {len(items):>9,} files  {size:>10}  {reason}")


def sql(
    query: Annotated[str, Argument(metavar="SELECT", help="One statement that returns rows")],
    data: Data = None,
    timeout: Annotated[float, Option(min=0.1, max=_MAX_TIMEOUT_S, help="Seconds that the query may take")] = 60.0,
    memory: Annotated[str, Option(help="Memory that the query may use")] = "1GB",
    as_csv: Annotated[bool, Option("--csv", help="Print CSV with a line of names, every row in full")] = False,
    as_json: AsJson = False,
) -> None:
    """Query the warehouse in SQL (DuckDB's), also where the data lies on a URL. Read-only.

    Without --csv or --json the first hundred rows are printed, long texts shortened. The tables and views are those of
    the snapshot; `SHOW TABLES` lists them. JSON has no NaN and no infinity: with --json they are null, as NULL is.

    Example: toolformer sql "SELECT tool, count(*) AS calls, avg(gain) AS gain FROM scored GROUP BY tool" --data runs/c4

    toolformer sql "FROM kept_calls ORDER BY gain DESC" --csv --data s3://bucket/c4 > calls.csv
    """
    from warehouse.errors import RefusedQueryError
    from warehouse.queries.guarded import distinct_names, run_query

    if as_csv and as_json:
        raise UsageError("give --csv or --json, not both")
    snapshot = published_snapshot(data)
    try:
        with run_query(snapshot, query, timeout, memory) as rows:
            if as_json:
                names = distinct_names(rows.columns)
                print_json([dict(zip(names, row, strict=True)) for row in rows])
            elif as_csv:
                writer = csv.writer(sys.stdout, lineterminator="\n")
                writer.writerow(rows.columns)
                writer.writerows(rows)
            else:
                _print_table(rows)
    except RefusedQueryError as exc:
        raise UsageError(str(exc)) from exc


def _print_table(rows: Rows) -> None:
    shown = [[_cell(value) for value in row] for row in islice(rows, _SHOWN_ROWS + 1)]
    more, shown = len(shown) > _SHOWN_ROWS, shown[:_SHOWN_ROWS]
    widths = [max(map(len, column)) for column in zip(map(visible, rows.columns), *shown, strict=True)]
    for line in (rows.columns, *shown):
        say("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())
    if more:
        say(f"... the first {_SHOWN_ROWS} rows; --csv prints all", error=True)


def _cell(value: Any) -> str:
    text = "NULL" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    text = visible(" ".join(text.split()))
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"
