"""An index of passages on disk, which processes open in milliseconds and share: its files are mapped into memory.

The same passages give the same results as a `PassageIndex`, but for the last decimal of a score.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from toolformer_core.errors import UsageError
from toolformer_core.tools.search.maxscore import MaxScore
from toolformer_core.tools.search.passages import TOKENIZER, Hit, PassageSearch, stored_passage

FORMAT_VERSION = 1
INFO, PROGRESS = "index.json", "progress.json"


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """What `index.json` says of a finished index."""

    version: int  # `FORMAT_VERSION`
    source: str  # name of the file that was indexed
    identity: dict[str, Any]  # `SourceIdentity`
    limit: int | None  # the most passages to index, if there was one
    passages: int
    digest: str  # of the passages in order, the version and the tokenizer; the same on every machine
    tokenizer: str
    left_out: dict[str, int]  # pages of the source without passages, by the reason
    created: str  # ISO date and time, UTC
    files: dict[str, int] = field(default_factory=dict)  # tantivy's files and their bytes


def read_info(folder: Path) -> IndexInfo:
    """Return what `index.json` says of a finished index whose files are there and whole; else a `UsageError`."""
    path = folder / INFO
    if not path.is_file():
        if (folder / PROGRESS).is_file():
            raise UsageError(f"the index in {folder} is not finished: run the same toolformer index command again")
        raise UsageError(
            f"no search index in {folder}; make one: toolformer index wikipedia SRC --out {quote(str(folder))}"
        )
    try:
        info = IndexInfo(**json.loads(path.read_bytes()))
        sizes = dict(info.files)
    except (OSError, ValueError, TypeError, RecursionError) as exc:
        raise UsageError(f"{path} is damaged ({exc}); remove {folder} and make the index again") from exc
    if info.version != FORMAT_VERSION or info.tokenizer != TOKENIZER:
        raise UsageError(
            f"the index in {folder} has format {info.version}, this program reads {FORMAT_VERSION}; make it again"
        )
    for name, size in sizes.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            state = "has another size" if file.is_file() else "is missing"
            raise UsageError(f"the index in {folder} is damaged: {name} {state}; copy it again, or make it again")
    return info


class SearchIndex(PassageSearch):
    """BM25 over the passages of a folder that `index_writer.build_index` wrote; it is opened on first use."""

    @cached_property
    def info(self) -> IndexInfo:
        return read_info(self.path)

    @cached_property
    def _opened(self) -> MaxScore:
        return _open(self.path, self.info)

    @property
    def digest(self) -> str:
        return self.info.digest

    def load(self) -> int:
        return int(self._opened.searcher.num_docs)

    def _best(self, words: list[str], limit: int, title_boost: float) -> list[Hit]:
        best = self._opened.best(words, {"title": title_boost}, limit)
        return [Hit(stored_passage(self._opened.searcher, address, row), score) for score, row, address in best]


def _open(folder: Path, info: IndexInfo) -> MaxScore:
    import tantivy

    try:
        with _place_for_locks(folder, info) as place:
            index = tantivy.Index.open(str(place))
            index.config_reader("manual")  # a finished index does not change: nothing is to look for that
            searcher = index.searcher()  # maps all files
    except (ValueError, OSError) as exc:
        raise UsageError(f"the index in {folder} cannot be opened ({exc}); make it again") from exc
    if searcher.num_docs != info.passages:
        raise UsageError(
            f"the index in {folder} is damaged: it holds {searcher.num_docs} passages, not {info.passages}; make it "
            "again"
        )
    return MaxScore(index, searcher)


@contextmanager
def _place_for_locks(folder: Path, info: IndexInfo) -> Iterator[Path]:
    """Yield a folder that has the index's files and can be written, as tantivy takes a lock there even to read."""
    if os.access(folder, os.W_OK):
        yield folder
        return
    # A thread of tantivy that had begun to look for changes may still put a lock there while the folder is removed.
    with tempfile.TemporaryDirectory(prefix="toolformer-index-", ignore_cleanup_errors=True) as links:
        for name in info.files:
            (Path(links) / name).symlink_to((folder / name).resolve())
        yield Path(links)
