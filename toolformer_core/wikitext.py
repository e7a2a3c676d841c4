"""Strips wikitext, the markup of Wikipedia's articles, down to plain text in sections, by the extra `wikipedia`.

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
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

HIDDEN_NAMESPACES = frozenset({"file", "image", "media", "category"})  # links to these show nothing of their own
_HIDDEN_TAGS = frozenset(
    "ref references table gallery math chem ce score graph timeline hiero imagemap inputbox categorytree section "
    "templatedata templatestyles style script mapframe maplink indicator".split()
)
_BLOCKS = frozenset("div p blockquote center pre li dt dd tr td th ul ol dl poem syntaxhighlight source hr br".split())
_REMOVED = {"TemplateOpen": "TemplateClose", "ArgumentOpen": "ArgumentClose", "CommentStart": "CommentEnd"}
_PUSHED = frozenset({"WikilinkOpen", "ExternalLinkOpen", "HeadingStart", "TagOpenOpen"})
_BRACKET = re.compile(r"</?[A-Za-z]+|/>|\{\||\|\}|\{\{|\}\}|\[|\]")
_OPENED_BY = {"|}": "{|", "}}": "{{", "]": "["}
_SINGLE = frozenset({"<br", "<hr", "<li", "<dt", "<dd", "<td", "<th", "<tr", "<wbr", "<img"})  # need no end tag
_MOST_UNCLOSED = 500
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
    heading: str  # with the headings it stands under, such as `History > Early years`; empty before the first heading
    text: str  # plain text without a subsection's text; a blank line stands between paragraphs


def sections(wikitext: str, hidden: frozenset[str] = HIDDEN_NAMESPACES) -> tuple[Section, ...]:
    """Return the sections of an article; a section without text is left out, its heading stays in those below it.

    Links into the namespaces `hidden`, in lower case, are removed. A WikitextError if the parser gives up, or would
    take minutes because hundreds of brackets never close.
    """
    from mwparserfromhell import parser
    from mwparserfromhell.parser.tokenizer import Tokenizer

    if (unclosed := _unclosed(wikitext)) > _MOST_UNCLOSED:
        raise WikitextError(f"{unclosed} brackets and tags are never closed")
    # the parser's first half: the trees of its second half would take five times as long as everything else
    kind: Any = getattr(parser, "CTokenizer", None) or Tokenizer  # None where it was built without its C part
    try:
        # bold and italics stay in the text, for the parser guesses where they end; `_tidy` removes their quotes
        tokens = kind().tokenize(wikitext, 0, True)
    except (parser.ParserError, RecursionError) as exc:
        raise WikitextError(str(exc)[:200] or type(exc).__name__) from exc
    return _Stripper(hidden).sections(tokens)


def _unclosed(wikitext: str) -> int:
    """Return how many brackets and tags are open at the end; the parser's time grows with their square."""
    depths: Counter[str] = Counter()
    latest = ""
    for match in _BRACKET.finditer(wikitext):
        mark = match[0].lower()
        if mark == "/>":
            depths[latest] -= depths[latest] > 0
        elif mark in _OPENED_BY or mark.startswith("</"):
            opened = _OPENED_BY.get(mark) or mark.replace("/", "")
            depths[opened] -= depths[opened] > 0
        elif mark not in _SINGLE:
            depths[mark] += 1
            latest = mark if mark.startswith("<") else latest
    return depths.total()


@dataclass(slots=True)
class _Open:
    """What has been opened and not closed: the page itself, a heading, a link, a tag."""

    level: int = 0  # of a heading
    brackets: bool = True  # of an external link
    wiki_markup: str = ""  # that a tag is written as, such as `*` for a list's item
    name: str | None = None  # the tag's name, or the link's target, once it has been read
    contents: str = ""  # of a tag whose end tag is being read
    parts: list[str] = field(default_factory=list)  # the words read so far

    def take(self) -> str:
        text = "".join(self.parts)
        self.parts = []
        return text


class _Stripper:
    """Goes through the tokens of a page once. They are well nested: whatever opens also closes."""

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden
        self._open = [_Open()]
        self._above: list[tuple[int, str]] = []  # levels and headings
        self._found: list[Section] = []

    def sections(self, tokens: Iterable[Any]) -> tuple[Section, ...]:
        rest = iter(tokens)
        for token in rest:
            kind = type(token).__name__
            if kind in _REMOVED:
                _skip(rest, kind, _REMOVED[kind])
            elif kind in _PUSHED:
                if kind == "HeadingStart" and len(self._open) == 1:
                    self._end_section()
                self._open.append(_Open(token.level or 0, token.brackets is not False, token.wiki_markup or ""))
            else:
                self._go_on(kind, token, rest)
        self._end_section()
        return tuple(self._found)

    def _go_on(self, kind: str, token: Any, rest: Iterator[Any]) -> None:
        top = self._open[-1]
        match kind:
            case "Text":
                top.parts.append(token.text)
            case "HTMLEntityStart":
                top.parts.append(_character(rest))
            case "WikilinkSeparator" | "ExternalLinkSeparator":
                top.name = top.take()
            case "WikilinkClose":
                self._pop(self._of_link(top))
            case "ExternalLinkClose":
                self._pop(top.take() if top.name is not None or not top.brackets else "")
            case "HeadingEnd":
                self._end_heading(top)
            case "TagAttrStart":
                top.name = top.name or top.take()
            case "TagCloseOpen":
                top.name, top.parts = top.name or top.take(), []  # what the attributes say is dropped
            case "TagCloseSelfclose":
                self._pop("\n" if (top.name or top.take()).strip().lower() in _BLOCKS and not top.wiki_markup else "")
            case "TagOpenClose":
                top.contents = top.take()
            case "TagCloseClose":
                self._pop(_of_tag(top))

    def _pop(self, words: str) -> None:
        self._open.pop()
        self._open[-1].parts.append(words)

    def _end_section(self) -> None:
        if text := _tidy(self._open[0].take()):
            self._found.append(Section(" > ".join(heading for _, heading in self._above), text))

    def _end_heading(self, top: _Open) -> None:
        if len(self._open) > 2:  # inside a tag, where it opens no section
            return self._pop(f"\n{top.take()}\n")
        self._open.pop()
        heading = " ".join(_tidy(top.take()).split("\n"))
        self._above = [(level, above) for level, above in self._above if level < top.level]
        if heading:
            self._above.append((top.level, heading))

    def _of_link(self, top: _Open) -> str:
        words = top.take()
        target = (words if top.name is None else top.name).strip()
        prefix, colon, _ = target.partition(":")
        if colon and prefix.strip().lower().replace("_", " ") in self._hidden:
            return ""
        if top.name is not None and words.strip():
            return words
        return "" if _LANGUAGE_LINK.match(target) else target.removeprefix(":")


def _skip(rest: Iterator[Any], opened: str, closed: str) -> None:
    depth = 1
    while depth:
        kind = type(next(rest)).__name__
        depth += (kind == opened) - (kind == closed)


def _of_tag(top: _Open) -> str:
    name = (top.name or "").strip().lower()
    if name in _HIDDEN_TAGS:
        return ""
    return f"\n{top.contents}\n" if name in _BLOCKS and not top.wiki_markup else top.contents


def _character(rest: Iterator[Any]) -> str:
    mark = text = ""
    for token in rest:
        kind = type(token).__name__
        if kind == "HTMLEntityEnd":
            break
        mark = {"HTMLEntityNumeric": "#", "HTMLEntityHex": "#x"}.get(kind, mark)
        text += token.text if kind == "Text" else ""
    character = html.unescape(f"&{mark}{text};")
    return character if character.isprintable() or character.isspace() else ""


def _tidy(text: str) -> str:
    text = _MAGIC_WORD.sub("", _QUOTES.sub("", text))
    text = _SPACES.sub(" ", _TABLE_LINE.sub("", text))
    text = _EMPTY_BRACKETS.sub("", _BEFORE_PUNCTUATION.sub("", text))
    return _BLANK_LINES.sub("\n\n", "\n".join(line.strip() for line in text.split("\n"))).strip()
