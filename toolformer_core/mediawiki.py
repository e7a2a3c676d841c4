"""Reads a MediaWiki dump, such as Wikipedia's `pages-articles.xml.bz2`, as a stream of articles in plain text.

It is cut into pages at `<page>` and `</page>`, which no article's text can hold; each page is then read on its own by
mwxml (extra `wikipedia`). So memory holds one page at a time, and a page that is broken costs no other page.

    | a page is skipped for | because (redirect, not_utf8, too_long and truncated: as they say)          |
    |-----------------------|----------------------------------------------------------------------------|
    | other_namespace       | it is a talk page, a template, a category or the like: its <ns> is not 0   |
    | not_wikitext          | its content model is another one, such as JSON                             |
    | no_text               | its text was deleted, or is missing                                        |
    | broken_xml            | its XML is not a page of the export format                                 |
    | broken_markup         | the parser of wikitext gives up on it                                      |
"""

import io
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from urllib.parse import quote
from xml.etree.ElementTree import ParseError

from toolformer_core.compression import open_chunks
from toolformer_core.errors import CorpusError, UsageError
from toolformer_core.extras import how_to_install, is_installed
from toolformer_core.scanner import Piece, Scanner
from toolformer_core.wikitext import HIDDEN_NAMESPACES, Section, WikitextError, sections

_HEADER_BYTES = 1 << 20
_EXCERPT_BYTES = 4_000
_FILE, _CATEGORY, _MEDIA = 6, 14, -2  # the numbers of these namespaces in every wiki


class NotADumpError(CorpusError):
    """A file that is no MediaWiki dump."""


@dataclass(frozen=True, slots=True)
class Article:
    """An article in plain text; without any section if the page holds only templates and the like."""

    title: str  # with spaces, as readers see it
    sections: tuple[Section, ...]  # those that have text; the first may have an empty heading
    timestamp: str | None  # when this revision was saved, e.g. `2024-05-01T12:30:00Z`; None if the dump does not say.
    url: str | None  # its address in the wiki; None if the dump does not say where the wiki is
    line: int  # the line of the decompressed file where its page begins, from 1

    @property
    def text(self) -> str:
        """The title, headings and sections with blank lines between; empty if there is no section."""
        parts = [self.title]
        above: list[str] = []
        for section in self.sections:
            headings = section.heading.split(" > ") if section.heading else []
            same = takewhile(lambda pair: pair[0] == pair[1], zip(headings[:-1], above, strict=False))
            parts += [*headings[len(list(same)) :], section.text]
            above = headings
        return "\n\n".join(parts) if self.sections else ""


@dataclass(frozen=True, slots=True)
class SkippedPage:
    """A page that is no article, or could not be read; the reasons are listed above."""

    reason: str
    detail: str
    line: int  # where the page begins, from 1
    title: str | None = None
    raw: bytes = b""  # the start of the page


def pages(
    path: Path, max_page_bytes: int = 1 << 23, *, skip: int = 0, chunks: Iterator[bytes] | None = None
) -> Iterator[Article | SkippedPage]:
    """Yield every page of a dump in its order, as an article or with the reason why it is none.

    A page longer than `max_page_bytes` is skipped without being held, and the first `skip` pages are passed over.
    `chunks` is the decompressed dump, if it is open already. A NotADumpError if it is none, a UsageError if the extra
    `wikipedia` is not installed.
    """
    for package in ("mwxml", "mwparserfromhell"):
        if not is_installed(package):
            raise UsageError(f"reading a MediaWiki dump needs {package}: {how_to_install('wikipedia')}")
    scanner = Scanner(open_chunks(path) if chunks is None else chunks)
    header = scanner.until(b"<page>", _HEADER_BYTES)
    if not header.size and not scanner.damage:
        return
    if b"<mediawiki" not in header.kept and not scanner.damage:
        raise NotADumpError(f"{path} is no MediaWiki dump: <mediawiki> does not stand before its first page")
    site = _site(header.kept)
    for page in islice(_raw_pages(scanner, header, max_page_bytes), skip, None):
        yield page if isinstance(page, SkippedPage) else _page(*page, site)


def _raw_pages(scanner: Scanner, header: Piece, max_page_bytes: int) -> Iterator[tuple[bytes, int] | SkippedPage]:
    piece = header
    while piece.found:
        line = scanner.line
        page = scanner.until(b"</page>", max_page_bytes)
        if not page.found:
            detail = scanner.damage or "the file ends inside a page"
            yield SkippedPage("truncated", detail, line, raw=page.kept[:_EXCERPT_BYTES])
            return
        if page.size > max_page_bytes:
            yield SkippedPage("too_long", f"a page of {page.size} bytes", line, raw=page.kept[:_EXCERPT_BYTES])
        else:
            yield b"<page>" + page.kept, line
        line = scanner.line
        piece = scanner.until(b"<page>", _EXCERPT_BYTES)
        between = piece.kept.removesuffix(b"<page>").strip()
        if piece.found and between:
            yield SkippedPage("broken_xml", "this stands between two pages", line, raw=between)
    if scanner.damage or b"</mediawiki>" not in piece.kept:
        yield SkippedPage("truncated", scanner.damage or "the file ends before </mediawiki>", scanner.line)


_Site = tuple[str | None, frozenset[str]]  # what an article's address starts with, hidden namespaces in lower case


def _site(header: bytes) -> _Site:
    """Return what the dump says of its wiki; a dump that says nothing is read with English names and no addresses."""
    import mwxml

    text = header.removesuffix(b"<page>").decode("utf-8", "replace")
    try:
        with_end = text if text.rstrip().endswith("</mediawiki>") else text + "</mediawiki>"
        info = mwxml.Dump.from_file(io.StringIO(with_end)).site_info
    except (ParseError, mwxml.errors.MalformedXML, AssertionError, ValueError, TypeError):
        return None, HIDDEN_NAMESPACES
    names = {n.name.lower() for n in info.namespaces or () if n.name and n.id in (_FILE, _CATEGORY, _MEDIA)}
    folder = (info.base or "").rpartition("/")[0]
    return f"{folder}/" if folder.startswith(("http://", "https://")) else None, HIDDEN_NAMESPACES | names


def _page(xml: bytes, line: int, site: _Site) -> Article | SkippedPage:
    import mwxml
    from mwxml.element_iterator import ElementIterator

    base, hidden = site
    title: str | None = None

    def skip(reason: str, detail: str) -> SkippedPage:
        return SkippedPage(reason, detail[:200], line, title, xml[:_EXCERPT_BYTES])

    try:
        page = mwxml.Page.from_element(ElementIterator.from_string(xml.decode("utf-8")))
        title = page.title
        (revision,) = deque(page, maxlen=1) or (None,)  # the last one
        main = revision and revision.slots.contents["main"]
        timestamp = revision.timestamp.long_format() if revision and revision.timestamp is not None else None
    except UnicodeDecodeError as exc:
        return skip("not_utf8", f"byte {exc.start}: {exc.reason}")
    except (ParseError, mwxml.errors.MalformedXML, ValueError, TypeError, AttributeError, KeyError) as exc:
        return skip("broken_xml", str(exc))
    if page.namespace != 0:
        return skip("other_namespace", f"namespace {page.namespace}")
    if page.redirect is not None:
        return skip("redirect", f"to {page.redirect}")
    if main is not None and main.model not in (None, "wikitext"):
        return skip("not_wikitext", f"the content model is {main.model}")
    if main is None or not main.text:
        return skip("no_text", "the page has no text")
    try:
        parts = sections(main.text, hidden)
    except WikitextError as exc:
        return skip("broken_markup", str(exc))
    url = base and base + quote(page.title.replace(" ", "_"), safe="/:@!$'()*,;~")
    return Article(page.title, parts, timestamp, url, line)
