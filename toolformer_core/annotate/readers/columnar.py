"""Reads rows from Parquet and Arrow files, in batches; a value that cannot be decoded costs its row, not the file.

Binary values that are UTF-8 are texts, since Spark and Impala may write texts so; a map is a dict. Before a value is
taken out of a batch, the batch's memory is checked: an offset out of bounds would end the process.
"""

import os
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from toolformer_core.annotate.readers.raw_rows import BadRow, RawRow, printable

_BATCH = 256  # rows
_NO_VALUE = (ValueError, OverflowError, KeyError)  # bytes that are not text, dates out of range, unknown time zones


def parquet_rows(path: Path, columns: frozenset[str] | None) -> Iterator[RawRow | BadRow]:
    """Yield the rows of a Parquet file; only these columns are read, None for all."""
    import pyarrow.parquet as pq

    def batches() -> Iterator[tuple[Any, tuple[str, ...]]]:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            names = tuple(file.schema_arrow.names)
            some = [n for n in names if columns is None or n in columns]
            yield from zip(file.iter_batches(batch_size=_BATCH, columns=some), repeat(names), strict=False)

    return _rows_of(batches())


def arrow_rows(path: Path, columns: frozenset[str] | None) -> Iterator[RawRow | BadRow]:
    """Yield the rows of an Arrow file, in its stream or file format; only these columns are read, None for all."""
    import pyarrow as pa

    def batches() -> Iterator[tuple[Any, tuple[str, ...]]]:
        with pa.memory_map(os.fsencode(path)) as file:
            try:
                opened = pa.ipc.open_stream(file)
            except pa.ArrowInvalid:  # it is in the file format, with a footer, not in the stream format
                reader = pa.ipc.open_file(file)
                opened = map(reader.get_batch, range(reader.num_record_batches))
            for batch in opened:
                # by number: if a name occurs twice in a schema, the last one counts, as in Parquet and JSON
                numbers = [i for i, n in enumerate(batch.schema.names) if columns is None or n in columns]
                yield batch.select(numbers), tuple(batch.schema.names)

    return _rows_of(batches())


def _rows_of(batches: Iterator[tuple[Any, tuple[str, ...]]]) -> Iterator[RawRow | BadRow]:
    import pyarrow as pa

    done = 0
    try:
        for batch, columns in batches:
            for column in batch.columns:  # lengths, offsets and indices must stay inside its memory
                _as_binary(column).validate(full=True)
            for at in range(0, batch.num_rows, _BATCH):
                yield from _batch_rows(batch.slice(at, _BATCH), done + at, columns)
            done += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:  # the last one: a column's name is damaged
        yield BadRow(done + 1, "truncated", str(exc)[:200])


def _as_binary(column: Any) -> Any:
    """Return a column with binary in place of every string, where Arrow can view it so: bad text costs a row."""
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
    if kind in (pa.string(), pa.large_string(), pa.string_view()):
        return {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind, pa.binary_view())
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_binary_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_binary_type(kind.key_type), _binary_type(kind.item_type), kind.keys_sorted)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        values = kind.value_field.with_type(_binary_type(kind.value_type))
        if pa.types.is_large_list(kind):
            return pa.large_list(values)
        return pa.list_(values, kind.list_size if pa.types.is_fixed_size_list(kind) else -1)
    return kind


def _batch_rows(batch: Any, done: int, columns: tuple[str, ...]) -> Iterator[RawRow | BadRow]:
    unread = [field.name for field in batch.schema if any(kind in str(field.type) for kind in ("binary", "map<"))]
    try:
        rows = batch.to_pylist()
    except _NO_VALUE:  # convert value by value to find the rows that fail
        rows = None
    for i in range(batch.num_rows):
        line = done + i + 1
        try:
            row = rows[i] if rows else {n: _value(batch.column(c)[i]) for c, n in enumerate(batch.schema.names)}
            yield RawRow(line, row | {name: _text_or_dict(row[name]) for name in unread}, columns=columns)
        except UnicodeDecodeError as exc:
            yield BadRow(line, "not_utf8", f"byte {exc.start}: {exc.reason}", printable(exc.object))


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
