"""`toolformer index`: what it prints, and how it goes on."""

import bz2
import io
import json
from pathlib import Path

import pytest

from cli.render.progress import IndexDisplay
from tests.support.commands import Run
from tests.support.corpus_formats import a_dump
from toolformer_core.tools.search.index_writer import IndexProgress, build_index
from toolformer_core.tools.search.passage_sources import Position, SourceIdentity, open_source
from toolformer_core.tools.search.search_index import SearchIndex
from toolformer_core.tools.wikisearch import WikiSearch


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "wiki-pages-articles.xml.bz2"
    path.write_bytes(bz2.compress(a_dump()))
    return path


def test_a_dump_is_indexed_and_then_found_done(run: Run, dump: Path, tmp_path: Path) -> None:
    said = run("index", "wikipedia", dump, "--out", tmp_path / "index")
    assert said.code == 0
    first, second = said.out.splitlines()
    assert first.startswith(
        f"the index in {tmp_path}/index is finished: 4 passages of wiki-pages-articles.xml.bz2, 0.0 MB"
    )
    assert second == "left out: other_namespace 1, redirect 1"
    response = WikiSearch(SearchIndex(tmp_path / "index")).run("paint mills")
    assert response.text == "Mira Holt > Life > Later years > She painted mills."  # type: ignore[union-attr]
    again = run("index", "wikipedia", dump, "--out", tmp_path / "index")
    assert again.code == 0
    assert again.out == said.out.replace("is finished", "is finished already")


def test_json(run: Run, dump: Path, tmp_path: Path) -> None:
    said = run("index", "wikipedia", dump, "--out", tmp_path / "index", "--limit", 2, "--json")
    assert (said.code, said.err) == (0, "")
    summary = json.loads(said.out)
    assert (summary["built"], summary["passages"], summary["limit"], summary["version"]) == (True, 2, 2, 1)
    assert summary["digest"] == SearchIndex(tmp_path / "index").digest
    again = json.loads(run("index", "wikipedia", dump, "--out", tmp_path / "index", "--limit", 2, "--json").out)
    assert again == summary | {"built": False}


def test_a_run_that_was_stopped_goes_on(run: Run, dump: Path, tmp_path: Path) -> None:
    def stop(progress: IndexProgress) -> None:
        if progress.position.records == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(open_source(dump), tmp_path / "index", commit_passages=1, on_progress=stop)
    said = run("index", "wikipedia", dump, "--out", tmp_path / "index")
    assert "going on after record 1; 3 passages indexed" in said.err  # the second, a redirect, was not committed
    assert "4 passages of wiki-pages-articles.xml.bz2" in said.out


def progress(records: int, passages: int, read: int) -> IndexProgress:
    return IndexProgress(SourceIdentity("jsonl", 1000, 0, ""), None, Position(records, read), passages, "", read)


def test_without_a_terminal_a_line_a_minute_says_how_far_it_is() -> None:
    now, out = 0.0, io.StringIO()
    display = IndexDisplay(1000, None, clock=lambda: now)
    display.console.file = out
    with display:
        display(progress(1, 10, 100))
        now = 60.0
        display(progress(30, 300, 400))
        display.poll()
        # 30 % in 60 s; the other 60 % take 120 s
        assert out.getvalue() == "300 passages indexed, 40% of the work; 2 min left\n"


def test_with_a_limit_the_passages_measure_the_work() -> None:
    out = io.StringIO()
    with IndexDisplay(1000, 20, clock=lambda: 0.0) as display:
        display.console.file = out
        display(progress(7, 15, 100))
    assert out.getvalue() == "going on after record 6; 15 passages indexed, 75% of the work\n"
