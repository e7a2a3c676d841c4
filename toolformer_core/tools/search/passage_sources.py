"""Reads the passages of an encyclopedia from the files in which it is published; reading can be taken up again.

docs/tools.md has the formats. Each may be compressed. A record is a line (a section, an article of KILT's, a passage of
DPR's), or an article of a dump. White space is made single.
"""

import csv
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from toolformer_core.compression import TruncatedError, chunks_of, without_compression
from toolformer_core.errors import UsageError
from toolformer_core.mediawiki import SkippedPage, pages
from toolformer_core.tools.search.passages import parse_passage, plain
from toolformer_core.tools.search.sections import passages_of

FORMATS = ("jsonl", "kilt", "psgs", "dump")

Text = tuple[str, str, str]  # a passage's title, section ("" if it has none) and text

_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\x00": ".xz"}
_NAMES = ((".xml", "dump"), (".tsv", "psgs"), (".jsonl", "jsonl"), (".ndjson", "jsonl"), (".json", "jsonl"))
_HEAD_BYTES = 4096
_EDGE_BYTES = 1 << 16
_HEADING, _BULLET = "Section::::", "BULLET::::"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source has been read, at the end of a record."""

    records: int = 0  # of the file: lines, or pages of a dump
    bytes: int = 0  # of the decompressed file; 0 in a dump, where pages are counted


@dataclass(frozen=True, slots=True)
class Record:
    """The passages of a line or an article, and the position after it."""

    passages: tuple[Text, ...]
    end: Position
    read: int  # bytes of the file as it lies on disk that were read so far
    left_out: str = ""  # why a page of a dump is no article (see `mediawiki`), or `no_text`


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """What tells one source from another; a copy that keeps its time of change is the same source."""

    format: str  # one of `FORMATS`
    bytes: int  # on disk
    mtime_ns: int
    edges: str  # digest of the first and the last 64 KiB


@dataclass(frozen=True, slots=True)
class Source:
    """A file of a known format; see `open_source`."""

    path: Path
    compression: str  # "" or one of `COMPRESSIONS`
    identity: SourceIdentity

    def records(self, start: Position = Position()) -> Iterator[Record]:
        """Yield the records after a position, without passages if without text; a `UsageError` names a wrong line."""
        return _page_records(self, start) if self.identity.format == "dump" else _line_records(self, start)


def open_source(path: Path, format: str | None = None) -> Source:
    """Recognise a file's compression, and its format unless it is given; a `UsageError` if that cannot be done."""
    if not path.is_file():
        raise UsageError(f"no file at {path}; give a dump (.xml.bz2), KILT's knowledge source, psgs_w100.tsv or JSONL")
    try:
        with path.open("rb") as file:
            first = file.read(_EDGE_BYTES)
            file.seek(max(0, path.stat().st_size - _EDGE_BYTES))
            last = file.read(_EDGE_BYTES)
    except OSError as exc:
        raise UsageError(f"cannot read {path}: {exc}") from exc
    compression = next((name for magic, name in _MAGIC.items() if first.startswith(magic)), "")
    if format is None:
        with _readable(path), path.open("rb") as file:
            format = _format_of(path, next(chunks_of(file, compression), b"")[:_HEAD_BYTES])
    stat = path.stat()
    edges = hashlib.blake2b(first + last, digest_size=16).hexdigest()
    return Source(path, compression, SourceIdentity(format, stat.st_size, stat.st_mtime_ns, edges))


def _format_of(path: Path, head: bytes) -> str:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith((b"<mediawiki", b"<?xml")):
        return "dump"
    if start.startswith(b"id\ttext\ttitle"):
        return "psgs"
    if start.startswith(b"{"):
        return "kilt" if b'"wikipedia_title"' in start.partition(b"\n")[0] else "jsonl"
    name = without_compression(path.name.lower())
    for suffix, format in _NAMES:
        if name.endswith(suffix):
            return format
    raise UsageError(f"cannot tell the format of {path}; say by --format which it is: {', '.join(FORMATS)}")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, TruncatedError) as exc:
        raise UsageError(f"cannot read {path}: {exc}; if it is cut off or damaged, download it again") from exc


def _line_records(source: Source, start: Position) -> Iterator[Record]:
    format = source.identity.format
    parse = {"jsonl": _jsonl_passages, "kilt": _kilt_passages, "psgs": _psgs_passages}[format]
    number, offset = start.records, start.bytes
    with _readable(source.path), source.path.open("rb") as file:
        for line in _lines(file, source.compression, offset):
            number, offset = number + 1, offset + len(line)
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
                parsed = parse(text, number) if text.strip() else ()
                passages = tuple((plain(title), plain(section), plain(body)) for title, section, body in parsed)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error) as exc:
                raise UsageError(f"{source.path}: line {number} is not of the format {format}: {exc!r}") from exc
            left_out = "" if passages or not text.strip() or format == "psgs" else "no_text"
            yield Record(passages, Position(number, offset), file.tell(), left_out)


def _lines(file: BinaryIO, compression: str, offset: int) -> Iterator[bytes]:
    """Yield the lines after an offset, each with its line feed; what is compressed is read from its start."""
    if not compression:
        file.seek(offset)
        yield from file
        return
    parts: list[bytes] = []  # of the current line
    for chunk in chunks_of(file, compression):
        if offset >= len(chunk):
            offset -= len(chunk)
            continue
        first, *rest = chunk[offset:].split(b"\n")
        offset = 0
        parts.append(first)
        for part in rest:
            yield b"".join(parts) + b"\n"
            parts = [part]
    if line := b"".join(parts):
        yield line


def _jsonl_passages(line: str, number: int) -> Iterator[Text]:
    title, section, text = parse_passage(line)
    for passage in passages_of(text) or [""]:  # a passage without text can be found by its title
        yield title, section, passage


def _kilt_passages(line: str, number: int) -> Iterator[Text]:
    value = json.loads(line)
    title, paragraphs = value["wikipedia_title"], value["text"]
    if not (isinstance(title, str) and isinstance(paragraphs, list)):
        raise TypeError("wikipedia_title must be a string, and text a list of paragraphs")
    if paragraphs and plain(paragraphs[0]) == plain(title):
        paragraphs = paragraphs[1:]
    section, texts = "", list[str]()
    for paragraph in (*paragraphs, _HEADING):
        paragraph = paragraph.strip()
        if not paragraph.startswith(_HEADING):
            texts.append(paragraph.removeprefix(_BULLET).removeprefix("- "))
            continue
        for passage in passages_of("\n".join(texts)):
            yield title, section, passage
        section, texts = _heading(paragraph), []


def _heading(paragraph: str) -> str:
    """Return the name in `Section::::History.`; of `Section::::History.:Early years.` it is `History > Early years`."""
    names = paragraph.removeprefix(_HEADING).split(".:")
    return " > ".join(name for part in names if (name := plain(part.strip(":")).removesuffix(".")))


def _psgs_passages(line: str, number: int) -> Iterator[Text]:
    cells = next(csv.reader([line], delimiter="\t"))
    if len(cells) != 3:
        cells = line.split("\t")  # an unpaired quotation mark belongs to the text
    if len(cells) != 3:
        raise ValueError(f"{len(cells)} columns; a line is an id, a text and a title, separated by tabs")
    if number == 1 and cells == ["id", "text", "title"]:
        return
    _, text, title = cells
    yield title, "", text


def _page_records(source: Source, start: Position) -> Iterator[Record]:
    with _readable(source.path), source.path.open("rb") as file:
        found = pages(source.path, skip=start.records, chunks=chunks_of(file, source.compression))
        for number, page in enumerate(found, start.records + 1):
            if isinstance(page, SkippedPage):
                if page.reason == "truncated":
                    raise TruncatedError(f"{page.detail}, at line {page.line}")
                yield Record((), Position(number), file.tell(), page.reason)
                continue
            title = plain(page.title)
            passages = tuple(
                (title, plain(section.heading), text) for section in page.sections for text in passages_of(section.text)
            )
            yield Record(passages, Position(number), file.tell(), "" if passages else "no_text")
