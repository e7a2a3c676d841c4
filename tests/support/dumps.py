"""A small MediaWiki dump in the schema of Wikipedia's `pages-articles.xml`: two articles, a redirect, a talk page."""

from __future__ import annotations

from xml.sax.saxutils import escape

_HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://www.mediawiki.org/xml/export-0.11/ \
http://www.mediawiki.org/xml/export-0.11.xsd" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.43.0</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Talk</namespace>
      <namespace key="6" case="first-letter">File</namespace>
      <namespace key="14" case="first-letter">Category</namespace>
    </namespaces>
  </siteinfo>
"""
_PAGE = """  <page>
    <title>{title}</title>
    <ns>{ns}</ns>
    <id>{id}</id>
{redirect}    <revision>
      <id>{id}00</id>
      <parentid>{id}0</parentid>
      <timestamp>2024-05-01T12:30:00Z</timestamp>
      <contributor>
        <username>Someone</username>
        <id>7</id>
      </contributor>
      <comment>a comment</comment>
      <origin>{id}00</origin>
      <model>wikitext</model>
      <format>text/x-wiki</format>
      <text bytes="{bytes}" sha1="phoiac9h4m842xq45sp7s6u21eteeq1" xml:space="preserve">{text}</text>
      <sha1>phoiac9h4m842xq45sp7s6u21eteeq1</sha1>
    </revision>
  </page>
"""
_MIRA = """{{Infobox artist|name=Mira Holt}}
'''Mira Holt''' was a [[painting|painter]].<ref>A book.</ref>

== Life ==
She was born in [[Velden]] in 1871.

=== Later years ===
She painted mills.

[[Category:Painters]]"""


def _page(id: int, title: str, text: str, ns: int = 0, redirect: str = "") -> str:
    tag = f'    <redirect title="{redirect}" />\n' if redirect else ""
    return _PAGE.format(id=id, title=title, ns=ns, redirect=tag, text=escape(text), bytes=len(text.encode()))


def a_dump() -> bytes:
    """Return the dump: Mira Holt, a redirect to it, a talk page, Velden."""
    pages = [
        _page(10, "Mira Holt", _MIRA),
        _page(11, "Holt, Mira", "#REDIRECT [[Mira Holt]]", redirect="Mira Holt"),
        _page(12, "Talk:Mira Holt", "Is this right?", ns=1),
        _page(13, "Velden", "'''Velden''' is a town in [[Ostmark]]."),
    ]
    return (_HEAD + "".join(pages) + "</mediawiki>\n").encode()
