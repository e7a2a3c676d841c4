"""WARC and WET as corpora: pages, what is no page and why, encodings, damage, bounded memory."""

import gzip
import sys
import zlib
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import brotli
import pytest
import zstandard
from fastwarc.warc import WarcRecordType

from tests.core.annotate.corpora import documents, read, rejected
from tests.support.corpus_formats import COMPRESS, response, warc_record, wet, with_peak
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.errors import UsageError

PAGE = """<html><head><title>Title</title><style>p {}</style></head><body>
<nav><a href="/">Home</a></nav><article><h1>Bridges</h1><p>The <b>bridge</b> over the river is old and
very long.</p><p>It was built in 1900.</p></article><footer>Imprint</footer></body></html>"""
TEXT = "Bridges\n\nThe bridge over the river is old and very long.\n\nIt was built in 1900."
INFO = warc_record(WarcRecordType.warcinfo, "", b"software: x\r\n", Content_Type="application/warc-fields")
REQUEST = warc_record(
    WarcRecordType.request, "http://a.org/", b"GET / HTTP/1.1\r\n\r\n", Content_Type="application/http"
)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_page_is_its_main_text_with_its_address_and_date(tmp_path: Path, suffix: str) -> None:
    records = [INFO, REQUEST, response("http://a.org/x", PAGE.encode())]
    # every record is compressed by itself, as in files of crawlers
    (tmp_path / f"c.warc{suffix}").write_bytes(b"".join(COMPRESS[suffix](record) for record in records))
    (got,) = read(tmp_path)
    assert (got.text, got.url, got.created, got.source) == (TEXT, "http://a.org/x", "2024-05-01", f"c.warc{suffix}")
    assert got.line == 1 + (INFO + REQUEST).count(b"\n")


@pytest.mark.parametrize("name", ["c.wet", "c.warc.wet.gz", "C.WARC.WET.bz2"])
def test_a_conversion_record_is_its_text_as_it_is(tmp_path: Path, name: str) -> None:
    data = INFO + wet(["  Ä text\n\nof two paragraphs. "], "http://a.org/x")
    (tmp_path / name).write_bytes(COMPRESS[Path(name).suffix if Path(name).suffix in COMPRESS else ""](data))
    (got,) = read(tmp_path)
    assert (got.text, got.url, got.created) == ("  Ä text\n\nof two paragraphs. ", "http://a.org/x", "2024-05-01")


def test_what_is_no_page_is_rejected_with_its_reason(tmp_path: Path) -> None:
    html, plain, resource = PAGE.encode(), "text/plain", WarcRecordType.resource
    bomb = gzip.compress(b"<p>words<!--" + b"a" * (9 << 20))
    records = [
        (response("http://a.org/1", html), None),
        (response("http://a.org/2", html, status="404 Not Found"), "http_status"),
        (response("http://a.org/3", b"", status="301 Moved Permanently", Location="/1"), "http_status"),
        (response("http://a.org/4", b"\x89PNG", Content_Type="image/png"), "not_html"),
        (response("http://a.org/5", b"words", Content_Type=plain), "not_html"),
        (warc_record(WarcRecordType.response, "dns:a.org", b"1.2.3.4", Content_Type="text/dns"), "not_html"),
        (warc_record(resource, "file://a", html, Content_Type="text/html"), None),
        (warc_record(resource, "file://b", b"words", Content_Type=plain), "not_html"),
        (warc_record(WarcRecordType.revisit, "http://a.org/6", b"", Content_Type="application/http"), "not_a_page"),
        (warc_record(WarcRecordType.continuation, "http://a.org/7", b"more"), "not_a_page"),
        (response("http://a.org/8", b"<p>"), "empty_text"),
        (response("http://a.org/9", gzip.compress(html)[:12] + b"x" * 99, Content_Encoding="gzip"), "broken_record"),
        (response("http://a.org/10", b"5\r\nab", Transfer_Encoding="chunked"), "broken_record"),
        (response("http://a.org/10", b"x\x9c" + bytes(range(99)), Content_Encoding="deflate"), "broken_record"),
        (response("http://a.org/10", b"\x1f\x9d\x90<p>", Content_Encoding="compress"), "broken_record"),
        (response("http://a.org/11", b"<div>" * 10_000), "broken_html"),
        (response("http://a.org/12", bomb, Content_Encoding="gzip"), "too_long"),
        (response("http://a.org/13", b"<p>" + b"a" * (9 << 20)), "too_long"),
        (response("http://a.org/14", f"<p>{'a' * 300_000}".encode()), "too_long"),  # its text is
        (response("http://a.org/1", html), "duplicate"),
        (warc_record(WarcRecordType.conversion, "http://a.org/15", b"caf\xe9"), "not_utf8"),
        (b"WARC/1.0\r\nWARC-Type: response\r\n\r\n", "broken_record"),  # no length
        (b"WARC/1.0\r\nContent-Length: 3\r\n\r\nabc\r\n\r\n", "not_a_page"),  # no type
        (b"what is this?\nand this\n", "broken_record"),
        (response("http://a.org/16", html), None),
        (response("http://a.org/17", b"<b>a", Content_Encoding="deflate"), None),  # that may begin such a stream
    ]
    (tmp_path / "c.warc").write_bytes(b"".join(record for record, _ in records))
    found = [(getattr(row, "reason", None), row.line) for row in read(tmp_path)]
    lines = accumulate((record.count(b"\n") for record, _ in records), initial=1)
    assert found == [(reason, line) for (_, reason), line in zip(records, lines, strict=False)]


def in_chunks(data: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:9], data[9:], b""))


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


SAME = bytes  # of bytes: as they are
CODED = [
    ("gzip", gzip.compress),
    ("X-Gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("zstd", zstandard.compress),
    ("br", brotli.compress),
    ("deflate, gzip", lambda data: gzip.compress(zlib.compress(data))),
    ("identity", SAME),
    # decoded by the crawler, under the header that the server sent, or under one that is no coding
    *((coding, SAME) for coding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "utf-8", "none")),
]


@pytest.mark.parametrize(("coding", "encode"), CODED)
@pytest.mark.parametrize("transfer", ["", "chunked", "chunked already undone"])
def test_a_page_is_read_however_it_was_sent_and_whether_or_not_that_is_undone(
    tmp_path: Path, coding: str, encode: Callable[[bytes], bytes], transfer: str
) -> None:
    headers = {"Content_Encoding": coding} | ({"Transfer_Encoding": "chunked"} if transfer else {})
    body = encode(PAGE.encode())
    sent = in_chunks(body) if transfer == "chunked" else body
    (tmp_path / "c.warc").write_bytes(response("http://a.org/x", sent, **headers))
    assert [d.text for d in documents(tmp_path)] == [TEXT]


@pytest.mark.parametrize("excess", [1, 2])
def test_a_record_that_is_up_to_two_bytes_longer_than_it_says_is_one_page(tmp_path: Path, excess: int) -> None:
    record = wet(["Text.ab"]).replace(b"Text.ab\n", b"Text.ab")
    length = int(record.partition(b"Content-Length: ")[2].partition(b"\r")[0])  # 8: the line feed was counted
    record = record.replace(b"Content-Length: %d" % length, b"Content-Length: %d" % (7 - excess))
    html = response("http://a.org/x", b"\r\n" + PAGE.encode())  # CC-MAIN-2018-34: a blank line that was not counted
    length = int(html.rpartition(b"Content-Length: ")[2].partition(b"\r")[0])
    html = html.replace(b"Content-Length: %d" % length, b"Content-Length: %d" % (length - excess))
    (tmp_path / "c.warc").write_bytes(record + html + record)
    assert [getattr(row, "reason", None) or row.text for row in read(tmp_path)] == ["Text.ab", TEXT, "duplicate"]
    # a third line end is none of the text
    (tmp_path / "c.warc").write_bytes(wet(["Text.\n"]) + b"\r\n" + wet(["Other."]))
    assert [d.text for d in documents(tmp_path)] == ["Text.\n", "Other."]


def test_headers_of_early_versions_and_of_careless_writers_are_read(tmp_path: Path) -> None:
    html = PAGE.encode()
    old = response("<http://a.org/1>", html).replace(b"WARC/1.1", b"WARC/0.18")

    def http(uri: str, body: bytes, **headers: str) -> bytes:
        return warc_record(WarcRecordType.response, uri, body, Content_Type="application/http", **headers)

    untyped = b"HTTP/1.1 200 OK\r\n\r\n" + html
    identified = http("http://a.org/2", untyped, WARC_Identified_Payload_Type="text/html")
    in_lf = http("http://a.org/3", b"HTTP/1.1 200 OK\nContent-Type: text/html\n\n" + html).replace(b"\r\n", b"\n")
    (tmp_path / "c.warc").write_bytes(old + identified + in_lf)
    assert [(d.text, d.url) for d in documents(tmp_path)] == [(TEXT, f"http://a.org/{i}") for i in (1, 2, 3)]
    (tmp_path / "c.warc").write_bytes(http("http://a.org/2", untyped))
    assert rejected(tmp_path) == [(1, "not_html")]


@pytest.mark.parametrize(
    ("html", "content_type", "text"),
    [
        ("<p>café".encode(), "text/html; charset=utf-8", "café"),
        ("<p>café".encode("latin-1"), "text/html; charset=iso-8859-1", "café"),
        ('<meta charset="windows-1251"><p>привет'.encode("cp1251"), "text/html", "привет"),
        ("<p>日本語のページです。".encode("shift_jis"), "text/html; charset=Shift_JIS", "日本語のページです。"),
        ("<p>café".encode(), "text/html; charset=no-such", "café"),
        (b"<p>a\x81\xffb", "text/html; charset=utf-8", "a\ufffd\ufffdb"),
        ("\ufeff<p>café".encode(), "text/html", "café"),
    ],
)
def test_a_page_is_read_in_its_encoding(tmp_path: Path, html: bytes, content_type: str, text: str) -> None:
    (tmp_path / "c.warc").write_bytes(response("http://a.org/x", html, Content_Type=content_type))
    assert [d.text for d in documents(tmp_path)] == [text]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_of_records_that_are_compressed_each_by_itself_those_before_a_cut_are_kept(tmp_path: Path, suffix: str) -> None:
    *first, last = (COMPRESS[suffix](wet([text])) for text in ("One.", "Two.", "Three."))
    (tmp_path / f"c.wet{suffix}").write_bytes(b"".join(first) + last[: len(last) // 2])
    (tmp_path / "d.wet.gz").write_bytes(gzip.compress(wet(["Four."]))[:-4])  # of a checksum and a length
    found = [getattr(row, "reason", None) or row.text for row in read(tmp_path)]
    assert found == ["One.", "Two.", "truncated", "Four.", "truncated"]


def test_a_header_with_plain_line_feeds_is_read_and_one_without_end_is_given_up(tmp_path: Path) -> None:
    record = wet(["Text."])
    head, _, rest = record.partition(b"\r\n\r\n")
    (tmp_path / "c.wet").write_bytes(head.replace(b"\r\n", b"\n") + b"\n\n" + rest + b"\n\n\n" + record)
    assert [d.text for d in documents(tmp_path)] == ["Text."]
    assert rejected(tmp_path) == [(15, "duplicate")]  # behind 8 lines of header, 1 of text, 2 of end, 3 that are added
    (tmp_path / "c.wet").write_bytes(b"WARC/1.0\r\n" + b"X: y\r\n" * 20_000 + b"\r\n" + record)
    assert [reason for _, reason in rejected(tmp_path)] == ["broken_record", "broken_record"]  # its start, its rest
    assert [d.text for d in documents(tmp_path)] == ["Text."]


def test_memory_holds_no_record_that_is_too_long(tmp_path: Path) -> None:
    size = 40_000_000
    head = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: %d\r\n\r\n" % size
    million = COMPRESS[".bz2"](b"a" * 1_000_000)
    blank = COMPRESS[".bz2"](b"\r\n" * 500_000)
    record = COMPRESS[".bz2"](wet(["Text."]))
    (tmp_path / "c.wet.bz2").write_bytes(COMPRESS[".bz2"](head) + million * 40 + blank * 4 + record + million * 5)
    found, peak = with_peak(lambda: read(tmp_path))
    assert [getattr(row, "reason", None) or row.text for row in found] == ["too_long", "Text.", "broken_record"]
    assert peak < 20_000_000  # 8 MiB of a record are held, and copied once


@pytest.mark.parametrize("package", ["fastwarc", "resiliparse"])
def test_a_missing_package_is_named_before_anything_is_read(tmp_path: Path, monkeypatch, package: str) -> None:
    (tmp_path / "c.warc").write_bytes(response("http://a.org/x", PAGE.encode()))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"warc files need {package}, which is not installed: .*\[warc\]'"):
        read_corpus(tmp_path, IngestConfig())
