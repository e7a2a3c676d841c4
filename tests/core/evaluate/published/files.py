"""A made-up file in a published format with the items expected from it, and helpers to write and read such files."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from toolformer_core.evaluate.items import Item, RejectedRow


@dataclass(frozen=True, slots=True)
class Format:
    """A file of a benchmark."""

    task: str
    name: str
    text: str
    answers: list[tuple[str, ...]]  # of the items, in order
    rejected: list[tuple[int, str]] = field(default_factory=list)  # line and reason
    prompts: list[str] = field(default_factory=list)  # ends of the items' prompts, where they are to be looked at
    dates: list[str | None] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text, encoding="utf-8")
        return path


def lines(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n" for row in rows)


def packed(path: Path, how: str) -> Path:
    """Write a packed copy of a file of JSON lines."""
    data = path.read_bytes()
    if how == "parquet":
        out = path.with_suffix(".parquet")
        rows = [json.loads(line) for line in data.decode().splitlines()]
        names = dict.fromkeys(name for row in rows for name in row)
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), out)
        return out
    out = path.with_name(f"{path.name}.{how}")
    pack: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}
    out.write_bytes(pack[how](data))
    return out


def split(stream) -> tuple[list[Item], list[RejectedRow]]:
    every = list(stream)
    return [x for x in every if isinstance(x, Item)], [x for x in every if isinstance(x, RejectedRow)]
