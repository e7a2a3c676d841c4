"""Dumps of MediaWiki: articles in plain text, what is skipped and why, damage, and bounded memory."""

import bz2
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.corpus_formats import COMPRESS, DUMP_HEAD, dump, page, with_peak
from toolformer_core.errors import UsageError
from toolformer_core.mediawiki import Article, NotADumpError, SkippedPage, pages
from toolformer_core.scanner import Scanner
from toolformer_core.wikitext import Section, WikitextError, sections


def written(tmp_path: Path, data: bytes, name: str = "dewiki-pages-articles.xml") -> Path:
    path = tmp_path / name
    path.write_bytes(COMPRESS[Path(name).suffix if Path(name).suffix in COMPRESS else ""](data))
    return path


def articles(path: Path) -> list[Article]:
    return [one for one in pages(path) if isinstance(one, Article)]


AACHEN = """{{Infobox|name={{b}}|c=[[d]]}}
'''Aachen''' ({{IPA|x}}, ''Aix'') is a [[city]] in [[North Rhine|the west]].<ref>Foo {{cite}}</ref>
[[Datei:foo.jpg|thumb|A [[caption]]]]
== History ==
=== Early years ===
Romans.
== Sights ==
A [[cathedral]].
[[Kategorie:Stadt]]
"""


@pytest.mark.parametrize("suffix", COMPRESS)
def test_an_article_has_sections_a_date_and_an_address(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, dump(page("Aachen (Stadt)", AACHEN)), f"dewiki.xml{suffix}")
    (article,) = articles(path)
    lead = Section("", "Aachen (Aix) is a city in the west.")
    below = (lead, Section("History > Early years", "Romans."), Section("Sights", "A cathedral."))
    address = "https://de.wikipedia.org/wiki/Aachen_(Stadt)"
    assert article == Article("Aachen (Stadt)", below, "2024-05-01T12:30:00Z", address, 15)  # the head has 14 lines
    parts = ["Aachen (Aix) is a city in the west.", "History", "Early years", "Romans.", "Sights", "A cathedral."]
    assert article.text.split("\n\n") == ["Aachen (Stadt)", *parts]


def test_headings_stand_in_the_text_once_each_time_they_stand_in_the_article() -> None:
    parts = (Section("A", "1"), Section("A > B", "2"), Section("A > C", "3"), Section("A", "4"), Section("B > C", "5"))
    text = Article("T", parts, None, None, 1).text
    assert text.split("\n\n") == ["T", "A", "1", "B", "2", "C", "3", "A", "4", "B", "C", "5"]
    assert Article("T", (), None, None, 1).text == ""


def test_what_is_no_article_is_skipped_with_its_reason(tmp_path: Path) -> None:
    good = page("Good", "Text.")
    given = [
        (good, "", "Good"),
        (page("Old", "#REDIRECT [[Good]]", redirect="Good"), "redirect", "Old"),
        (page("Talk:Good", "Hm.", ns=1), "other_namespace", "Talk:Good"),
        (page("Q1", "{}", model="json"), "not_wikitext", "Q1"),
        (page("Empty", ""), "no_text", "Empty"),
        (good.replace("<text ", "<unclosed><text ").replace("Good", "Broken"), "broken_xml", "Broken"),
        ("  <page><title>x</title><surprise/></page>\n", "broken_xml", None),
        ("  stray words\n", "broken_xml", None),
        (good.replace("Text.", "\N{PLACE OF INTEREST SIGN}").replace("Good", "Bytes"), "not_utf8", None),
        (page("Open", "{{" * 600), "broken_markup", "Open"),
        (page("Long", "word " * 2_000), "too_long", None),
        (good.replace("Good", "Last"), "", "Last"),
    ]
    data = dump(*(text for text, _, _ in given)).replace("\N{PLACE OF INTEREST SIGN}".encode(), b"caf\xe9")
    found = list(pages(written(tmp_path, data), 8_000))
    assert [(getattr(one, "reason", ""), one.title) for one in found] == [(why, title) for _, why, title in given]
    assert getattr(found[7], "raw", b"") == b"stray words"


def test_of_several_revisions_the_last_one_counts(tmp_path: Path) -> None:
    one = page("T", "old")
    revision = one[one.index("    <revision>") : one.index("  </page>")]
    both = one.replace(revision, revision + revision.replace(">old<", ">new<").replace("2024", "2025"))
    (article,) = articles(written(tmp_path, dump(both)))
    assert (article.sections[0].text, article.timestamp) == ("new", "2025-05-01T12:30:00Z")


def test_a_dump_that_says_nothing_of_its_wiki_is_read_without_addresses(tmp_path: Path) -> None:
    bare = b"<mediawiki>" + page("T", "See [[File:x|y]] it.").encode() + b"</mediawiki>"
    (article,) = articles(written(tmp_path, bare))
    assert (article.url, article.sections) == (None, (Section("", "See it."),))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_cut_short_is_reported_once_and_what_stands_before_is_kept(tmp_path: Path, suffix: str) -> None:
    whole = dump(*(page(f"T{i}", f"Text {i}. " + "word " * 50) for i in range(300)))
    data = COMPRESS[suffix](whole)
    path = tmp_path / f"d.xml{suffix}"
    path.write_bytes(data[: len(data) * 2 // 3])
    found = [getattr(one, "reason", "") for one in pages(path)]
    assert found == [""] * (len(found) - 1) + ["truncated"]
    # cut between two pages it is noticed as well
    path.write_bytes(COMPRESS[suffix](whole.removesuffix(b"</mediawiki>\n")))
    assert [type(one) for one in pages(path)] == [Article] * 300 + [SkippedPage]


def test_a_file_that_is_no_dump_is_refused_and_an_empty_one_has_no_pages(tmp_path: Path) -> None:
    with pytest.raises(NotADumpError, match="is no MediaWiki dump: <mediawiki> does not stand"):
        list(pages(written(tmp_path, b"<rss><page>x</page></rss>")))
    assert list(pages(written(tmp_path, b""))) == []
    assert list(pages(written(tmp_path, DUMP_HEAD.encode() + b"</mediawiki>"))) == []
    assert [getattr(one, "reason", "") for one in pages(written(tmp_path, DUMP_HEAD.encode()))] == ["truncated"]


def test_memory_holds_no_page_that_is_too_long(tmp_path: Path) -> None:
    start, end = page("Huge", "\0").split("\0")
    first, million, last = map(
        bz2.compress, map(str.encode, (DUMP_HEAD + start, "a" * 1_000_000, end + page("T", "x")))
    )
    path = tmp_path / "d.xml.bz2"
    path.write_bytes(first + million * 40 + last)
    found, peak = with_peak(lambda: list(pages(path, 1_000_000)))
    assert [getattr(one, "reason", "") or one.title for one in found] == ["too_long", "T", "truncated"]
    assert peak < 8_000_000  # of 40 million


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path: Path, monkeypatch) -> None:
    for package in ("mwparserfromhell", "mwxml"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UsageError, match=rf"needs {package}: .*pip install.*wikipedia\]'"):
            list(pages(written(tmp_path, b"")))


STRIPPED = [
    ("'''''both''''' ''i'' '''b''' O'Neil's", "both i b O'Neil's"),
    ("a [[b]] [[c|d]] [[e#F]] [[g]]s [[:Category:H]]", "a b d e#F gs Category:H"),
    ("a[[File:x.jpg|thumb|[[b]] c]][[category:d]][[Image:e]]f", "af"),
    ("x\n[[fr:Aix]]\n[[zh-min-nan:Y]] [[fr:Aix|in French]]", "x\n\nin French"),
    ("[http://a.b words ''here''] [http://c.d] http://e.f", "words here http://e.f"),
    ("a{{t|b={{c}}}}d{{{e|f}}}g<!-- h {{i}} -->j", "adgj"),
    ("a<ref>b</ref><ref name='c' />d<references />", "ad"),
    ("a\n{|\n! b\n|-\n| c || d\n|}\ne", "a\n\ne"),
    ("a\n{| never closed\n| b\nc", "a\n\nc"),
    ("* a\n** b\n# c\n: d\n; e : f", "a\nb\nc\nd\ne f"),
    ("a<br>b<br/>c<hr>d", "a\nb\nc\nd"),
    ("<div>a</div><p>b</p>c <span style='x {{y}}'>d</span>", "a\n\nb\nc d"),
    ("&amp;lt; &#65;&#x42; &nbsp; &mdash; &nosuch;", "&lt; AB — &nosuch;"),
    ("a &#xD800; &#1114112; b", "a � &#1114112; b"),
    ("<nowiki>[[a]] ''b''</nowiki> <code>c {{d}}</code>", "[[a]] b c"),
    ("a <math>x^2</math><gallery>\nFile:b\n</gallery> c", "a c"),
    ("__NOTOC__a __KEIN_INHALTSVERZEICHNIS__ b __init__", "a b __init__"),
    ("X ({{lang|y}}; born 1900) and Y ({{z}}) end ( , ) now", "X (born 1900) and Y end now"),
    ("a\n\n\n\n\nb   c\t d ", "a\n\nb c d"),
    ("{{never closed [[nor this", "{{never closed [[nor this"),
    ("", ""),
]


@pytest.mark.parametrize(("wikitext", "text"), STRIPPED)
def test_markup_is_removed_and_words_stay(wikitext: str, text: str) -> None:
    assert [part.text for part in sections(wikitext)] == ([text] if text else [])


def test_headings_open_sections_and_one_without_text_stays_in_those_below_it() -> None:
    wikitext = "lead\n== ''A'' [[x|y]] ==\n=== B ===\nb\n==== C ====\nc\n=== D ===\n== E ==\ne\n<div>\n== F ==\nf</div>"
    assert sections(wikitext) == (
        Section("", "lead"),
        Section("A y > B", "b"),
        Section("A y > B > C", "c"),
        Section("E", "e\n\nF\n\nf"),  # inside a tag
    )


@pytest.mark.parametrize("opening", ["{{", "[[", "{|", "<b>", "<ref>", "[http://a "])
def test_hundreds_of_brackets_that_never_close_are_not_tried_one_by_one(opening: str) -> None:
    with pytest.raises(WikitextError, match=r"[\d]+ brackets and tags are never closed"):
        sections(opening * 100_000)
    assert sections("a" + "<br>" * 2_000 + "b" + "<ref name='x' />" * 2_000)[0].text.endswith("b")


_pieces = (*"[[ ]] {{ }} {| |} | '' ''' <ref> </ref> > />".split(), "== ", " ==\n", "<b a=", "\n")
_wikitexts = st.lists(st.sampled_from(_pieces) | st.text(max_size=5), max_size=40).map("".join)


@given(_wikitexts)
def test_no_wikitext_is_fatal_and_no_section_is_blank(wikitext: str) -> None:
    for part in sections(wikitext):
        assert part.text == part.text.strip() != ""
        assert "\n" not in part.heading


@given(st.text("ab\n", max_size=30).map(str.encode), st.integers(1, 5), st.integers(0, 4))
def test_pieces_do_not_depend_on_how_the_bytes_arrive(data: bytes, size: int, keep: int) -> None:
    scanner = Scanner(data[i : i + size] for i in range(0, len(data), size))
    read = b""
    while scanner.peek(1):
        line = scanner.line
        assert line == 1 + read.count(b"\n")
        whole, found = data[len(read) :], b"ab" in data[len(read) :]
        end = whole.index(b"ab") + 2 if found else len(whole)
        piece = scanner.until(b"ab", keep)
        assert (piece.kept, piece.size, piece.found) == (whole[: min(end, keep + 2)], end, found)
        read += whole[:end]
    assert read == data
