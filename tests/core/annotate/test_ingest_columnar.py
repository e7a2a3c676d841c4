"""Parquet, Arrow and saved data sets as corpora; damaged memory ends a file and never the process."""

import datetime
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.core.annotate.corpora import documents, read, rejected, write
from toolformer_core.annotate.ingest import corpus_files
from toolformer_core.annotate.readers import files as readers
from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow
from toolformer_core.errors import CorpusError


def test_a_parquet_file_is_read_by_column_and_row(tmp_path):
    columns = {"text": [*(f"text {i}" for i in range(600)), None], "url": ["u"] * 601}
    columns["date"] = [datetime.datetime(2019, 4, 25, 12)] * 601
    columns["metadata"] = [{"url": "inner", "other": i} for i in range(601)]
    pq.write_table(pa.table(columns), tmp_path / "c.parquet", row_group_size=100)
    got = read(tmp_path / "c.parquet")
    assert [(d.text, d.line, d.url, d.created) for d in got[:600]] == [
        (f"text {i}", i + 1, "u", "2019-04-25") for i in range(600)
    ]
    assert (got[600].reason, got[600].line) == ("no_text", 601)
    assert documents(tmp_path / "c.parquet", url_column="metadata.url")[0].url == "inner"


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]
)
@pytest.mark.parametrize("name", ["c.parquet", "c.arrow"])
def test_texts_that_are_stored_as_bytes_are_read(tmp_path, name, kind):
    columns = {
        "text": pa.array(["Größe".encode(), b"caf\xe9", None, b"last"]).cast(kind),
        "url": pa.array([b"http://a.org/x", None, None, b"\xff"]).cast(kind),
        "created": pa.array([b"2019-04-25", None, None, b"\xff"]).cast(kind),
    }
    write(pa.table(columns), tmp_path / name)
    first, broken, missing, last = read(tmp_path)
    assert (first.text, first.url, first.created) == ("Größe", "http://a.org/x", "2019-04-25")
    assert (broken.reason, missing.reason) == ("not_utf8", "no_text")
    assert (last.text, last.url, last.created) == ("last", None, None)
    broken_date = pa.array([0, 2**62], pa.int64()).view(pa.timestamp("us"))  # rows are then taken value by value
    write(pa.table({"text": columns["text"][:2], "date": broken_date}), tmp_path / name)
    assert [getattr(row, "text", None) or row.reason for row in read(tmp_path)] == ["Größe", "not_utf8"]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_column_may_be_a_map(tmp_path, kind):
    maps = [[(b"lang", b"de"), (b"url", b"u"), (b"date_download", b"2019-04-25")], [(b"\xff", b"x")], [], None]
    if kind == pa.string():
        maps[1] = []
    column = pa.array(maps, pa.map_(pa.binary(), pa.binary())).cast(pa.map_(kind, kind))
    within = pa.StructArray.from_arrays([column], ["inner"])
    write(pa.table({"text": list("abcd"), "metadata": column, "nested": within}), tmp_path / "c.parquet")
    assert [(d.url, d.created) for d in documents(tmp_path)] == [("u", "2019-04-25")] + [(None, None)] * 3
    assert [d.url for d in documents(tmp_path, url_column="nested.inner.lang")] == ["de", None, None, None]
    write(pa.table({"body": list("abcd"), "metadata": column}), tmp_path / "c.parquet")
    assert rejected(tmp_path) == [(line, "no_text") for line in (1, 2, 3, 4)]  # with what the rows held, as JSON


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
    assert ended.stdout.splitlines() == [f"tensor {pairs}", "within [{'x': [1, 2]}, {'x': [3, 4]}]", f"json {words}"]


READ_TYPES = """
import sys, tempfile
from pathlib import Path
import pyarrow as pa
from toolformer_core.annotate.readers.files import rows_of
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
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 3], pa.int8()), texts)
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3, 4], pa.int32()), texts)
    for column, wanted in (  # the rows in which the first text stands are lost
        (dictionary, [None, "b", None, "d"]),
        (pa.FixedSizeListArray.from_arrays(texts, 2), [None, ["c", "d"]]),
        (lists, [None, ["c"], ["d"]]),
    ):
        write(pa.table({"x": column}), tmp_path / "c.arrow")
        found = list(readers.rows_of(tmp_path / "c.arrow", 1000))
        assert [row.value["x"] if isinstance(row, RawRow) else None for row in found] == wanted
        assert {row.reason for row in found if isinstance(row, BadRow)} == {"not_utf8"}


def test_an_index_that_leads_out_of_its_dictionary_ends_the_file(tmp_path):
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 100], pa.int32()), pa.array(["a", "b"]), safe=False)
    write(pa.table({"x": column}), tmp_path / "c.arrow")
    [only] = readers.rows_of(tmp_path / "c.arrow", 1000)
    assert (only.line, only.reason) == (1, "truncated")


@pytest.mark.parametrize("name", ["c.arrow", "c.parquet"])
def test_of_two_columns_of_one_name_the_last_is_read_and_a_file_that_cannot_be_opened_is_rejected(tmp_path, name):
    write(pa.Table.from_arrays([pa.array(["first"]), pa.array(["last"])], names=["text", "text"]), tmp_path / name)
    assert [d.text for d in documents(tmp_path)] == ["last"]
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
    rows = [("e", "test", 1), ("a", "train", 1), ("b", "train", 2), ("c", "train", 3)]
    assert [(d.text, d.source, d.line) for d in documents(tmp_path / "d")] == [
        (text, f"{split}/data-00000-of-00001.arrow", line) for text, split, line in rows
    ]
    assert [d.text for d in documents(tmp_path / "d" / "train")] == ["a", "b", "c"]


def test_a_data_set_that_lists_a_missing_file_is_refused(tmp_path):
    save_like_datasets(tmp_path / "d", ["a"])
    (tmp_path / "d" / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(CorpusError, match="which is missing"):
        corpus_files(tmp_path / "d")
