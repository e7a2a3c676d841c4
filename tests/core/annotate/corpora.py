"""Writes small corpora and reads them: what the tests of ingest share."""

import json
from hashlib import shake_128

import pyarrow as pa
import pyarrow.parquet as pq

from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.records import Document, Rejection


def read(path, **config):
    return list(read_corpus(path, IngestConfig(**config)))


def documents(path, **config):
    return [r for r in read(path, **config) if isinstance(r, Document)]


def rejected(path, **config):
    return [(r.line, r.reason) for r in read(path, **config) if isinstance(r, Rejection)]


def lines(*values):
    return "".join(json.dumps(v) + "\n" for v in values).encode()


def incompressible(count):
    """Texts of 400 letters and digits that take half as much room compressed."""
    return [f"Text {i}, {shake_128(str(i).encode()).hexdigest(200)}." for i in range(count)]


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
