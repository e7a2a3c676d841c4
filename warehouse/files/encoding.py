"""The bytes of the store's files: Parquet for data, and a JSON envelope with a digest for every small record.

Equal tables and equal records give equal bytes (for one version of pyarrow).
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.commits import DataFile, canonical_json, digest
from warehouse.errors import CorruptDataError, StoreError

INVALID = (KeyError, TypeError, ValueError, AttributeError)  # what parsing a damaged record can raise

_ROW_GROUP = 64 * 1024  # rows


def encode_parquet(table: pa.Table) -> bytes:
    """Return a table as Parquet; floats without statistics, which leave NaN out: DuckDB trusts them."""
    sink = pa.BufferOutputStream()
    described = [column.name for column in table.schema if not pa.types.is_floating(column.type)]
    layout: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "row_group_size": _ROW_GROUP}
    pq.write_table(table, sink, write_statistics=described, **layout)
    return bytes(sink.getvalue().to_pybytes())


def decode_parquet(data: bytes, columns: list[str] | None, place: str) -> pa.Table:
    """Return the rows of a Parquet file: all columns, or these in this order; messages name its `place`.

    A CorruptDataError says that the bytes are not Parquet, a StoreError that there is no such column.
    """
    try:
        reader = pq.ParquetFile(pa.BufferReader(data))
        unknown = [name for name in columns or () if name not in reader.schema_arrow.names]
        if unknown:
            raise StoreError(f"{place} has no column {', '.join(unknown)}")
        table = reader.read(columns=columns)
        return table.select(columns) if columns is not None else table
    except (pa.ArrowException, OSError) as exc:
        raise CorruptDataError(f"{place} cannot be read as Parquet: {exc}") from exc


def check_data(file: DataFile, data: bytes) -> str:
    """Return how a data file's bytes differ from what its commit says, as the end of a sentence; "" if they do not."""
    if len(data) != file.bytes:
        return f"is truncated or altered: it has {len(data):,} bytes, but its commit says {file.bytes:,}"
    return "is altered: its digest is not the one in its commit" if digest(data) != file.digest else ""


def encode_record(path: str, value: Mapping[str, Any]) -> bytes:
    """Return a small record in its envelope; raise `StoreError` if it is not JSON."""
    try:
        envelope = {"digest": digest(canonical_json(dict(value))), "value": dict(value)}
        options = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(envelope, option=options)
    except orjson.JSONEncodeError as exc:
        raise StoreError(f"{path}: not a JSON value: {exc}") from exc


def decode_record(data: bytes) -> dict[str, Any] | None:
    """Return the record in an envelope; None if it is truncated or altered."""
    with contextlib.suppress(*INVALID):
        envelope = orjson.loads(data)
        value = envelope["value"]
        if isinstance(value, dict) and digest(canonical_json(value)) == envelope["digest"]:
            return value
    return None
