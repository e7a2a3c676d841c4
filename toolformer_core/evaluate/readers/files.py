"""Reads the raw rows of a benchmark from a file, a folder or the Hugging Face hub, each with its line.

    | suffix                     | read as                                                                |
    |----------------------------|------------------------------------------------------------------------|
    | .jsonl .ndjson (.gz, .zst) | JSON lines                                                             |
    | .json (.gz, .zst)          | a JSON array, or an object with one under `data` or `Data`; else lines |
    | .parquet .arrow            | rows of a table                                                        |
    | .xml (.gz, .zst)           | one row per `Problem` element: its attributes and its children's texts |
    | .tsv (.gz, .zst)           | a question, a tab, and the list of its answers (DPR's files)           |

A JSON array is read element by element, so a broken element usually does not affect the others, and every row has its
line. Keys are lower-cased: `Question` and `question` are the same. This module does not know what a row means.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from toolformer_core.annotate.readers.arrays import TRAILING, array_row, elements
from toolformer_core.annotate.readers.files import NOT_ROWS, rows_of
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow
from toolformer_core.compression import TruncatedError, open_chunks
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.items import BenchmarkRow, Hub, RejectedRow
from toolformer_core.folders import regular_files

_PACKED = ("", ".gz", ".zst")
SUFFIXES = (
    *(kind + packed for kind in (".jsonl", ".ndjson", ".json", ".xml", ".tsv") for packed in _PACKED),
    *(".parquet", ".arrow"),
)
_ARRAYS = ("data", "Data")  # the keys of an object that may hold its rows
_MAX_LINE_BYTES = 64 << 20
_SPACE = re.compile(r"[ \t\r\n]*")

Located = tuple[int, BenchmarkRow]  # a row and its line
Nested = Callable[[Any], Iterator[Any] | None]


def benchmark_files(path: Path, names: Sequence[str] = ("*",)) -> list[Path]:
    """Return the files of a benchmark, sorted; in a folder, all files below it with a known suffix and matching name.

    Empty files are skipped, so that an empty file with a matching name does not hide the others.

    Args:
        path: a file or a folder.
        names: globs of file names; the first one that matches any file is used. The name of a single file is ignored.

    Raises:
        CorpusError: there is no such path, the suffix is unknown, or the folder holds no such file.
    """
    if path.is_file():
        if _suffix(path) is None:
            raise CorpusError(f"{path} is not a benchmark file. Valid extensions: {', '.join(SUFFIXES)}.")
        return [path]
    if not path.is_dir():
        raise CorpusError(f"no such benchmark file or folder: {path}")
    candidates = [p for p in regular_files(path) if _suffix(p) and p.name not in NOT_ROWS and p.stat().st_size]
    for name in names:
        if files := [p for p in candidates if p.relative_to(path).match(name)]:
            return files
    raise CorpusError(f"no file named {' or '.join(names)} in {path}. Valid extensions: {', '.join(SUFFIXES)}.")


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((s for s in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(s)), None)


def file_rows(path: Path, nested: Nested | None = None) -> Iterator[Located | RejectedRow]:
    """Yield the rows of one file with their lines, and the rows that could not be read.

    `nested` returns the rows inside an element that holds several, or None if the element is itself a row.
    """
    suffix = _suffix(path) or ""
    if suffix.startswith(".xml"):
        values = _xml_rows(path)
    elif suffix.startswith(".tsv"):
        values = _tsv_rows(path)
    elif suffix.startswith(".json") and not suffix.startswith(".jsonl"):
        values = _json_rows(path)
    else:
        values = _table_rows(path)
    for located in values:
        if isinstance(located, RejectedRow):
            yield located
        else:
            yield from _rows_in(*located, nested)


def _rows_in(line: int, value: Any, nested: Nested | None) -> Iterator[Located | RejectedRow]:
    """Yield the rows of an element: itself, or those inside it."""
    inner = nested(value) if nested is not None else None
    for row in (value,) if inner is None else inner:
        if isinstance(row, dict):
            yield line, _lowered(row)
        else:
            yield RejectedRow(line, "not_an_object", f"a {type(row).__name__}; a row must be an object")


def _lowered(row: dict[Any, Any]) -> BenchmarkRow:
    """Return a row with lower-case keys; of two keys that differ only in case, the one with a value wins."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        if value is not None or str(key).lower() not in out:
            out[str(key).lower()] = value
    return out


def _table_rows(path: Path) -> Iterator[tuple[int, Any] | RejectedRow]:
    for row in rows_of(path, _MAX_LINE_BYTES):
        if isinstance(row, RawRow):
            yield row.line, row.value
        elif isinstance(row, BadRow):
            yield RejectedRow(row.line, row.reason, row.detail)


# --- whole documents --------------------------------------------------------------------------------------------------


def _bytes_of(path: Path) -> bytes | RejectedRow:
    try:
        return b"".join(open_chunks(path))
    except (OSError, TruncatedError) as exc:
        return RejectedRow(1, "truncated", str(exc)[:200])


def _text_of(path: Path) -> str | RejectedRow:
    data = _bytes_of(path)
    if isinstance(data, RejectedRow):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        return RejectedRow(data.count(b"\n", 0, exc.start) + 1, "not_utf8", f"byte {exc.start}: {exc.reason}")


def _json_rows(path: Path) -> Iterator[tuple[int, Any] | RejectedRow]:
    """Yield the elements of the file's array; if it holds no array, its lines."""
    text = _text_of(path)
    if isinstance(text, RejectedRow):
        yield text
        return
    start = _array_start(text)
    if start is None:
        yield from _table_rows(path)
    else:
        yield from _elements(text, start)


def _array_start(text: str) -> int | None:
    """Return the place of the first element of the document's array; None if there is no array."""
    at = _skip(text, 0)
    if text.startswith("[", at):
        return at + 1
    decoder = json.JSONDecoder()
    if not text.startswith("{", at):
        return None
    at = _skip(text, at + 1)
    try:
        while text.startswith('"', at):
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, at)
            if not text.startswith(":", at):
                return None
            at = _skip(text, at + 1)
            if key in _ARRAYS and text.startswith("[", at):
                return at + 1
            _, at = decoder.raw_decode(text, at)
            at = _skip(text, at)
            at = _skip(text, at + 1) if text.startswith(",", at) else at
    except (ValueError, RecursionError):
        return None
    return None


def _elements(text: str, start: int) -> Iterator[tuple[int, Any] | RejectedRow]:
    """Yield the elements of the array that starts at `start`; text after an array inside an object is ignored."""
    inside = text.lstrip().startswith("{")
    for element in elements([text[start:]], _MAX_LINE_BYTES, line=1 + text.count("\n", 0, start)):
        if inside and element.state == TRAILING:
            return
        row = array_row(element, _MAX_LINE_BYTES)
        yield RejectedRow(row.line, row.reason, row.detail) if isinstance(row, BadRow) else (row.line, row.value)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _xml_rows(path: Path) -> Iterator[tuple[int, Any] | RejectedRow]:
    data = _bytes_of(path)
    if isinstance(data, RejectedRow):
        yield data
        return
    line, counted = 1, 0
    # The parser reports no lines, so elements are cut out first; they are small and never nested.
    for match in re.finditer(rb"<Problem\b.*?(?:</Problem\s*>|(?=<Problem\b)|\Z)", data, re.DOTALL):
        line, counted = line + data.count(b"\n", counted, match.start()), match.start()
        try:
            element = ElementTree.fromstring(match[0])
        except (ElementTree.ParseError, ValueError) as exc:
            yield RejectedRow(line, "broken_xml", str(exc)[:200])
            continue
        yield line, {**element.attrib, **{child.tag: "".join(child.itertext()) for child in element}}


def _tsv_rows(path: Path) -> Iterator[tuple[int, Any] | RejectedRow]:
    """Yield rows of two columns, `question` and `answer`, one per line; a cell may be quoted as in CSV."""
    text = _text_of(path)
    if isinstance(text, RejectedRow):
        yield text
        return
    for line, row in enumerate(text.split("\n"), start=1):
        row = row.rstrip("\r")
        cells = next(csv.reader([row], delimiter="\t"), [])
        if len(cells) != 2:
            cells = row.split("\t")  # an unpaired quotation mark is part of the question
        if len(cells) == 2:
            yield line, dict(zip(("question", "answer"), cells, strict=True))
        elif row.strip():
            yield RejectedRow(line, "wrong_columns", f"{len(cells)} columns; a row is a question, a tab, its answers")


# --- the hub ----------------------------------------------------------------------------------------------------------


def hub_rows(hub: Hub, nested: Nested | None = None) -> Iterator[Located | RejectedRow]:
    """Yield the rows of a hub data set with their numbers.

    Raises:
        CorpusError: the package `datasets` is missing, or the hub or the data set cannot be reached.
    """
    remedy = "give the benchmark's file with --path"
    try:
        from datasets import load_dataset
    except ImportError as exc:
        raise CorpusError(
            f"reading {hub.repository} from the hub needs the package datasets (pip install datasets); or {remedy}"
        ) from exc
    try:
        data = load_dataset(hub.repository, hub.config, split=hub.split)
    except (OSError, ValueError, RuntimeError, KeyError) as exc:  # raised without a network, or for dataset scripts
        reason = " ".join(str(exc).split())[:160]
        raise CorpusError(f"{hub.repository} could not be read from the hub ({reason}); {remedy}") from exc
    for number, value in enumerate(data, start=1):
        yield from _rows_in(number, value, nested)
