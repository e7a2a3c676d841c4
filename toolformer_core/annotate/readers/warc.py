"""Reads WARC files, as crawlers write them, and WET files, their texts: one page is a row.

    | record                                    | read as                                                           |
    |-------------------------------------------|-------------------------------------------------------------------|
    | response with status 200 and HTML         | the page's main text                                              |
    | resource that is HTML                     | the same                                                          |
    | conversion (WET)                          | its text, without the end of its last line                        |
    | warcinfo, request, metadata               | nothing: they tell of other records and are no rows               |

    | a row is bad for | because                                                                             |
    |------------------|-------------------------------------------------------------------------------------|
    | http_status      | the server's answer is no page, but a redirect or an error                          |
    | not_html         | it is an image, a script, a plain text, or no HTTP at all                           |
    | not_a_page       | it only refers to another record (revisit), or is a part of one (continuation)      |
    | broken_record    | its headers cannot be read, or its payload cannot be decoded                        |
    | broken_html      | its tags are nested more than 2,000 deep                                            |
    | not_utf8         | a conversion record's text is not UTF-8                                             |
    | too_long         | the record, or the payload decompressed, is longer than the limit                   |
    | truncated        | the file ends inside a record, or is damaged: once, all records before are kept     |

The main text is what resiliparse (extra `warc`) takes for it: without navigation, headers, footers, comments, forms and
pictures' descriptions, with a line per block and bullets before the items of lists. A page's encoding is the one that
HTTP names, else UTF-8 if it is that, else what the page itself or its bytes tell; what does not fit becomes U+FFFD, as
in a browser. Records are parsed by fastwarc, each by itself: where one ends is found here, from its Content-Length, so
that a broken record costs no other and a file cut short is noticed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.compression import open_chunks
from toolformer_core.scanner import Scanner

__all__ = ["warc_rows"]

_VERSION = b"WARC/1."
_HEADER_BYTES = 1 << 16
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_HTML = ("text/html", "application/xhtml+xml")
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_MOST_NESTED = 2_000  # the extraction's time grows with the square of it
_SINGLE = frozenset(  # they need no end tag
    "area base br col embed hr img input link meta param source track wbr p li dt dd td th tr tbody thead tfoot option "
    "optgroup colgroup html head body".split()
)


def warc_rows(path: Path, max_bytes: int) -> Iterator[RawRow | BadRow]:
    """Yield the pages of a WARC or WET file, with the columns `text`, `url` and `date`; a row's line is its record's.

    Args:
        path: the file.
        max_bytes: of a record, and of its payload decompressed; a longer one is skipped without being held.
    """
    with closing(open_chunks(path)) as chunks:
        scanner = Scanner(chunks)
        while start := _skip_blank(scanner):
            line = scanner.line
            if not start.startswith(_VERSION):
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
            if body.size > max_bytes:
                yield BadRow(line, "too_long", f"a record of {body.size} bytes", printable(header))
                continue
            row = _record(header, body.kept, line, max_bytes)
            if row is not None:
                yield row
        if scanner.damage:
            yield _truncated(scanner, scanner.line, b"")


def _skip_blank(scanner: Scanner) -> bytes:
    """Go to the next byte that is no line end; return the first bytes there, none at the end of the file."""
    while blank := len(start := scanner.peek(4_096)) - len(start.lstrip(b"\r\n")):
        scanner.next_bytes(blank, 0)
    return start


def _header(scanner: Scanner) -> tuple[bytes, bool]:
    """Return the lines of a header with the line ends that are prescribed, and whether a blank line ended it.

    If it is too long, what comes after is no longer a part of it.
    """
    lines: list[bytes] = []
    size = 0
    while size <= _HEADER_BYTES:
        piece = scanner.until(b"\n", _HEADER_BYTES)
        line = piece.kept.rstrip(b"\r\n")
        size += piece.size
        lines.append(line)
        if not piece.found:
            return b"\r\n".join(lines), False
        if not line:
            break
    return b"\r\n".join(lines) + b"\r\n", True


def _unknown(scanner: Scanner, line: int) -> BadRow:
    """Skip what is no record up to the next line that may begin one."""
    skipped, kept = 0, b""
    while (start := scanner.peek(len(_VERSION))) and not start.startswith(_VERSION):
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

    try:
        archive = ArchiveIterator(
            io.BytesIO(header + body + b"\r\n\r\n"),
            auto_decode="all",
            stream_detect=False,
            max_header_len=_HEADER_BYTES,
        )
        record = next(iter(archive))
        kind = record.record_type
        if kind in (WarcRecordType.warcinfo, WarcRecordType.request, WarcRecordType.metadata):
            return None
        if kind not in (WarcRecordType.response, WarcRecordType.resource, WarcRecordType.conversion):
            return bad("not_a_page", f"a record of type {record.headers.get('WARC-Type')}")
        page = {"url": record.headers.get("WARC-Target-URI"), "date": record.headers.get("WARC-Date")}
        if kind == WarcRecordType.conversion:
            return RawRow(line, {"text": body.decode("utf-8").removesuffix("\n").removesuffix("\r"), **page}, header)
        kind_of_page = _content_type(record)
        status = record.http_headers.status_code if record.is_http_parsed else None
        if record.is_http_parsed and status != 200:
            return bad("http_status", f"status {status}, {page['url']}")
        if kind_of_page not in _HTML:
            return bad("not_html", f"{kind_of_page or 'no content type'}, {page['url']}")
        payload = record.reader.read(max_bytes + 1)
        if len(payload) > max_bytes:
            return bad("too_long", f"a page of more than {max_bytes} bytes when it is decompressed, {page['url']}")
        html = _decoded(payload, record.http_charset if record.is_http_parsed else None)
    except UnicodeDecodeError as exc:
        return bad("not_utf8", f"byte {exc.start}: {exc.reason}")
    except (OSError, ValueError, LookupError, StopIteration) as exc:
        return bad("broken_record", f"{type(exc).__name__}: {exc}")
    if _nested(html) > _MOST_NESTED:
        return bad("broken_html", f"tags are nested more than {_MOST_NESTED:,} deep, {page['url']}")
    return RawRow(line, {"text": _main_text(html), **page}, header)


def _content_type(record: Any) -> str:
    named = record.http_content_type if record.is_http_parsed else record.headers.get("Content-Type")
    return (named or "").partition(";")[0].strip().lower()


def _decoded(payload: bytes, charset: str | None) -> str:
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

    return extract_plain_text(
        html,
        main_content=True,
        preserve_formatting=True,
        list_bullets=True,
        alt_texts=False,
        links=False,
        form_fields=False,
        noscript=False,
        comments=False,
    )


def _nested(html: str) -> int:
    """Return how deeply tags are nested, at most; a tag that needs no end tag does not count."""
    depth = deepest = 0
    for closing_mark, name in _TAG.findall(html):
        if name.lower() not in _SINGLE:
            depth = max(0, depth - 1) if closing_mark else depth + 1
            deepest = max(deepest, depth)
    return deepest
