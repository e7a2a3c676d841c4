"""The files of a corpus: their digests, kept by path, size and time of change, and the parts in which they are read.

The parts follow from the files alone: files that follow each other are read together up to the size of a block, a
larger file of JSON lines by blocks; any other large file is one part.
"""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import orjson

from tasks.specs.build_spec import BuildSpec
from toolformer_core.annotate.ingest import CorpusPart, corpus_files, source_of
from toolformer_core.annotate.readers.files import is_divisible
from toolformer_core.annotate.readers.lines import LineRange
from toolformer_core.records import digest_of
from warehouse.files.base import put_local
from warehouse.store import Store

DIGESTS = "corpus-digests.json"  # in the data folder: path -> size, time of change, digest, line feeds of each block
_BLOCK = 1 << 26  # bytes
_READ = 1 << 20
_THREADS = min(8, os.cpu_count() or 1)

_Entry: TypeAlias = tuple[int, int, str, list[int]]
_entries: dict[str, _Entry] = {}


def corpus_digest(corpus: str, store: Store) -> str:
    """Return the digest of a corpus's files and their names in rows, or raise a CorpusError if there is none."""
    root = Path(corpus)
    entries = _digested(corpus_files(root), store)
    return digest_of("corpus", *(part for file, entry in entries.items() for part in (source_of(root, file), entry[2])))


def keep_digests(corpus: str, store: Store) -> None:
    """Keep the digests of a corpus's files in the data folder, for later processes."""
    place = store.local_folder / DIGESTS
    kept = _kept(place)
    entries = _digested(corpus_files(Path(corpus)), store)
    known = kept | {str(file.absolute()): entry for file, entry in entries.items()}
    if known != kept:
        place.parent.mkdir(parents=True, exist_ok=True)  # of a URL, if the catalog is not there either
        put_local(place, orjson.dumps(known))


def _kept(place: Path) -> dict[str, _Entry]:
    read = orjson.loads(place.read_bytes()) if place.is_file() else {}
    return {path: (size, modified_ns, digest, feeds) for path, (size, modified_ns, digest, feeds) in read.items()}


def _digested(files: list[Path], store: Store) -> dict[Path, _Entry]:
    stamps = {file: (stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]}
    paths = {file: str(file.absolute()) for file in files}

    def changed() -> list[Path]:
        return [file for file in files if _entries.get(paths[file], ())[:2] != stamps[file]]

    if changed():
        _entries.update(_kept(store.local_folder / DIGESTS))
    new = changed()
    blocks = [(file, start) for file in new for start in range(0, stamps[file][0] or 1, _BLOCK)]
    results: dict[Path, list[tuple[str, int]]] = {file: [] for file in new}
    with ThreadPoolExecutor(_THREADS) as threads:
        for (file, _), result in zip(blocks, threads.map(_digest_block, blocks), strict=True):
            results[file].append(result)
    for file, own in results.items():
        digest = digest_of("file", *(block_digest for block_digest, _ in own))
        _entries[paths[file]] = *stamps[file], digest, [feeds for _, feeds in own]
    return {file: _entries[paths[file]] for file in files}


def _digest_block(block: tuple[Path, int]) -> tuple[str, int]:
    path, start = block
    digest, feeds = hashlib.blake2b(digest_size=16), 0
    with path.open("rb") as file:
        file.seek(start)
        for _ in range(_BLOCK // _READ):
            data = file.read(_READ)
            digest.update(data)
            feeds += data.count(b"\n")
    return digest.hexdigest(), feeds


@dataclass(frozen=True, slots=True)
class PartSpec:
    build: BuildSpec
    part: CorpusPart
    digest: str  # of the part's files, of their names and of the range

    @property
    def run_id(self) -> str:
        return self.build.run_id

    def store(self) -> Store:
        return self.build.store()


def part_specs(spec: BuildSpec) -> list[PartSpec]:
    root = Path(spec.corpus)
    entries = _digested(corpus_files(root), spec.store())

    def digest(part: CorpusPart) -> str:
        names = (text for file in part.files for text in (source_of(root, file), entries[file][2]))
        return digest_of("part", *names, *map(str, (part.lines.start, part.lines.end) if part.lines else ()))

    return [PartSpec(spec, part, digest(part)) for part in _parts(entries)]


def _parts(entries: dict[Path, _Entry]) -> Iterator[CorpusPart]:
    together: list[Path] = []
    size = 0
    for file, (file_size, _, _, feeds) in entries.items():
        if together and size + file_size > _BLOCK:
            yield CorpusPart(tuple(together))
            together, size = [], 0
        if file_size > _BLOCK and is_divisible(file):
            before = 0
            for number, block_feeds in enumerate(feeds):
                yield CorpusPart((file,), LineRange(number * _BLOCK, (number + 1) * _BLOCK, before))
                before += block_feeds
            continue
        together.append(file)
        size += file_size
    if together:
        yield CorpusPart(tuple(together))
