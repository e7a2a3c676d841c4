"""Reads a Wikipedia dump as rows: an article is its title and sections as plain text, with its address and date.

What is kept of the markup stands in `toolformer_core.wikitext`; why a page is none of the rows that could be read, in
`toolformer_core.mediawiki`. A dump of pages' whole histories gives the newest text of each page, if its history is
short enough to be held.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable
from toolformer_core.mediawiki import Article, NotADumpError, pages


def wikipedia_rows(path: Path, max_page_bytes: int) -> Iterator[RawRow | BadRow]:
    """Yield the pages of a dump, with the columns `title`, `text`, `url` and `timestamp`; redirects are bad rows."""
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
