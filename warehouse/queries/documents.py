"""Finding documents, a page at a time: by words, host, date, length, tool, gain, and by where something was dropped.

They are looked at file by file, in the order of names. A search ends with its page or when its time is over, and says
where it goes on.
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
_SIMPLE = {  # conditions on a document, by the field of the filter
    "host": f"{HOST} = lower($host) OR ends_with({HOST}, '.' || lower($host))",
    "since": "d.created >= $since",
    "until": "d.created <= $until OR starts_with(d.created, $until)",
    "shortest": "length(d.text) >= $shortest",
    "longest": "length(d.text) <= $longest",
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


class _Conditions(NamedTuple):
    sql: list[str]  # of a document `d` and its example `e`
    tables: set[str]  # that they read besides
    parameters: dict[str, Any]


def find_documents(
    path: str | Path, wanted: DocumentFilter, n: int, after: DocumentKey | None = None, seconds: float = 0.5
) -> DocumentPage:
    """Search documents behind the last page (None: from the first on); after `seconds` no further file is begun."""
    conditions = _conditions(wanted)
    ends = time.monotonic() + seconds
    found: list[tuple[DocumentKey, FoundDocument]] = []
    searched = ""
    with open_snapshot(path) as connection:
        for part in _parts(connection, wanted, after):
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


def _parts(connection: duckdb.DuckDBPyConnection, wanted: DocumentFilter, after: DocumentKey | None) -> Iterator[_Part]:
    root = data_root(connection)
    first = "" if after is None else after.name + (_NEXT if after.doc_id == _LAST else "")  # searched to its end
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
    conditions: _Conditions,
    begin: str,
    limit: int,
) -> Iterator[FoundDocument]:
    if not conditions.tables <= part.files.keys():
        return  # nothing was sampled, executed or scored there
    tables = {*conditions.tables, "examples"} & part.files.keys()
    relations = {"examples": _SQL["no_examples"]}
    relations |= {table: f"FROM {parquet_sql(part.files[table])}" for table in tables}
    # of a version, documents whose files are gone are made from the examples
    relations["documents"] = (
        f"SELECT doc_id, text, url, created FROM {parquet_sql(part.files['documents'])}"
        if "documents" in part.files
        else "SELECT doc_id, text, NULL::VARCHAR AS url, NULL::VARCHAR AS created FROM examples"
    )
    at = f"greatest(strpos(lower(d.text), lower($word0)) - {_BEFORE_CHARS}, 1)" if _words(wanted.text) else "1"
    sql = f"""
WITH {", ".join(f"{name} AS ({relation})" for name, relation in relations.items())}
SELECT d.doc_id, substring(d.text, {at}, {_BEGIN_CHARS}) AS text, {at} > 1 AS cut, length(d.text) AS characters, d.url,
       d.created, coalesce(list_transform(e.calls, lambda call: call.tool), []) AS tools
FROM documents AS d {"JOIN" if wanted.version else "LEFT JOIN"} examples AS e USING (doc_id)
WHERE d.doc_id > $begin {"".join(f"AND ({condition}) " for condition in conditions.sql)}
ORDER BY d.doc_id LIMIT $limit"""
    for row in rows_in(connection, sql, {"begin": begin, "limit": limit, **conditions.parameters}):
        yield FoundDocument(**{**row, "tools": tuple(row["tools"])})


def _conditions(wanted: DocumentFilter) -> _Conditions:
    given: dict[str, Any] = {f"word{number}": word for number, word in enumerate(_words(wanted.text))}
    sql, tables = [f"contains(lower(d.text), lower(${word}))" for word in given], set[str]()
    for name, condition in _SIMPLE.items():
        if (value := getattr(wanted, name)) not in (None, ""):
            sql.append(condition)
            given[name] = value
    if wanted.kept and not wanted.version:
        sql.append("e.doc_id IS NOT NULL")
    if wanted.tool:
        given["tool"] = wanted.tool
    own_tool = "tool = $tool" if wanted.tool else "true"
    gains = {name: value for name, value in (("low", wanted.low), ("high", wanted.high)) if value is not None}
    if gains:
        given |= gains
        of_gain = " AND ".join([*({"low": "gain >= $low", "high": "gain < $high"}[name] for name in gains), own_tool])
        if wanted.kept or wanted.version:
            sql.append(f"EXISTS (FROM (SELECT unnest(e.calls, max_depth := 2)) WHERE {of_gain})")
        else:
            sql.append(f"d.doc_id IN (SELECT doc_id FROM scored WHERE {MEASURED} AND {of_gain})")
            tables.add("scored")
    if wanted.stage:
        given["reason"] = wanted.reason
        first, *_ = own_tables = DROP_STAGES[wanted.stage]
        dropped = _SQL[f"dropped_by_{wanted.stage}"].format(tool=own_tool.replace("tool =", f"{first}.tool ="))
        sql.append(f"d.doc_id IN ({dropped})")
        tables.update(own_tables)
    if wanted.tool and not gains and not wanted.stage:
        sql.append("list_contains(list_transform(e.calls, lambda call: call.tool), $tool)")
    return _Conditions(sql, tables, given)


def _words(text: str) -> list[str]:
    return [quoted or word for quoted, word in _WORDS.findall(text)][:_MAX_WORDS]
