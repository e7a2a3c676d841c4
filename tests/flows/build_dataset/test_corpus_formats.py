"""One small corpus as WARC, WET, CSV, a folder of texts and a Wikipedia dump, each through a whole build."""

import html
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from tests.support.corpus_formats import COMPRESS, delimited, dump, page, response, wet, write_texts
from tests.support.small_builds import small_build
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.records import Document
from warehouse.queries import rows_of, stats

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]


def _csv(folder: Path, texts: list[str]) -> tuple[Path, dict[str, int]]:
    (folder / "c.csv.xz").write_bytes(COMPRESS[".xz"](delimited(texts, source="tests") + b"one field\n"))
    return folder / "c.csv.xz", {"wrong_columns": 1}


def _texts(folder: Path, texts: list[str]) -> tuple[Path, dict[str, int]]:
    write_texts(folder / "texts", texts)
    (folder / "texts" / "latin.txt").write_bytes(b"caf\xe9")
    return folder / "texts", {"not_utf8": 1}


def _wet(folder: Path, texts: list[str]) -> tuple[Path, dict[str, int]]:
    (folder / "c.warc.wet.gz").write_bytes(COMPRESS[".gz"](wet([*texts, texts[0]], "http://a.org/")))
    return folder, {"duplicate": 1}


def _warc(folder: Path, texts: list[str]) -> tuple[Path, dict[str, int]]:
    pages = (f"<nav>Menu</nav><article><p>{html.escape(text)}</p></article>".encode() for text in texts)
    records = [response(f"http://a.org/{i}", one) for i, one in enumerate(pages)]
    records += [response("http://a.org/gone", b"", status="410 Gone"), response("http://a.org/cut", b"x" * 999)[:-99]]
    (folder / "c.warc.gz").write_bytes(b"".join(map(COMPRESS[".gz"], records)))
    return folder, {"http_status": 1, "truncated": 1}


def _dump(folder: Path, texts: list[str]) -> tuple[Path, dict[str, int]]:
    pages = [page(f"Article {i}", f"<nowiki>{text}</nowiki><ref>Source.</ref>") for i, text in enumerate(texts)]
    pages += [page("Other", "#REDIRECT [[Article 1]]", redirect="Article 1"), page("Talk:Article 1", "Hm.", ns=1)]
    (folder / "dewiki-pages-articles.xml.bz2").write_bytes(COMPRESS[".bz2"](dump(*pages)))
    return folder, {"other_namespace": 1, "redirect": 1}


@pytest.mark.parametrize("written", [_csv, _texts, _wet, _warc, _dump])
def test_a_build_reads_it_whole_and_loses_no_row(
    prefect_server: None,
    few_documents: Path,
    tmp_path: Path,
    written: Callable[[Path, list[str]], tuple[Path, dict[str, int]]],
) -> None:
    rows = read_corpus(few_documents, IngestConfig(limit=8))
    texts = [" ".join(row.text.split()) for row in rows if isinstance(row, Document)]  # as a browser shows them
    (folder := tmp_path / "corpus").mkdir()
    corpus, rejected = written(folder, texts)
    result = run_build(small_build(corpus, tmp_path / "data", tools=["calculator"]))
    found = stats(result.snapshot)
    assert found.conserved
    ingest = next(balance for balance in found.balances if balance.stage == "ingest")
    assert (ingest.rows_in, ingest.kept, ingest.failed) == (8 + sum(rejected.values()), 8, rejected)
    expected = [f"Article {i}\n\n{text}" for i, text in enumerate(texts)] if written is _dump else texts
    assert sorted(row["text"] for row in rows_of(result.snapshot, "SELECT text FROM documents")) == sorted(expected)
    assembled = next(
        balance for balance in found.balances if (balance.stage, balance.unit) == ("assemble", "documents")
    )
    assert assembled.rows_in == 8
