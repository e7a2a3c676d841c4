"""Strips wikitext, the markup of Wikipedia's articles, down to plain text in sections.

Parsed by mwparserfromhell (extra `wikipedia`), which is imported on use.

    | markup                                                   | what stays                                        |
    |----------------------------------------------------------|---------------------------------------------------|
    | [[Page]], [[Page#Part|words]], [http://address words]    | Page; words; words                                |
    | [http://address] (a numbered link), a bare http://...    | nothing; the address                              |
    | {{templates}}, {{{arguments}}}, <!-- comments -->        | nothing                                           |
    | footnotes, tables, galleries, formulas, scores           | nothing                                           |
    | files and categories, under English and local names      | nothing                                           |
    | links to other languages without words of their own      | nothing                                           |
    | bold, italics, lists, indents, other tags, __TOC__       | their words                                       |
    | entities, and nowiki, pre and code                       | the characters; their content                     |
    | == headings ==                                           | the heading of a section, below those it is under |

What a removed template leaves behind is tidied: empty brackets, doubled spaces and blank lines. Nothing here knows
dumps or pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from toolformer_core.errors import UsageError
from toolformer_core.extras import how_to_install

__all__ = ["HIDDEN_NAMESPACES", "Section", "WikitextError", "sections"]

HIDDEN_NAMESPACES = frozenset({"file", "image", "media", "category"})  # links to these show nothing of their own
_HIDDEN_TAGS = frozenset(
    "ref references table gallery math chem ce score graph timeline hiero imagemap inputbox categorytree section "
    "templatedata templatestyles style script mapframe maplink indicator".split()
)
_BLOCKS = frozenset("div p blockquote center pre li dt dd tr td th ul ol dl poem syntaxhighlight source hr br".split())
_OPEN = re.compile(r"<[A-Za-z](?!r\s*/?>)|\{\||\{\{|\[")
_CLOSED = re.compile(r"</|/>|\|\}|\}\}|\]")
_MOST_UNCLOSED = 1_000  # the parser's time grows with the square of what is never closed
_LANGUAGE_LINK = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*:\S")
_QUOTES = re.compile(r"'{2,5}")
_MAGIC_WORD = re.compile(r"__[^\W\d_a-z]+(?:_[^\W\d_a-z]+)*__")
_TABLE_LINE = re.compile(r"^\s*(?:\{\||\|).*$", re.MULTILINE)  # of a table that never closes
_SPACES = re.compile(r"[ \t\u00a0\u2009\u202f]+")
_BEFORE_PUNCTUATION = re.compile(r"(?<=\() ?[,;:](?: ?[,;:])* ?")
_EMPTY_BRACKETS = re.compile(r" ?\([ ,;:]*\)")
_BLANK_LINES = re.compile(r"\n{3,}")


class WikitextError(Exception):
    """Wikitext that the parser gives up on."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of an article that has text.

    Args:
        heading: with the headings it stands under, such as `History > Early years`; empty before the first heading.
        text: plain text without a subsection's text; a blank line stands between paragraphs.
    """

    heading: str
    text: str


def sections(wikitext: str, hidden: frozenset[str] = HIDDEN_NAMESPACES) -> tuple[Section, ...]:
    """Return the sections of an article; a section without text is left out, its heading stays in those below it.

    Args:
        wikitext: the source of the article.
        hidden: the namespaces in lower case whose links are removed.

    Raises:
        UsageError: mwparserfromhell is not installed.
        WikitextError: the parser gives up.
    """
    try:
        import mwparserfromhell
        from mwparserfromhell.nodes import Heading
        from mwparserfromhell.parser import ParserError
    except ImportError as exc:
        raise UsageError(f"reading wikitext needs mwparserfromhell: {how_to_install('wikipedia')}") from exc

    unclosed = _count(_OPEN, wikitext) - _count(_CLOSED, wikitext)
    if unclosed > _MOST_UNCLOSED:
        raise WikitextError(f"{unclosed} brackets and tags are never closed")
    try:
        # bold and italics stay in the text, for the parser guesses where they end; `_tidy` removes their quotes
        nodes = mwparserfromhell.parse(wikitext, skip_style_tags=True).nodes
    except (ParserError, RecursionError) as exc:
        raise WikitextError(str(exc)[:200] or type(exc).__name__) from exc
    found: list[Section] = []
    above: list[tuple[int, str]] = []  # levels and headings
    parts: list[str] = []

    def close() -> None:
        if text := _tidy("".join(parts)):
            found.append(Section(" > ".join(heading for _, heading in above), text))

    for node in nodes:
        if not isinstance(node, Heading):
            parts += _words([node], hidden)
            continue
        close()
        parts = []
        above = [(level, heading) for level, heading in above if level < node.level]
        heading = _tidy("".join(_words(node.title.nodes, hidden))).replace("\n", " ")
        if heading:
            above.append((node.level, heading))
    close()
    return tuple(found)


def _count(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in pattern.finditer(text))


def _words(nodes: Iterable[Any], hidden: frozenset[str]) -> Iterator[str]:
    for node in nodes:
        kind = type(node).__name__
        if kind == "Text":
            yield node.value
        elif kind == "Wikilink":
            yield from _of_link(node, hidden)
        elif kind == "Tag":
            yield from _of_tag(node, hidden)
        elif kind == "HTMLEntity":
            yield _character(node)
        elif kind == "ExternalLink":
            if node.title is not None:
                yield from _words(node.title.nodes, hidden)
            elif not node.brackets:
                yield str(node.url)
        elif kind == "Heading":  # inside a tag, where it opens no section
            yield "\n"
            yield from _words(node.title.nodes, hidden)
            yield "\n"


def _of_link(node: Any, hidden: frozenset[str]) -> Iterator[str]:
    target = str(node.title).strip()
    prefix, colon, _ = target.partition(":")
    if colon and prefix.strip().lower().replace("_", " ") in hidden:
        return
    if node.text is not None and str(node.text).strip():
        yield from _words(node.text.nodes, hidden)
    elif not _LANGUAGE_LINK.match(target):
        yield from _words(node.title.nodes, hidden) if target[:1] != ":" else [target[1:]]


def _of_tag(node: Any, hidden: frozenset[str]) -> Iterator[str]:
    name = str(node.tag).strip().lower()
    if name in _HIDDEN_TAGS:
        return
    block = name in _BLOCKS and not node.wiki_markup
    if block:
        yield "\n"
    if node.contents is not None:
        yield from _words(node.contents.nodes, hidden)
    if block and name not in ("br", "hr"):
        yield "\n"


def _character(node: Any) -> str:
    try:
        character: str = node.normalize()
    except (ValueError, OverflowError):
        return str(node)
    return character if not "\ud800" <= character <= "\udfff" else str(node)


def _tidy(text: str) -> str:
    text = _MAGIC_WORD.sub("", _QUOTES.sub("", text))
    text = _SPACES.sub(" ", _TABLE_LINE.sub("", text))
    text = _EMPTY_BRACKETS.sub("", _BEFORE_PUNCTUATION.sub("", text))
    return _BLANK_LINES.sub("\n\n", "\n".join(line.strip() for line in text.split("\n"))).strip()
