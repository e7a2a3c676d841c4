"""Ingest: turns a corpus (a file or a folder of files) into a stream of documents and rejected rows.

    | format              | files                                       | read as                               |
    |---------------------|---------------------------------------------|---------------------------------------|
    | JSON lines          | .jsonl .json .ndjson, plain or .gz or .zst  | a stream of lines                     |
    | JSON array          | .json that holds one, plain or .gz or .zst  | a stream of elements                  |
    | Parquet             | .parquet                                    | batches of rows                       |
    | Arrow               | .arrow                                      | record batches                        |
    | Hugging Face folder | written by `save_to_disk`, with its splits  | the Arrow files that `state.json` lists |

    | what    | columns, in this order of preference                                   | as in              |
    |---------|------------------------------------------------------------------------|--------------------|
    | text    | text, raw_content, content                                             | C4, Dolma; CCNet   |
    | url     | url, metadata.url, metadata.WARC-Target-URI, and id if it is a URL     | C4, CCNet; Dolma   |
    | created | created, timestamp, date_download, metadata.date_download, date        | Dolma; C4; CCNet   |

    | reason         | a row is rejected because                                                              |
    |----------------|----------------------------------------------------------------------------------------|
    | blank          | the line is empty                                                                      |
    | broken_json    | it is not JSON                                                                         |
    | not_an_object  | it is JSON, but not an object                                                          |
    | no_text        | it has no text column, or the value there is not text                                  |
    | empty_text     | the text is only whitespace                                                            |
    | not_utf8       | its bytes are not UTF-8, or its text holds lone surrogates                             |
    | too_long       | the text exceeds `max_chars`, or the line is too long for any shorter text             |
    | duplicate      | an earlier document of the corpus has the same text and URL                            |
    | truncated      | the file ends too early or is damaged here: one row per file, all rows before are kept |

Rows are counted from 1, including blank lines. Memory is constant except for 16 bytes per document, used to find
duplicates. This stage knows no tools, no models and nothing about where documents are stored. Texts never change.
"""

from __future__ import annotations

import datetime
import email.utils
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from toolformer_core.annotate.dates import date_in_words
from toolformer_core.annotate.raw_rows import BadRow, RawRow
from toolformer_core.annotate.readers import SUFFIXES, dataset_files, rows_of, suffix_of
from toolformer_core.config import IngestConfig
from toolformer_core.errors import CorpusError, UnknownNameError
from toolformer_core.records import Document, Rejection, document_id, storable, unencodable

__all__ = ["corpus_files", "file_digest", "other_files", "read_corpus"]

_TEXT = ("text", "raw_content", "content")
_URL = ("url", "metadata.url", "metadata.WARC-Target-URI", "id")
_CREATED = ("created", "timestamp", "date_download", "metadata.date_download", "date")
_PEEK = 1_000  # a column named by the user must occur in this many first rows

Columns = Mapping[str, Any]  # a row by column


@dataclass(frozen=True, slots=True)
class _ColumnNames:
    """The columns that may hold text, URL and date, each in order of preference."""

    text: tuple[str, ...]
    url: tuple[str, ...]
    created: tuple[str, ...]

    @classmethod
    def of(cls, config: IngestConfig) -> _ColumnNames:
        return cls(
            (config.text_column,) if config.text_column else _TEXT,
            (config.url_column,) if config.url_column else _URL,
            (config.date_column,) if config.date_column else _CREATED,
        )

    @property
    def roots(self) -> frozenset[str]:
        names = (*self.text, *self.url, *self.created)
        return frozenset(names) | frozenset(n.partition(".")[0] for n in names)


def corpus_files(path: str | Path) -> list[Path]:
    """Return the files of a corpus, sorted; a folder is searched recursively without hidden files and other formats.

    Raises:
        CorpusError: there is no such path, it holds no file of a known format, or all files are empty.
    """
    path = Path(path)
    known = ", ".join(SUFFIXES)
    if path.is_file():
        if suffix_of(path) is None:
            raise CorpusError(f"{path} is not a corpus file. Valid extensions: {known}.")
        files = [path]
    elif path.is_dir():
        files = _files_below(path)
        if not files:
            raise CorpusError(f"no corpus file in {path}. Valid extensions: {known}.")
    else:
        raise CorpusError(f"no such corpus: {path}")
    if not any(file.stat().st_size for file in files):
        raise CorpusError(f"the corpus is empty: {path}")
    return files


def _files_below(folder: Path) -> list[Path]:
    dataset = dataset_files(folder)
    if dataset is not None:
        return sorted(dataset)
    out: list[Path] = []
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.name.startswith((".", "_")):
            out += _files_below(entry)
        elif entry.is_file() and suffix_of(entry):
            out.append(entry)
    return out


def other_files(path: str | Path) -> list[Path]:
    """Return the files of a corpus folder that are ignored because of their format, sorted, without hidden ones."""
    folder = Path(path)
    return [] if not folder.is_dir() or dataset_files(folder) is not None else _others_below(folder)


def _others_below(folder: Path) -> list[Path]:
    out: list[Path] = []
    for entry in sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_"))):
        if entry.is_dir():
            out += _others_below(entry) if dataset_files(entry) is None else []
        elif suffix_of(entry) is None:
            out.append(entry)
    return out


def file_digest(path: str | Path) -> str:
    """Return the hex BLAKE2b-128 digest of a file's bytes, read as a stream."""
    h = hashlib.blake2b(digest_size=16)
    with Path(path).open("rb") as file:
        while data := file.read(1 << 20):
            h.update(data)
    return h.hexdigest()


def read_corpus(path: str | Path, config: IngestConfig) -> Iterator[Document | Rejection]:
    """Stream a corpus: every row becomes one document or one rejection, in the order of files and rows.

    The path and the columns named by the user are checked before this function returns.

    Args:
        path: a file or a folder.
        config: column names (dotted paths reach into objects), `max_chars` of a text (default 200,000), and `limit`,
            the number of documents after which to stop (default: none). A column named by the user must occur in one
            of the first 1,000 rows.

    Raises:
        CorpusError: the corpus cannot be read at all.
        UnknownNameError: a column named by the user does not occur in the first rows.
    """
    root = Path(path)
    files = corpus_files(root)
    line_bytes = 12 * config.max_chars + (1 << 20)  # at most 12 bytes per character in JSON, plus other columns
    _check_columns(files, line_bytes, [config.text_column, config.url_column, config.date_column])
    return _read(root, files, line_bytes, config)


def _check_columns(files: list[Path], line_bytes: int, names: list[str | None]) -> None:
    missing = [name for name in names if name]
    if not missing:
        return
    valid: dict[str, None] = {}
    rows = (row for file in files for row in rows_of(file, line_bytes))
    for row in islice((r.value for r in rows if isinstance(r, RawRow) and isinstance(r.value, dict)), _PEEK):
        for key, value in row.items():
            valid[storable(key)] = None
            if isinstance(value, dict):
                valid.update((storable(f"{key}.{inner}"), None) for inner in value)
        missing = [name for name in missing if not _has(row, name)]
        if not missing:
            return
    if valid:
        raise UnknownNameError("column", missing[0], valid)


def _read(root: Path, files: list[Path], line_bytes: int, config: IngestConfig) -> Iterator[Document | Rejection]:
    columns = _ColumnNames.of(config)
    seen: set[bytes] = set()
    for file in files:
        source = storable(file.name if file == root else file.relative_to(root).as_posix())
        for row in rows_of(file, line_bytes, columns.roots):
            if isinstance(row, BadRow):
                yield _rejection(source, row, row.reason, row.detail)
                continue
            result = _document(source, row, columns, config.max_chars)
            if isinstance(result, Document):
                key = bytes.fromhex(result.doc_id)
                if key in seen:
                    result = _rejection(source, row, "duplicate", f"of document {result.doc_id}")
                seen.add(key)
            yield result
            if config.limit is not None and len(seen) >= config.limit:
                return


def _document(source: str, row: RawRow, columns: _ColumnNames, max_chars: int) -> Document | Rejection:
    def reject(reason: str, detail: str) -> Rejection:
        return _rejection(source, row, reason, detail)

    if not isinstance(row.value, dict):
        return reject("not_an_object", f"a JSON {type(row.value).__name__}; each row must be one object")
    text = next((v for name in columns.text if isinstance(v := _get(row.value, name), str)), None)
    if text is None:
        return reject("no_text", f"looked for {', '.join(columns.text)}; the row has {', '.join(row.names)}"[:200])
    if len(text) > max_chars:
        return reject("too_long", f"{len(text)} characters, the limit is {max_chars}")
    if not text.strip():
        return reject("empty_text", f"{len(text)} characters of whitespace")
    if unencodable(text):
        return reject("not_utf8", "the text holds a lone surrogate")
    url = _url(row.value, columns.url)
    created = next((iso for name in columns.created if (iso := _iso_date(_get(row.value, name)))), None)
    return Document(document_id(text, url), text, url, created, source, row.line)


def _rejection(source: str, row: RawRow | BadRow, reason: str, detail: str) -> Rejection:
    return Rejection(source, row.line, reason, storable(detail), storable(row.raw))


def _has(row: Columns, name: str) -> bool:
    return name in row or _get(row, name) is not None


def _get(row: Columns, name: str) -> Any:
    """Return the value of a column, or the value at a dotted path; objects stored as JSON text are parsed."""
    if name in row or "." not in name:
        return row.get(name)
    value: Any = row
    for part in name.split("."):
        if isinstance(value, str) and value.startswith("{"):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _url(row: Columns, names: tuple[str, ...]) -> str | None:
    for name in names:
        value = _get(row, name)
        if not isinstance(value, str) or not value or unencodable(value):
            continue
        if name == "id" and names is _URL and not re.match(r"https?://", value):
            continue  # an id that is not a URL
        return value
    return None


_ISO = re.compile(r"\s*(\d{4})([-/.]?)(\d{2})\2(\d{2})(?:(?!\d)|(?=\d{6}(?!\d)))")

# Seconds or milliseconds from 2001 to 2033. 2016112810 is a date and an hour, and 14 digits are a date and a time.
_EPOCH = re.compile(r"\s*1\d{9}(?:\d{3})?(?:\.\d+)?\s*")


def _iso_date(value: Any) -> str | None:
    """Return the ISO date of a timestamp in one of the usual forms, or None.

    Among those are seconds and milliseconds since 1970, as numbers or (from 2001 to 2033) as text, and a date in words
    like `November 28, 2016`.
    """
    if isinstance(value, datetime.date):  # also matches datetime, its subclass
        return value.isoformat()[:10]
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1_000 if abs(value) >= 1e11 else value
            return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
        if isinstance(value, str):
            if match := _ISO.match(value):
                return datetime.date(int(match[1]), int(match[3]), int(match[4])).isoformat()
            if _EPOCH.fullmatch(value):
                return _iso_date(float(value))
            if in_words := date_in_words(value):
                return in_words
            return email.utils.parsedate_to_datetime(value).date().isoformat()
    except (ValueError, OverflowError, OSError, TypeError):
        return None
    return None
