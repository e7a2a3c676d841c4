"""Ingest: turns a corpus (a file or a folder of files) into a stream of documents and rejected rows.

`readers.files` says which files are read and how, `readers.columns` which column is what.

    | reason         | a row is rejected because (blank, broken_json, not_an_object, empty_text: as they say) |
    |----------------|----------------------------------------------------------------------------------------|
    | no_text        | it has no text column, or the value there is not text                                  |
    | not_utf8       | its bytes are not UTF-8, or its text holds lone surrogates                             |
    | too_long       | the text exceeds `max_chars`, or the row is too long for any shorter text              |
    | duplicate      | an earlier document of the corpus has the same text and URL                            |
    | truncated      | the file ends too early or is damaged here: one row per file, all rows before are kept |
    | broken_csv     | its quotes or line ends are not CSV                                                    |
    | wrong_columns  | it has more or fewer fields than the header                                            |
    | no_header      | the header cannot be read: one row for the whole file                                  |
    | not_a_dump     | the .xml file is no dump: one row for the whole file                                   |

Pages of the web and of Wikipedia have further reasons; they stand in `readers.warc` and `toolformer_core.mediawiki`.
Rows are counted from 1, including blank lines. Memory is constant but for 43 bytes a document. Texts never change.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from toolformer_core.annotate.duplicates import DigestSet
from toolformer_core.annotate.readers.columns import ColumnNames, has, iso_date, url_in, value_at
from toolformer_core.annotate.readers.files import EXTENSIONS, check_packages, dataset_files, format_of, rank, rows_of
from toolformer_core.annotate.readers.lines import LineRange
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow
from toolformer_core.config import IngestConfig
from toolformer_core.errors import CorpusError, UnknownNameError
from toolformer_core.folders import identity, not_a_file, walk
from toolformer_core.records import Document, Rejection, document_id, storable, unencodable

_PEEK = 1_000  # a column named by the user must occur in this many first rows


def corpus_files(path: str | Path) -> list[Path]:
    """Return the files of a corpus, sorted; of a folder all below it of the first group of formats that it holds.

    Hidden files are left out, links followed; a file that several names reach counts once. A CorpusError if there is no
    file or folder, it holds no file of a known format, or all files are empty.
    """
    path = Path(path)
    if path.is_file():
        if format_of(path) is None:
            raise CorpusError(f"{path} is not a corpus file. Valid extensions: {EXTENSIONS}")
        files = [path]
    elif path.is_dir():
        known, others = _entries_below(path)
        files = _of_first_group(known)
        if not files:
            flaws = (f"; {other} is {flaw}" for other in others if format_of(other) and (flaw := not_a_file(other)))
            raise CorpusError(f"no corpus file in {path}{next(flaws, '')}. Valid extensions: {EXTENSIONS}")
    elif flaw := not_a_file(path):
        raise CorpusError(f"the corpus {path} is {flaw}: name a file or a folder")
    else:
        raise CorpusError(f"no such corpus: {path}")
    if not any(file.stat().st_size for file in files):
        raise CorpusError(f"the corpus is empty: {path}")
    return files


def _entries_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the corpus files below a folder, of all formats, and what else is there; sorted, without hidden names."""
    known: list[Path] = []
    others: list[Path] = []
    for here, folders, names in walk(folder):
        dataset = dataset_files(here)
        if dataset is not None:
            known += dataset
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for path in (here / name for name in names if not name.startswith((".", "_"))):
            (known if format_of(path) and path.is_file() else others).append(path)
    once: dict[tuple[int, int], Path] = {}
    for path in sorted(known, key=lambda path: (path.is_symlink(), path)):
        once.setdefault(identity(path), path)
    return sorted(once.values()), sorted(others)


def _of_first_group(files: list[Path]) -> list[Path]:
    ranks = list(map(rank, files))
    return [file for file, number in zip(files, ranks, strict=True) if number == min(ranks)]


def other_files(path: str | Path) -> list[Path]:
    """Return what else a corpus folder holds, sorted: files of other formats, and links, pipes, devices and sockets."""
    known, others = _entries_below(Path(path)) if Path(path).is_dir() else ([], [])
    return sorted({*others, *known} - set(_of_first_group(known)))


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """Some files of a corpus that follow each other, or a range of one of them."""

    files: tuple[Path, ...]
    lines: LineRange | None = None  # None: all of the files


def source_of(root: Path, file: Path) -> str:
    """Return how rows name the file that they come from: below a folder by its path there, else by its name."""
    return storable(file.name if file == root else file.relative_to(root).as_posix())


def read_corpus(path: str | Path, config: IngestConfig) -> Iterator[Document | Rejection]:
    """Stream a corpus: every row becomes one document or one rejection, in the order of files and rows.

    Checked before this returns: a CorpusError if the corpus cannot be read at all, a UsageError if a package that its
    format needs is not installed, or a column named by the user does not occur in the first 1,000 rows.
    """
    root = Path(path)
    files = corpus_files(root)
    check_packages(files)
    _check_columns(files, config)
    return read_part(root, CorpusPart(tuple(files)), config)


def _line_bytes(config: IngestConfig) -> int:
    return 12 * config.max_chars + (1 << 20)  # at most 12 bytes per character in JSON, plus other columns


def _check_columns(files: Iterable[Path], config: IngestConfig) -> None:
    missing = [name for name in (config.text_column, config.url_column, config.date_column) if name]
    valid: set[str] = set()
    rows = (row for file in files for row in rows_of(file, _line_bytes(config)))
    values = (row.value for row in rows if isinstance(row, RawRow) and isinstance(row.value, dict))
    for row in islice(values, _PEEK if missing else 0):
        for key, value in row.items():
            inner = value if isinstance(value, dict) else ()
            valid |= {storable(key), *(storable(f"{key}.{name}") for name in inner)}
        missing = [name for name in missing if not has(row, name)]
        if not missing:
            return
    if valid:
        raise UnknownNameError("column", missing[0], valid)


def read_part(root: Path, part: CorpusPart, config: IngestConfig) -> Iterator[Document | Rejection]:
    """Stream a part of a corpus as `read_corpus` does all of it; duplicates are looked for within the part alone."""
    columns = ColumnNames.of(config)
    seen = DigestSet()
    for file in part.files:
        source = source_of(root, file)
        for row in rows_of(file, _line_bytes(config), columns.roots, part.lines):
            if isinstance(row, BadRow):
                yield _rejection(source, row, row.reason, row.detail)
                continue
            result = _document(source, row, columns, config.max_chars)
            if isinstance(result, Document) and not seen.add(bytes.fromhex(result.doc_id)):
                result = _rejection(source, row, "duplicate", f"of document {result.doc_id}")
            yield result
            if config.limit is not None and len(seen) >= config.limit:
                return


def _document(source: str, row: RawRow, columns: ColumnNames, max_chars: int) -> Document | Rejection:
    reject = partial(_rejection, source, row)
    if not isinstance(row.value, dict):
        return reject("not_an_object", f"a JSON {type(row.value).__name__}; each row must be one object")
    text = next((v for name in columns.text if isinstance(v := value_at(row.value, name), str | bytes)), None)
    if isinstance(text, bytes):  # which the reader left because it is no text
        return reject("not_utf8", f"{len(text)} bytes that are not UTF-8")
    if text is None:
        return reject("no_text", f"looked for {', '.join(columns.text)}; the row has {', '.join(row.names)}"[:200])
    if len(text) > max_chars:
        return reject("too_long", f"{len(text)} characters, the limit is {max_chars}")
    if not text.strip():
        return reject("empty_text", f"{len(text)} characters of whitespace")
    if unencodable(text):
        return reject("not_utf8", "the text holds a lone surrogate")
    url = url_in(row.value, columns.url)
    dates = (value for name in columns.created if (value := value_at(row.value, name)) is not None)
    created = next((iso for value in dates if (iso := iso_date(value))), None)
    return Document(document_id(text, url), text, url, created, source, row.line)


def _rejection(source: str, row: RawRow | BadRow, reason: str, detail: str) -> Rejection:
    return Rejection(source, row.line, reason, storable(detail), storable(row.raw))
