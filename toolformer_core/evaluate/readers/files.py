"""Reads the raw rows of a benchmark from a file, a folder or the Hugging Face hub, each with its line.

    | suffix                     | read as                                                                |
    |----------------------------|------------------------------------------------------------------------|
    | .jsonl .ndjson (.gz, .zst) | JSON lines                                                             |
    | .json (.gz, .zst)          | a JSON array, or an object with one under `data` or `Data`; else lines |
    | .parquet .arrow            | rows of a table                                                        |
    | .xml (.gz, .zst)           | one row per `Problem` element: its attributes and its children's texts |
    | .tsv (.gz, .zst)           | a question, a tab, and the list of its answers (DPR's files)           |
    | NAME.deu with NAME.eng     | sentences, and their translations on the same lines (Tatoeba)          |

A JSON array is read element by element, so a broken element usually does not affect the others, and every row has its
line. Keys are lower-cased.
"""

import csv
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from toolformer_core.annotate.readers.arrays import TRAILING, array_row, elements
from toolformer_core.annotate.readers.files import NOT_ROWS, rows_of
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow
from toolformer_core.compression import TruncatedError, open_chunks, without_compression
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.items import BenchmarkRow, Hub, RejectedRow
from toolformer_core.folders import regular_files

_PACKED = ("", ".gz", ".zst")
SUFFIXES = (
    *(kind + packed for kind in (".jsonl", ".ndjson", ".json", ".xml", ".tsv") for packed in _PACKED),
    *(".parquet", ".arrow"),
)
_MAX_LINE_BYTES = 64 << 20
# The beginning of a document up to the first element of its array, which in an object only plain values may precede.
_ARRAY = re.compile(
    r'\s*(?:\{\s*(?:"[^"]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^\s"{}\[\],]+)\s*,\s*)*"[Dd]ata"\s*:\s*)?\[', re.DOTALL
)
_ENGLISH = ".eng"

Located = tuple[int, BenchmarkRow]  # a row and its line
Nested = Callable[[Any], Iterator[Any] | None]
_Values = Iterator[tuple[int, Any] | RejectedRow]


def benchmark_files(path: Path, names: Sequence[str] = ("*",)) -> list[Path]:
    """Return the files of a benchmark, sorted: the path, or the files in it that are not empty and have a known suffix.

    Of the globs `names` the first one that matches any file of a folder is used. A CorpusError if there is none.
    """
    if path.is_file():
        if not path.name.lower().endswith(SUFFIXES):
            raise CorpusError(f"{path} is not a benchmark file. Valid extensions: {', '.join(SUFFIXES)}.")
        return [path]
    if not path.is_dir():
        raise CorpusError(f"no such benchmark file or folder: {path}")
    known = (p for p in regular_files(path) if p.name.lower().endswith(SUFFIXES) and p.name not in NOT_ROWS)
    candidates = [p for p in known if p.stat().st_size]
    for name in names:
        if files := [p for p in candidates if p.relative_to(path).match(name)]:
            return files
    raise CorpusError(f"no file named {' or '.join(names)} in {path}. Valid extensions: {', '.join(SUFFIXES)}.")


def translation_files(path: Path, suffix: str) -> tuple[Path, Path]:
    """Return the file of sentences (`.deu`) and that of translations; a CorpusError unless the path has one pair."""
    if not path.exists():
        raise CorpusError(f"no such benchmark file or folder: {path}")
    names = [path.with_suffix(suffix)] if path.is_file() else regular_files(path)
    named = [name for name in names if name.name.endswith(suffix)]
    pairs = [(name, name.with_suffix(_ENGLISH)) for name in named if name.with_suffix(_ENGLISH).is_file()]
    if len(pairs) != 1 or not pairs[0][0].is_file():
        found = ", ".join(str(source) for source, _ in pairs) or "none"
        raise CorpusError(f"{path} must hold one pair of files NAME{suffix} and NAME{_ENGLISH}; found: {found}")
    return pairs[0]


def translation_rows(sentences: Path, translations: Path) -> Iterator[Located]:
    """Yield a row for each line of two files: `sentence`, `english` and an `id`, which names the line."""
    with (
        sentences.open(encoding="utf-8", errors="surrogateescape") as left,
        translations.open(encoding="utf-8", errors="surrogateescape") as right,
    ):
        for line, (sentence, english) in enumerate(itertools.zip_longest(left, right, fillvalue=""), 1):
            yield line, {"sentence": sentence, "english": english, "id": f"{sentences.stem}-{line}"}


def file_rows(path: Path, nested: Nested | None = None) -> Iterator[Located | RejectedRow]:
    """Yield the rows of one file, or those that `nested` finds inside its elements, with lines, and what is no row."""
    kind = Path(without_compression(path.name.lower())).suffix
    for located in _document_rows(path, kind) if kind in (".json", ".xml", ".tsv") else _table_rows(path):
        if isinstance(located, RejectedRow):
            yield located
        else:
            yield from _rows_in(*located, nested)


def _rows_in(line: int, value: Any, nested: Nested | None) -> Iterator[Located | RejectedRow]:
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


def _table_rows(path: Path) -> _Values:
    return map(_value_of, rows_of(path, _MAX_LINE_BYTES))


def _value_of(row: RawRow | BadRow) -> tuple[int, Any] | RejectedRow:
    return RejectedRow(row.line, row.reason, row.detail) if isinstance(row, BadRow) else (row.line, row.value)


def _document_rows(path: Path, kind: str) -> _Values:
    try:
        data = b"".join(open_chunks(path))
        text = "" if kind == ".xml" else data.decode("utf-8-sig")
    except (OSError, TruncatedError) as exc:
        return iter([RejectedRow(1, "truncated", str(exc)[:200])])
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        return iter([RejectedRow(line, "not_utf8", f"byte {exc.start}: {exc.reason}")])
    if kind == ".xml":
        return _xml_rows(data)
    if kind == ".tsv":
        return _tsv_rows(text)
    array = _ARRAY.match(text)
    return _table_rows(path) if array is None else _elements(text, array.end())


def _elements(text: str, start: int) -> _Values:
    """Yield the elements of the array that starts at `start`; text after an array inside an object is ignored."""
    inside = text.lstrip().startswith("{")
    for element in elements([text[start:]], _MAX_LINE_BYTES, line=1 + text.count("\n", 0, start)):
        if inside and element.state == TRAILING:
            return
        yield _value_of(array_row(element, _MAX_LINE_BYTES))


def _xml_rows(data: bytes) -> _Values:
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


def _tsv_rows(text: str) -> _Values:
    """Yield rows of two columns, `question` and `answer`, one per line; a cell may be quoted as in CSV."""
    for line, row in enumerate(text.split("\n"), start=1):
        row = row.rstrip("\r")
        cells = next(csv.reader([row], delimiter="\t"), [])
        if len(cells) != 2:
            cells = row.split("\t")  # an unpaired quotation mark is part of the question
        if len(cells) == 2:
            yield line, dict(zip(("question", "answer"), cells, strict=True))
        elif row.strip():
            yield RejectedRow(line, "wrong_columns", f"{len(cells)} columns; a row is a question, a tab, its answers")


def hub_rows(hub: Hub, nested: Nested | None = None) -> Iterator[Located | RejectedRow]:
    """Yield the rows of a hub data set with their numbers; a CorpusError if it cannot be read."""
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
