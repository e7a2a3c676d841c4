"""Writes the same documents as files of several formats, as their usual writers would."""

import bz2
import csv
import gzip
import io
import json
import lzma
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar
from xml.sax.saxutils import escape

import zstandard
from fastwarc.warc import WarcRecord, WarcRecordType

Result = TypeVar("Result")


def with_peak(work: Callable[[], Result]) -> tuple[Result, int]:
    """Return what a function returns, and how many bytes Python held at most meanwhile."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
}
DATE = "2024-05-01T12:30:00Z"


def jsonl(texts: Iterable[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def json_array(texts: Iterable[str]) -> bytes:
    return json.dumps([{"text": text} for text in texts]).encode()


def delimited(texts: Iterable[str], delimiter: str = ",", **others: str) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["text", *others])
    writer.writerows([text, *others.values()] for text in texts)
    return out.getvalue().encode()


def warc_record(kind: WarcRecordType, uri: str, body: bytes, **headers: str) -> bytes:
    """A record; without headers of HTTP, which the body may bring."""
    record = WarcRecord()
    record.init_headers(kind)
    record.headers["WARC-Target-URI"] = uri
    record.headers["WARC-Date"] = DATE
    for name, value in headers.items():
        record.headers[name.replace("_", "-")] = value
    record.set_bytes_content(body)
    out = io.BytesIO()
    record.write(out)
    return out.getvalue()


def response(uri: str, html: bytes, status: str = "200 OK", **http: str) -> bytes:
    fields = {"Content-Type": "text/html; charset=utf-8"} | {k.replace("_", "-"): v for k, v in http.items()}
    head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
    content_type = "application/http; msgtype=response"
    return warc_record(WarcRecordType.response, uri, head.encode() + html, Content_Type=content_type)


def wet(texts: Iterable[str], uri: str = "") -> bytes:
    """What Common Crawl calls WET; every text ends in a line feed."""
    bodies = (f"{text}\n".encode() for text in texts)
    return b"".join(warc_record(WarcRecordType.conversion, uri, body, Content_Type="text/plain") for body in bodies)


def page(title: str, wikitext: str, ns: int = 0, redirect: str = "", model: str = "wikitext") -> str:
    size = len(wikitext.encode())
    return f"""  <page>
    <title>{escape(title)}</title>
    <ns>{ns}</ns>
    <id>12</id>
{f'    <redirect title="{redirect}" />' if redirect else ""}
    <revision>
      <id>600</id>
      <parentid>599</parentid>
      <timestamp>{DATE}</timestamp>
      <contributor><username>Someone</username><id>7</id></contributor>
      <comment>worked on it</comment>
      <origin>600</origin>
      <model>{model}</model>
      <format>text/x-wiki</format>
      <text bytes="{size}" sha1="phoiac9h4m842xq45sp7s6u21eteeq1" xml:space="preserve">{escape(wikitext)}</text>
      <sha1>phoiac9h4m842xq45sp7s6u21eteeq1</sha1>
    </revision>
  </page>
"""


DUMP_HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>dewiki</dbname>
    <base>https://de.wikipedia.org/wiki/Wikipedia:Hauptseite</base>
    <generator>MediaWiki 1.43.0</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="-2" case="first-letter">Medium</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""


def dump(*pages: str) -> bytes:
    return (DUMP_HEAD + "".join(pages) + "</mediawiki>\n").encode()


_MIRA = """{{Infobox artist|name=Mira Holt}}
'''Mira Holt''' was a [[painting|painter]].<ref>A book.</ref>

== Life ==
She was born in [[Velden]] in 1871.

=== Later years ===
She painted mills.

[[Category:Painters]]"""


def a_dump() -> bytes:
    """Return a dump of an article, a redirect to it, a talk page and another article."""
    return dump(
        page("Mira Holt", _MIRA),
        page("Holt, Mira", "#REDIRECT [[Mira Holt]]", redirect="Mira Holt"),
        page("Talk:Mira Holt", "Is this right?", ns=1),
        page("Velden", "'''Velden''' is a town in [[Ostmark]]."),
    )


def write_texts(folder: Path, texts: Iterable[str]) -> Path:
    """One .txt file per text; each file ends in a line feed that is no part of the text."""
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number:04d}.txt").write_bytes(f"{text}\n".encode())
    return folder
