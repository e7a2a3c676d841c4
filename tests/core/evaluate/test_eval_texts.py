"""Texts for perplexity: WikiText in articles, any other text, any corpus."""

import pytest

from tests.core.evaluate.published import lines, split
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.tasks import read, task_named

WIKI = """ = Old mill =

 The old mill is a mill .

 = = History = =

 It was built with an inductance L
 = 1 henry and capacitance C =
 1 farad .
 = Reed ( plant ) =
 The reed grows .
"""
ARTICLES = [
    " = Old mill =\n\n The old mill is a mill .\n\n = = History = =\n\n It was built with an inductance L\n"
    " = 1 henry and capacitance C =\n 1 farad .",
    " = Reed ( plant ) =\n The reed grows .",
]


def texts(path=None, limit=None):
    return split(read(task_named("perplexity"), path, limit))


def test_wikitext_is_cut_into_articles(tmp_path):
    path = tmp_path / "wiki.test.raw"
    path.write_text(WIKI)
    items, rejected = texts(path)
    assert [i.prompt for i in items] == ARTICLES
    assert [i.line for i in items] == [1, 10]
    assert {i.answers for i in items} == {()}
    assert rejected == []
    assert len(texts(path, limit=1)[0]) == 1


def test_wikitext_in_rows_is_joined_first(tmp_path, hub):
    rows = [{"text": f"{line}\n" if line else ""} for line in WIKI.split("\n")]
    path = tmp_path / "wiki.jsonl"
    path.write_text(lines(*rows))
    assert [i.prompt for i in texts(path)[0]] == ARTICLES
    hub.answers["Salesforce/wikitext"] = rows
    assert [i.prompt for i in texts()[0]] == ARTICLES


def test_any_other_text_is_one_and_any_corpus_is_read_as_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One text.\n\nIn two parts.\n")
    assert [i.prompt for i in texts(path)[0]] == ["One text.\n\nIn two parts.\n"]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(lines({"text": "one", "timestamp": "2020-01-30"}, {"no": 1}, {"text": "two"}, {"text": "two"}))
    items, rejected = texts(corpus)
    assert [(i.prompt, i.date) for i in items] == [("one", "2020-01-30"), ("two", None)]
    assert [(r.line, r.reason) for r in rejected] == [(2, "no_text"), (4, "duplicate")]


def test_texts_that_are_none(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match="not_utf8"):
        read(task_named("perplexity"), path)
    path.write_bytes(b" \n")
    with pytest.raises(CorpusError, match="blank"):
        read(task_named("perplexity"), path)
    with pytest.raises(CorpusError, match="no such"):
        read(task_named("perplexity"), tmp_path / "none")
