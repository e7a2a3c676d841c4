"""Finding documents, a page at a time: by words, host, date, length, tool, gain, and by where something was dropped.

Documents are looked at file by file, in the order of the files' names. A search ends with its page or when its time is
over, and says after which document it goes on, however rare what is sought is.
"""

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from warehouse.queries.rows import data_root, open_snapshot, rows_in, version_sql
from warehouse.snapshot.relations import HOST, parquet_sql
from warehouse.snapshot.views import MEASURED, queries_beside

_WORDS = re.compile(r'"([^"]+)"|(\S+)')
_MAX_WORDS = 16
_BEGIN_CHARS = 200  # of a text, that a list shows
_BEFORE_CHARS = 60  # of these before the first word that was sought

_PARTS = 64  # files that are listed at once
_SQL = queries_beside(__file__)

# Stage -> the tables that say why something was dropped there; its query finds the documents of which something was.
DROP_STAGES = {
    "prefilter": ("prefiltered",),
    "sample": ("sampled",),
    "execute": ("executed", "sampled", "prefiltered"),
}
_LAST = chr(0x10FFFF)  # sorts after every id
_NEXT = "\x01"  # a name with this after it is followed by the same names as the name itself


class DocumentKey(NamedTuple):
    name: str  # of the file
    doc_id: str  # "": before the file's first document


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """What a document must be like; what is not given, or "", excludes nothing."""

    dataset: str = ""  # with `version`: in this version of C*; "": in the current build
    version: str = ""
    text: str = ""  # words that its text contains, in any case; "two words" in quotes as they stand
    host: str = ""  # of its URL, or the end of it
    since: str = ""  # dates as the corpus gives them, e.g. 2010-08-08
    until: str = ""
    shortest: int | None = None  # characters
    longest: int | None = None
    kept: bool = False  # with a call in C*
    tool: str = ""  # of that call, of the scored call, or of what was dropped
    low: float | None = None  # with a scored call, or in a version a kept one, that gains at least this (nats)
    high: float | None = None  # ... and less than this
    stage: str = ""  # with `reason`: something of it was dropped there (a key of DROP_STAGES)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FoundDocument:
    doc_id: str
    text: str  # its beginning, or what stands around the first word that was sought
    cut: bool  # whether that begins inside the text
    characters: int
    url: str | None
    created: str | None
    tools: tuple[str, ...]  # of its calls in C*, in the order of the text


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """What a search found until its page was full or its time was over."""

    documents: tuple[FoundDocument, ...]
    last: DocumentKey | None  # after which it goes on; None: everything was searched
    full: bool  # whether it ended because the page is full


class _Part(NamedTuple):
    name: str
    files: dict[str, list[str]]


class _Condition(NamedTuple):
    sql: str
    tables: tuple[str, ...] = ()
    parameters: dict[str, Any] = {}  # noqa: RUF012 - nothing writes into it


def find_documents(
    path: str | Path, wanted: DocumentFilter, n: int, after: DocumentKey | None = None, seconds: float = 0.5
) -> DocumentPage:
    """Search documents behind the last page (None: from the first on); after `seconds` no further file is begun."""
    conditions = _conditions(wanted)
    ends = time.monotonic() + seconds
    found: list[tuple[DocumentKey, FoundDocument]] = []
    searched = ""
    with open_snapshot(path) as connection:
        for part in _parts(connection, wanted, _first_name(after)):
            if searched and time.monotonic() > ends:
                return DocumentPage(tuple(one for _, one in found), DocumentKey(searched, _LAST), False)
            begin = after.doc_id if after is not None and part.name == after.name else ""
            for one in _search(connection, part, wanted, conditions, begin, n + 1 - len(found)):
                found.append((DocumentKey(part.name, one.doc_id), one))
            if len(found) > n:
                return DocumentPage(tuple(one for _, one in found[:n]), found[n - 1][0], True)
            searched = part.name
    return DocumentPage(tuple(one for _, one in found), None, False)


def example_of(path: str | Path, dataset: str, version: str, doc_id: str) -> dict[str, Any] | None:
    """Return a document of a version of C*, `text` with its calls and `calls`; None if the version does not have it."""
    with open_snapshot(path) as connection:
        if (relation := version_sql(connection, dataset, version)) is None:
            return None
        rows = rows_in(connection, f"SELECT text, calls FROM {relation} WHERE doc_id = $id LIMIT 1", {"id": doc_id})
    return rows[0] if rows else None


def _first_name(after: DocumentKey | None) -> str:
    """Return the name from which files are searched: a file that was searched to its end is not searched again."""
    if after is None:
        return ""
    return after.name + _NEXT if after.doc_id == _LAST else after.name


def _parts(connection: duckdb.DuckDBPyConnection, wanted: DocumentFilter, first: str) -> Iterator[_Part]:
    root = data_root(connection)
    sql, version = _SQL["current"], {}
    if wanted.version:
        sql, version = _SQL["of_version"], {"dataset": wanted.dataset, "version": wanted.version}
    while True:
        parts: dict[str, dict[str, list[str]]] = {}
        for row in rows_in(connection, sql, {**version, "limit": _PARTS, "after": first}):
            files = parts.setdefault(row["name"], {})
            files.setdefault(row["table_name"], []).append(f"{root}/{row['path']}")
        yield from itertools.starmap(_Part, parts.items())
        if len(parts) < _PARTS:
            return
        first = max(parts) + _NEXT


def _search(
    connection: duckdb.DuckDBPyConnection,
    part: _Part,
    wanted: DocumentFilter,
    conditions: list[_Condition],
    begin: str,
    limit: int,
) -> Iterator[FoundDocument]:
    tables = {table for condition in conditions for table in condition.tables} | {"examples"}
    if not tables - {"examples"} <= part.files.keys():
        return  # nothing was sampled, executed or scored there
    relations = {table: f"FROM {parquet_sql(part.files[table])}" for table in tables & part.files.keys()}
    relations.setdefault("examples", _SQL["no_examples"])
    columns = "doc_id, text, url, created"
    relations["documents"] = (
        f"SELECT {columns} FROM {parquet_sql(part.files['documents'])}"
        if "documents" in part.files
        else "SELECT doc_id, text, NULL::VARCHAR AS url, NULL::VARCHAR AS created FROM examples"
    )
    ordered = sorted(relations.items(), key=lambda item: item[0] == "documents")  # which may be made from examples
    words = _words(wanted.text)
    at = f"greatest(strpos(lower(d.text), lower($word0)) - {_BEFORE_CHARS}, 1)" if words else "1"
    sql = f"""
WITH {", ".join(f"{name} AS ({relation})" for name, relation in ordered)}
SELECT d.doc_id, substring(d.text, {at}, {_BEGIN_CHARS}) AS text, {at} > 1 AS cut, length(d.text) AS characters, d.url,
       d.created, coalesce(list_transform(e.calls, lambda call: call.tool), []) AS tools
FROM documents AS d {"JOIN" if wanted.version else "LEFT JOIN"} examples AS e USING (doc_id)
WHERE d.doc_id > $begin {"".join(f"AND ({condition.sql}) " for condition in conditions)}
ORDER BY d.doc_id LIMIT $limit"""
    parameters: dict[str, Any] = {"begin": begin, "limit": limit}
    for condition in conditions:
        parameters |= condition.parameters
    for row in rows_in(connection, sql, parameters):
        yield FoundDocument(**{**row, "tools": tuple(row["tools"])})


def _conditions(wanted: DocumentFilter) -> list[_Condition]:
    out = [
        _Condition(f"contains(lower(d.text), lower($word{number}))", (), {f"word{number}": word})
        for number, word in enumerate(_words(wanted.text))
    ]
    simple = {
        "host": f"{HOST} = lower($host) OR ends_with({HOST}, '.' || lower($host))",
        "since": "d.created >= $since",
        "until": "d.created <= $until OR starts_with(d.created, $until)",
        "shortest": "length(d.text) >= $shortest",
        "longest": "length(d.text) <= $longest",
    }
    for name, sql in simple.items():
        if (value := getattr(wanted, name)) not in (None, ""):
            out.append(_Condition(sql, (), {name: value}))
    if wanted.kept and not wanted.version:
        out.append(_Condition("e.doc_id IS NOT NULL"))
    tool = {"tool": wanted.tool} if wanted.tool else {}
    own_tool = "tool = $tool" if wanted.tool else "true"
    gains = {name: value for name, value in (("low", wanted.low), ("high", wanted.high)) if value is not None}
    if gains:
        bounds = " AND ".join({"low": "gain >= $low", "high": "gain < $high"}[name] for name in gains)
        parameters = {**gains, **tool}
        if wanted.kept or wanted.version:
            kept = f"FROM (SELECT unnest(e.calls, max_depth := 2)) WHERE {bounds} AND {own_tool}"
            out.append(_Condition(f"EXISTS ({kept})", (), parameters))
        else:
            scored = f"SELECT doc_id FROM scored WHERE {MEASURED} AND {bounds} AND {own_tool}"
            out.append(_Condition(f"d.doc_id IN ({scored})", ("scored",), parameters))
    if wanted.stage:
        if wanted.stage not in DROP_STAGES:
            raise ValueError(f"reasons are searched in {', '.join(DROP_STAGES)}, not in {wanted.stage!r}")
        tables = DROP_STAGES[wanted.stage]
        dropped = _SQL[f"dropped_by_{wanted.stage}"].format(tool=own_tool.replace("tool =", f"{tables[0]}.tool ="))
        out.append(_Condition(f"d.doc_id IN ({dropped})", tables, {"reason": wanted.reason, **tool}))
    if tool and not gains and not wanted.stage:
        out.append(_Condition("list_contains(list_transform(e.calls, lambda call: call.tool), $tool)", (), tool))
    return out


def _words(text: str) -> list[str]:
    return [quoted or word for quoted, word in _WORDS.findall(text)][:_MAX_WORDS]
