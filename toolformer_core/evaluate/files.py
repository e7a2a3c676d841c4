"""Rows of a benchmark as they come: out of a file, a folder or the Hugging Face hub, each with the place it stands at.

    | suffix                     | read as                                                                |
    |----------------------------|------------------------------------------------------------------------|
    | .jsonl .ndjson (.gz, .zst) | JSON lines                                                             |
    | .json (.gz, .zst)          | a JSON array, or an object with one under `data` or `Data`; else lines |
    | .parquet .arrow            | rows of a table                                                        |
    | .xml (.gz, .zst)           | one row per `Problem` element: its attributes and its children's texts |
    | .tsv (.gz, .zst)           | a question, a tab, and the list of its answers (DPR's files)           |

A JSON array is read element by element, so most broken ones cost themselves alone, and every row has its line. Keys are
lower-cased: `Question` and `question` are one. What a row means is for others to say.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from toolformer_core.annotate.json_array import BEHIND, elements
from toolformer_core.annotate.rows import BadRow, array_row, rows_of
from toolformer_core.annotate.rows import Row as FileRow
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.items import Hub, Item, Rejected, Row

__all__ = ["SUFFIXES", "Located", "benchmark_files", "file_rows", "hub_rows", "in_turn", "reread"]

_PACKED = ("", ".gz", ".zst")
SUFFIXES = (
    *(kind + packed for kind in (".jsonl", ".ndjson", ".json", ".xml", ".tsv") for packed in _PACKED),
    *(".parquet", ".arrow"),
)
_ARRAYS = ("data", "Data")  # the keys of an object under which its rows stand
_NOT_ROWS = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
_MAX_LINE_BYTES = 64 << 20
_SPACE = re.compile(r"[ \t\r\n]*")

Located = tuple[int, Row]  # a row and its line
Nested = Callable[[Any], Iterator[Any] | None]


def benchmark_files(path: Path, names: Sequence[str] = ("*",)) -> list[Path]:
    """Return the files of a benchmark, sorted; of a folder, those below it of a known suffix and a fitting name.

    Empty files are passed over, so that one of the fitting name does not hide the others.

    Args:
        names: globs of file names; the first that fits any counts. Of a single file the name does not matter.

    Raises:
        CorpusError: no such path, an unknown suffix, or no such file in the folder.
    """
    if path.is_file():
        if _suffix(path) is None:
            raise CorpusError(f"{path} is no benchmark file. Valid extensions: {', '.join(SUFFIXES)}.")
        return [path]
    if not path.is_dir():
        raise CorpusError(f"no such benchmark file or folder: {path}")
    for name in names:
        files = (p for p in path.rglob(name) if p.is_file() and _suffix(p) and p.name not in _NOT_ROWS)
        found = sorted(p for p in files if p.stat().st_size)
        if found:
            return found
    raise CorpusError(f"no file named {' or '.join(names)} in {path}. Valid extensions: {', '.join(SUFFIXES)}.")


def in_turn(streams: Iterable[Iterator[Item | Rejected]]) -> Iterator[Item | Rejected]:
    """Yield an item of each stream in turn, with the rejected rows in front of it, until all are at their end.

    The first items are of as many streams as can be, and more of them begin with the same ones.
    """
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        for found in stream:
            yield found
            if isinstance(found, Item):
                waiting.append(stream)
                break


def reread(read: Callable[[], Generator[Item | Rejected]]) -> Iterator[Item | Rejected]:
    """Yield what `read` yields, which reads a file from its start, and hold no file open while others have their turn.

    The file is read again behind the first element, the third, the seventh and so on, and twice as many elements are
    taken each time: in all at most twice what was asked for is skipped, and as much is held as was yielded before.
    """
    done, taken = 0, 1
    while True:
        stream = read()
        found = list(islice(stream, done, done + taken))
        stream.close()
        yield from found
        if len(found) < taken:
            return
        done, taken = done + taken, 2 * taken


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((s for s in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(s)), None)


def file_rows(path: Path, nested: Nested | None = None) -> Iterator[Located | Rejected]:
    """Yield the rows of one file with their lines, and what could not be read.

    Args:
        nested: gives the rows inside an element that holds several, or None if it is a row itself.
    """
    suffix = _suffix(path) or ""
    if suffix.startswith(".xml"):
        found = _xml_rows(path)
    elif suffix.startswith(".tsv"):
        found = _tsv_rows(path)
    elif suffix.startswith(".json") and not suffix.startswith(".jsonl"):
        found = _json_rows(path)
    else:
        found = _table_rows(path)
    for place in found:
        if isinstance(place, Rejected):
            yield place
            continue
        line, value = place
        inner = nested(value) if nested is not None else None
        for row in (value,) if inner is None else inner:
            if isinstance(row, dict):
                yield line, _lowered(row)
            else:
                yield Rejected(line, "not_an_object", f"a {type(row).__name__}; a row must be an object")


def _lowered(row: dict[Any, Any]) -> Row:
    """A row with its keys in lower case; of two that differ in case alone, the one with a value."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        if value is not None or str(key).lower() not in out:
            out[str(key).lower()] = value
    return out


def _table_rows(path: Path) -> Iterator[tuple[int, Any] | Rejected]:
    for row in rows_of(path, _MAX_LINE_BYTES):
        if isinstance(row, FileRow):
            yield row.line, row.value
        elif isinstance(row, BadRow):
            yield Rejected(row.line, row.reason, row.detail)


# --- whole documents --------------------------------------------------------------------------------------------------


def _bytes_of(path: Path) -> bytes | Rejected:
    try:
        data = path.read_bytes()
        if path.suffix.lower() == ".gz":
            return gzip.decompress(data)
        if path.suffix.lower() == ".zst":
            import zstandard

            with zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(io.BytesIO(data)) as stream:
                try:
                    return stream.read()
                except zstandard.ZstdError as exc:
                    return Rejected(1, "truncated", str(exc)[:200])
        return data
    except (OSError, EOFError, zlib.error) as exc:
        return Rejected(1, "truncated", str(exc)[:200])


def _text_of(path: Path) -> str | Rejected:
    data = _bytes_of(path)
    if isinstance(data, Rejected):
        return data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        return Rejected(data.count(b"\n", 0, exc.start) + 1, "not_utf8", f"byte {exc.start}: {exc.reason}")


def _json_rows(path: Path) -> Iterator[tuple[int, Any] | Rejected]:
    """The elements of the file's array; if it holds no array, its lines."""
    text = _text_of(path)
    if isinstance(text, Rejected):
        yield text
        return
    start = _array_start(text)
    if start is None:
        yield from _table_rows(path)
    else:
        yield from _elements(text, start)


def _array_start(text: str) -> int | None:
    """Where the first element of the document's array stands; None if there is no array."""
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


def _elements(text: str, start: int) -> Iterator[tuple[int, Any] | Rejected]:
    """The elements of the array behind `start`; what stands behind an array inside an object is not looked at."""
    inside = text.lstrip().startswith("{")
    for element in elements([text[start:]], _MAX_LINE_BYTES, line=1 + text.count("\n", 0, start)):
        if inside and element.state == BEHIND:
            return
        row = array_row(element, _MAX_LINE_BYTES)
        yield Rejected(row.line, row.reason, row.detail) if isinstance(row, BadRow) else (row.line, row.value)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _xml_rows(path: Path) -> Iterator[tuple[int, Any] | Rejected]:
    data = _bytes_of(path)
    if isinstance(data, Rejected):
        yield data
        return
    line, counted = 1, 0
    # The parser knows no lines, so elements are cut out first; an element is small and never holds another of its kind.
    for match in re.finditer(rb"<Problem\b.*?(?:</Problem\s*>|(?=<Problem\b)|\Z)", data, re.DOTALL):
        line, counted = line + data.count(b"\n", counted, match.start()), match.start()
        try:
            element = ElementTree.fromstring(match[0])
        except (ElementTree.ParseError, ValueError) as exc:
            yield Rejected(line, "broken_xml", str(exc)[:200])
            continue
        yield line, {**element.attrib, **{child.tag: "".join(child.itertext()) for child in element}}


def _tsv_rows(path: Path) -> Iterator[tuple[int, Any] | Rejected]:
    """Rows of two columns, `question` and `answer`, a line each; a cell may be quoted as in CSV."""
    text = _text_of(path)
    if isinstance(text, Rejected):
        yield text
        return
    for line, row in enumerate(text.split("\n"), start=1):
        row = row.rstrip("\r")
        cells = next(csv.reader([row], delimiter="\t"), [])
        if len(cells) != 2:
            cells = row.split("\t")  # a quotation mark without a second one is part of the question
        if len(cells) == 2:
            yield line, dict(zip(("question", "answer"), cells, strict=True))
        elif row.strip():
            yield Rejected(line, "wrong_columns", f"{len(cells)} columns; a row is a question, a tab, its answers")


# --- the hub ----------------------------------------------------------------------------------------------------------


def hub_rows(hub: Hub, nested: Nested | None = None) -> Iterator[Located | Rejected]:
    """Yield the rows of a data set of the hub with their numbers.

    Raises:
        CorpusError: the package `datasets` is missing, or the hub or the data set cannot be reached.
    """
    mend = "give the benchmark's file with --path"
    try:
        from datasets import load_dataset
    except ImportError as exc:
        raise CorpusError(
            f"reading {hub.repository} from the hub needs the package datasets (pip install datasets); or {mend}"
        ) from exc
    try:
        data = load_dataset(hub.repository, hub.config, split=hub.split)
    except (OSError, ValueError, RuntimeError, KeyError) as exc:  # what datasets raises without a network, or a script
        reason = " ".join(str(exc).split())[:160]
        raise CorpusError(f"{hub.repository} could not be read from the hub ({reason}); {mend}") from exc
    for number, value in enumerate(data, start=1):
        inner = nested(value) if nested is not None else None
        for row in (value,) if inner is None else inner:
            if isinstance(row, dict):
                yield number, _lowered(row)
            else:
                yield Rejected(number, "not_an_object", f"a {type(row).__name__}; a row must be an object")
