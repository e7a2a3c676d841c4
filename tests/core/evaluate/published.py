"""Small made-up files in every benchmark's published format (`published_files`), and the items expected from each."""

import gzip
import json
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from toolformer_core.evaluate.items import Item, RejectedRow

FOLDER = Path(__file__).with_name("published_files")


@dataclass(frozen=True, slots=True)
class Format:
    """A file of a benchmark."""

    key: str
    task: str
    file: str
    answers: list[list[str]]  # of the items, in order
    rejected: list[list[object]]  # line and reason
    prompts: list[str] = field(default_factory=list)  # ends of the items' prompts, where they are to be looked at
    dates: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return FOLDER / self.key / self.file

    def write(self, folder: Path) -> Path:
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(self.path, path))


def lines(*rows: object) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


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


FORMATS = {
    key: Format(key, **expected) for key, expected in tomllib.loads((FOLDER / "expected.toml").read_text()).items()
}
