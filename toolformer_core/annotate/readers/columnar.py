"""Reads rows from Parquet and Arrow files, in batches; a value that cannot be decoded costs its row, not the file.

Binary values that are UTF-8 are texts, since Spark and Impala may write texts so; a map is a dict. The others stay.

Before a value is taken out of a batch, the batch's memory is checked, because an offset out of bounds would end the
process. pyarrow is imported on use. The module knows no column names and no JSON.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable

_BATCH = 256  # rows
_NO_VALUE = (ValueError, OverflowError, KeyError)  # bytes that are not text, dates out of range, unknown time zones


def parquet_rows(path: Path, columns: frozenset[str] | None) -> Iterator[RawRow | BadRow]:
    """Yield the rows of a Parquet file; only these columns are read, None for all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    done = 0
    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            all_columns = tuple(file.schema_arrow.names)
            names = [n for n in all_columns if columns is None or n in columns]
            for batch in file.iter_batches(batch_size=_BATCH, columns=names):
                _check_memory(batch)
                yield from _batch_rows(batch, done, all_columns)
                done += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:  # the last one: a column's name is damaged
        yield BadRow(done + 1, "truncated", str(exc)[:200])


def arrow_rows(path: Path, columns: frozenset[str] | None) -> Iterator[RawRow | BadRow]:
    """Yield the rows of an Arrow file, in its stream or file format; only these columns are read, None for all."""
    import pyarrow as pa

    done = 0
    try:
        with pa.memory_map(os.fsencode(path)) as file:
            try:
                batches = pa.ipc.open_stream(file)
            except pa.ArrowInvalid:  # it is in the file format, with a footer, not in the stream format
                reader = pa.ipc.open_file(file)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            for batch in batches:
                # by number: if a name occurs twice in a schema, the last one counts, as in Parquet and JSON
                numbers = [i for i, n in enumerate(batch.schema.names) if columns is None or n in columns]
                selected = batch.select(numbers)
                _check_memory(selected)
                for at in range(0, batch.num_rows, _BATCH):
                    yield from _batch_rows(selected.slice(at, _BATCH), done + at, tuple(batch.schema.names))
                done += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:  # the last one: a column's name is damaged
        yield BadRow(done + 1, "truncated", str(exc)[:200])


def _check_memory(batch: Any) -> None:
    """Check that all lengths, offsets and indices of a batch stay inside its memory.

    Strings are checked as bytes, because text that is not UTF-8 should cost a row and not the file.

    Raises:
        pyarrow.ArrowInvalid: one of them points outside.
    """
    for column in batch.columns:
        _as_binary(column).validate(full=True)


def _as_binary(column: Any) -> Any:
    """Return a column over the same memory, with binary in place of every string.

    A column that Arrow cannot view in this way (e.g. an extension type inside a list) is returned unchanged.
    """
    import pyarrow as pa

    if isinstance(column, pa.ExtensionArray):  # it cannot be viewed, but its storage can
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        column.indices.validate(full=True)
        return pa.DictionaryArray.from_arrays(column.indices, _as_binary(column.dictionary), safe=True)
    kind = _binary_type(column.type)
    if kind == column.type:
        return column
    try:
        return column.view(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column


def _binary_type(kind: Any) -> Any:
    """Return the type with binary in place of every string, and the storage type of an extension type."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _binary_type(kind.storage_type)
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_string_view(kind):
        return pa.binary_view()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_binary_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_binary_type(kind.key_type), _binary_type(kind.item_type), kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_binary_type(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_binary_type(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_binary_type(kind.value_type)), kind.list_size)
    return kind


def _batch_rows(batch: Any, done: int, columns: tuple[str, ...]) -> Iterator[RawRow | BadRow]:
    unread = [field.name for field in batch.schema if any(kind in str(field.type) for kind in ("binary", "map<"))]
    try:
        rows = batch.to_pylist()
    except _NO_VALUE:  # convert value by value to find the rows that fail
        for i in range(batch.num_rows):
            try:
                value = {name: _value(batch.column(c)[i]) for c, name in enumerate(batch.schema.names)}
                yield RawRow(done + i + 1, value | {n: _text_or_dict(value[n]) for n in unread}, columns=columns)
            except UnicodeDecodeError as exc:
                yield BadRow(done + i + 1, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(exc.object))
        return
    for i, row in enumerate(rows):
        yield RawRow(done + i + 1, row | {name: _text_or_dict(row[name]) for name in unread}, columns=columns)


def _text_or_dict(value: Any) -> Any:
    """Return a value with the bytes in it as texts, where they are UTF-8, and its maps as dicts."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value
    if isinstance(value, dict):
        return {key: _text_or_dict(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple) and isinstance(value[0][0], str | bytes):  # a map, as pyarrow gives it
            return {key if isinstance(key, str) else printable(key): _text_or_dict(inner) for key, inner in value}
        return [_text_or_dict(inner) for inner in value]
    return value


def _value(scalar: Any) -> Any:
    """Return the value of a cell; None if Python cannot represent it, e.g. the year 200,000."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raise
    except _NO_VALUE:
        return None
