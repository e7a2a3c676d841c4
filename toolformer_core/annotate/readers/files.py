"""Which file of a corpus is read by which module, and which files of a folder count.

All but Parquet and Arrow may be compressed (.gz, .zst, .bz2, .xz). A row that cannot be read becomes a `BadRow` with
its reason; a file that is damaged or ends too early yields one last `BadRow`. Packages of a format are imported on use.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from toolformer_core.annotate.readers.arrays import array_rows, holds_array
from toolformer_core.annotate.readers.columnar import arrow_rows, parquet_rows
from toolformer_core.annotate.readers.delimited import delimited_rows
from toolformer_core.annotate.readers.lines import BOM, LineRange, json_rows
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.annotate.readers.warc import warc_rows
from toolformer_core.compression import COMPRESSIONS, open_chunks, without_compression
from toolformer_core.errors import CorpusError, UsageError
from toolformer_core.extras import how_to_install, is_installed
from toolformer_core.mediawiki import Article, NotADumpError, pages
from toolformer_core.scanner import Scanner

_FORMATS = {".jsonl": "lines", ".json": "json", ".ndjson": "lines", ".warc": "warc", ".wet": "warc"}
_FORMATS |= {".xml": "wikipedia", ".csv": "csv", ".tsv": "csv", ".txt": "text"}
_UNCOMPRESSED = {".parquet": "parquet", ".arrow": "arrow"}
EXTENSIONS = f"{' '.join(_FORMATS)} (also with {' '.join(COMPRESSIONS)}) {' '.join(_UNCOMPRESSED)}"

# A folder is read in the first group of formats that occurs in it: what lies beside data is often a list or a readme.
_GROUPS = (("lines", "json", "parquet", "arrow"), ("warc", "wikipedia"), ("csv",), ("text",))
_PACKAGES = {"warc": ("fastwarc", "resiliparse"), "wikipedia": ("mwxml", "mwparserfromhell")}  # of the extra so named
NOT_ROWS = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
_PART_OF_DUMP = re.compile(r"\.xml-p\d+p\d+$")
_PAGE_BYTES = 1 << 23  # a page's markup may be much longer than its text


def format_of(path: Path) -> str | None:
    """Return the format of a file, as the table names it, by its name; None if it is not a corpus file."""
    name = path.name.lower()
    if name in NOT_ROWS or name.startswith((".", "_")):
        return None
    plain = _PART_OF_DUMP.sub(".xml", without_compression(name))
    return _UNCOMPRESSED.get(Path(name).suffix) or _FORMATS.get(Path(plain).suffix)


def is_divisible(path: Path) -> bool:
    """Return whether a range of a file can be read by itself: of JSON lines that are not compressed."""
    return format_of(path) == "lines" and without_compression(path.name) == path.name


def rank(path: Path) -> int:
    """Return the number of a file's group, 0 if its name tells no format (a data set may name its files freely)."""
    return next((i for i, group in enumerate(_GROUPS) if format_of(path) in group), 0)


def check_packages(files: Iterable[Path]) -> None:
    """Raise a UsageError, with the command that installs it, if a package that these files need is missing."""
    for form in sorted({form for file in files if (form := format_of(file)) in _PACKAGES}):
        for package in _PACKAGES[form]:
            if not is_installed(package):
                raise UsageError(f"{form} files need {package}, which is not installed: {how_to_install(form)}")


def dataset_files(folder: Path) -> list[Path] | None:
    """Return the Arrow files of a folder that `save_to_disk` wrote for one split; None if it is no such folder.

    A CorpusError if its `state.json` cannot be read, or lists a missing file.
    """
    state = folder / "state.json"
    if not state.is_file() or not (folder / "dataset_info.json").is_file():
        return None
    try:
        files = [folder / entry["filename"] for entry in json.loads(state.read_text("utf-8"))["_data_files"]]
    except (ValueError, KeyError, TypeError) as exc:
        raise CorpusError(f"{state} does not list the data set's files; save the data set again") from exc
    if missing := next((file.name for file in files if not file.is_file()), ""):
        raise CorpusError(f"{state} lists {missing}, which is missing; copy it there, or save the data set again")
    return files


def rows_of(
    path: Path, max_line_bytes: int, columns: frozenset[str] | None = None, part: LineRange | None = None
) -> Iterator[RawRow | BadRow]:
    """Yield the rows of one file that `format_of` knows; of a file that `is_divisible`, those of a part.

    A row longer than `max_line_bytes` is skipped without being held in memory; a page of a WARC file or a dump may take
    8 MiB in any case. Of a columnar file these columns are read, None for all.
    """
    match format_of(path):
        case "parquet":
            return parquet_rows(path, columns)
        case "arrow":
            return arrow_rows(path, columns)
        case "json" if holds_array(path):
            return array_rows(path, max_line_bytes)
        case "csv":
            return delimited_rows(path, max_line_bytes)
        case "text":
            return _text_rows(path, max_line_bytes)
        case "warc":
            return warc_rows(path, max(max_line_bytes, _PAGE_BYTES))
        case "wikipedia":
            return _wikipedia_rows(path, max(max_line_bytes, _PAGE_BYTES))
        case _:
            return json_rows(path, max_line_bytes, part)


def _text_rows(path: Path, max_bytes: int) -> Iterator[RawRow | BadRow]:
    """Yield the row of a text file: all of it but a byte order mark and the last line's end, in a column `text`."""
    with closing(open_chunks(path)) as chunks:
        scanner = Scanner(chunks)
        found = scanner.next_bytes(sys.maxsize, max_bytes)
    if scanner.damage or found.size > max_bytes:
        reason = ("truncated", scanner.damage) if scanner.damage else ("too_long", f"a file of {found.size} bytes")
        yield BadRow(1, *reason, printable(found.kept))
        return
    text = found.kept.removesuffix(b"\n").removesuffix(b"\r").removeprefix(BOM)
    try:
        yield RawRow(1, {"text": text.decode("utf-8")}, text)
    except UnicodeDecodeError as exc:
        yield BadRow(1, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(text))


def _wikipedia_rows(path: Path, max_page_bytes: int) -> Iterator[RawRow | BadRow]:
    try:
        for page in pages(path, max_page_bytes):
            if isinstance(page, Article):
                columns = {"title": page.title, "text": page.text, "url": page.url, "timestamp": page.timestamp}
                yield RawRow(page.line, columns)
            else:
                detail = f"{page.title}: {page.detail}" if page.title else page.detail
                yield BadRow(page.line, page.reason, detail, printable(page.raw))
    except NotADumpError as exc:
        yield BadRow(1, "not_a_dump", str(exc))
