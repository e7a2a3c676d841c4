"""Reads WARC files, as crawlers write them, and WET files, their texts: one page is a row.

A page is the main text of HTML, in a response with status 200 or a resource, or the text of a conversion record (WET)
without the end of its last line. Records that tell of others (warcinfo, request, metadata) are no rows.

    | a row is bad for | because (not_utf8, too_long and truncated as in `ingest`)                           |
    |------------------|-------------------------------------------------------------------------------------|
    | http_status      | the server's answer is no page, but a redirect or an error                          |
    | not_html         | it is an image, a script, a plain text, or no HTTP at all                           |
    | not_a_page       | it only refers to another record (revisit), or is a part of one (continuation)      |
    | broken_record    | its headers cannot be read, or its payload cannot be decoded                        |
    | broken_html      | its tags are nested more than 2,000 deep                                            |

What crawlers write wrongly is read all the same: a payload that is decoded, though its headers name a coding (Common
Crawl before August 2018); up to two bytes by which a record is longer than it says (CC-MAIN-2018-34). A page's encoding
is the one that HTTP names, else UTF-8 if it is that, else what the page itself or its bytes tell. Records are parsed by
fastwarc, each by itself: where one ends is found here, so that a broken record costs no other.
"""

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import open_chunks
from toolformer_core.scanner import Scanner

_VERSIONS = (b"WARC/0.1", b"WARC/1.")
_VERSION_BYTES = 8
_HEADER_BYTES = 1 << 16
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_EXCESS = re.compile(rb"(.?[^\r\n]|[^\r\n].)\r\n\r\n(?:WARC/|\Z)", re.DOTALL)
_EXCESS_BYTES = 11  # two, two line ends and `WARC/`
_CHUNK = re.compile(rb"[0-9a-fA-F]{1,8}[ \t]*(?:;[^\n]*)?\r?\n")
_BINARY = re.compile(rb"[\x00-\x08\x10-\x1a\x1c-\x1f]")  # what pages do not hold and compressed data does
_HTML = ("text/html", "application/xhtml+xml")
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_MOST_NESTED = 2_000  # the extraction's time grows with the square of it
_SINGLE = frozenset(  # they need no end tag
    "area base br col embed hr img input link meta param source track wbr p li dt dd td th tr tbody thead tfoot option "
    "optgroup colgroup html head body".split()
)


def warc_rows(path: Path, max_bytes: int) -> Iterator[RawRow | BadRow]:
    """Yield the pages of a WARC or WET file: `text`, `url`, `date`. No record or payload over `max_bytes` is held."""
    with closing(open_chunks(path)) as chunks:
        scanner = Scanner(chunks)
        while start := _skip_blank(scanner):
            line = scanner.line
            if not start.startswith(_VERSIONS):
                yield _unknown(scanner, line)
                continue
            header, whole = _header(scanner)
            length = _LENGTH.search(header)
            if whole and length is None:
                yield BadRow(line, "broken_record", "the header does not say how long it is", printable(header))
                continue
            body = scanner.next_bytes(int(length[1]), max_bytes) if whole and length else None
            if body is None or not body.found:
                yield _truncated(scanner, line, header)
                return
            match = _EXCESS.match(scanner.peek(_EXCESS_BYTES))
            excess = scanner.next_bytes(len(match[1]), 2).kept if match else b""
            if excess:
                header = _LENGTH.sub(b"Content-Length: %d\r" % (body.size + len(excess)), header)
            if body.size > max_bytes:
                yield BadRow(line, "too_long", f"a record of {body.size} bytes", printable(header))
                continue
            if row := _record(header, body.kept + excess, line, max_bytes):
                yield row
        if scanner.damage:
            yield _truncated(scanner, scanner.line, b"")


def _skip_blank(scanner: Scanner) -> bytes:
    """Go to the next byte that is no line end; return the first bytes there, none at the end of the file."""
    while blank := len(start := scanner.peek(4_096)) - len(start.lstrip(b"\r\n")):
        scanner.next_bytes(blank, 0)
    return start


def _header(scanner: Scanner) -> tuple[bytes, bool]:
    """Return a header's lines, their ends as prescribed, and whether it ended, by a blank line or as it is too long."""
    header, size = b"", 0
    while size <= _HEADER_BYTES:
        piece = scanner.until(b"\n", _HEADER_BYTES)
        line = piece.kept.rstrip(b"\r\n")
        size += piece.size
        if not piece.found:
            return header + line, False
        header += line + b"\r\n"
        if not line:
            break
    return header, True


def _unknown(scanner: Scanner, line: int) -> BadRow:
    """Skip what is no record up to the next line that may begin one."""
    skipped, kept = 0, b""
    while (start := scanner.peek(_VERSION_BYTES)) and not start.startswith(_VERSIONS):
        piece = scanner.until(b"\n", _HEADER_BYTES)
        skipped, kept = skipped + piece.size, kept or piece.kept
    return BadRow(line, "broken_record", f"{skipped:,} bytes that are no record", printable(kept))


def _truncated(scanner: Scanner, line: int, header: bytes) -> BadRow:
    return BadRow(line, "truncated", scanner.damage or "the file ends inside a record", printable(header))


def _record(header: bytes, body: bytes, line: int, max_bytes: int) -> RawRow | BadRow | None:
    """Return a record as a row; None if it holds no page and was never meant to."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    def bad(reason: str, detail: str) -> BadRow:
        return BadRow(line, reason, detail[:200], printable(header))

    stream = io.BytesIO(header + body + b"\r\n\r\n")
    try:
        archive = ArchiveIterator(
            stream, auto_decode="none", quirks_mode=True, stream_detect=False, max_header_len=_HEADER_BYTES
        )
        record = next(iter(archive))
        kind = record.record_type
        if kind in (WarcRecordType.warcinfo, WarcRecordType.request, WarcRecordType.metadata):
            return None
        if kind not in (WarcRecordType.response, WarcRecordType.resource, WarcRecordType.conversion):
            return bad("not_a_page", f"a record of type {record.headers.get('WARC-Type')}")
        url = record.headers.get("WARC-Target-URI") or ""
        url = url[1:-1] if url.startswith("<") and url.endswith(">") else url
        page = {"url": url, "date": record.headers.get("WARC-Date")}
        if kind == WarcRecordType.conversion:
            return RawRow(line, {"text": body.decode("utf-8").removesuffix("\n").removesuffix("\r"), **page}, header)
        http = record.http_headers if record.is_http_parsed else None
        if http is not None and http.status_code != 200:
            return bad("http_status", f"status {http.status_code}, {url}")
        named = record.headers.get("Content-Type") if http is None else record.http_content_type
        named = named or record.headers.get("WARC-Identified-Payload-Type") or ""
        kind_of_page = str(named).partition(";")[0].strip().lower()
        if kind_of_page not in _HTML:
            return bad("not_html", f"{kind_of_page or 'no content type'}, {url}")
        payload = _decoded(record.reader.read(), [] if http is None else _codings(http), max_bytes)
        if len(payload) > max_bytes:
            return bad("too_long", f"a page of more than {max_bytes} bytes when it is decompressed, {url}")
        html = _text(payload, None if http is None else record.http_charset)
    except UnicodeDecodeError as exc:
        return bad("not_utf8", f"byte {exc.start}: {exc.reason}")
    except (OSError, ValueError, LookupError, zlib.error, StopIteration) as exc:
        return bad("broken_record", f"{type(exc).__name__}: {exc}")
    if _nested(html) > _MOST_NESTED:
        return bad("broken_html", f"tags are nested more than {_MOST_NESTED:,} deep, {url}")
    return RawRow(line, {"text": _main_text(html), **page}, header)


def _codings(http_headers: Any) -> list[str]:
    """Return what a payload was encoded with, lower-cased, in the order in which it is undone."""
    fields = [(name.lower(), value.lower().split(",")) for name, value in http_headers.items()]
    wanted = ("content-encoding", "transfer-encoding")
    return [one.strip() for header in wanted for name, values in fields if name == header for one in values][::-1]


def _decoded(payload: bytes, codings: Sequence[str], max_bytes: int) -> bytes:
    """Undo the codings of a payload, except those that are undone already; a little over `max_bytes` it ends.

    An OSError, LookupError or zlib.error if it is encoded, and damaged or in a way that is not known.
    """
    for coding in codings:
        if coding in ("", "identity") or (coding == "chunked" and not _CHUNK.match(payload)):
            continue
        try:
            payload = _without(coding, payload, max_bytes + 1)
        except (OSError, LookupError, zlib.error):
            if coding == "chunked" or _BINARY.search(payload[:1_024]):
                raise
    return payload


def _without(coding: str, payload: bytes, at_most: int) -> bytes:
    from fastwarc.stream_io import BrotliReader, ChunkedReader, GzipReader, ZstdReader

    if coding == "deflate":  # with zlib's header, as it should be, or without
        try:
            return zlib.decompressobj().decompress(payload, at_most)
        except zlib.error:
            raw = zlib.decompressobj(-zlib.MAX_WBITS)
            found = raw.decompress(payload, at_most)
            if not raw.eof and len(found) < at_most:
                raise
            return found
    readers = {
        "chunked": ChunkedReader, "gzip": GzipReader, "x-gzip": GzipReader, "br": BrotliReader, "zstd": ZstdReader
    }  # fmt: skip
    if coding not in readers:
        raise LookupError(f"the payload's coding {coding!r} is not known")
    return bytes(readers[coding](io.BytesIO(payload)).read(at_most))


def _text(payload: bytes, charset: str | None) -> str:
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

    known = map_encoding_to_html5(charset, fallback_utf8=False) if charset else None
    if known is None and b"\x1b" not in payload:  # which 7-bit encodings hold
        try:
            return payload.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
    encoding = known or detect_encoding(payload, from_html_meta=True) or "utf-8"
    return bytes_to_str(payload, encoding, errors="replace")


def _main_text(html: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    left_out: dict[str, Any] = dict.fromkeys(("alt_texts", "links", "form_fields", "noscript", "comments"), False)
    return extract_plain_text(html, main_content=True, preserve_formatting=True, list_bullets=True, **left_out)


def _nested(html: str) -> int:
    """Return how deeply tags are nested, at most; a tag that needs no end tag does not count."""
    depth = deepest = 0
    for closing_mark, name in _TAG.findall(html):
        if name.lower() not in _SINGLE:
            depth = max(0, depth - 1) if closing_mark else depth + 1
            deepest = max(deepest, depth)
    return deepest
