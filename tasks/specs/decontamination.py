"""The benchmarks that a corpus must not hold: which files were named, and what finds their items.

A name is `svamp=PATH` (items of a task), `SVAMP.json` (the same), `small-world` (a task's own items), or any other
text file, of which each line is an item.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

from toolformer_core.errors import CorpusError, UsageError
from toolformer_core.evaluate.contamination import ItemFinder, ItemTexts
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.tasks import read, task_named, tasks
from toolformer_core.records import digest_of


@dataclass(frozen=True, slots=True)
class BenchmarkFile:
    name: str
    task: str  # "": each line of the file is an item
    path: str | None  # absolute; None: the task's own items


@dataclass(frozen=True, slots=True)
class Decontamination:
    """Benchmarks whose items documents must not share words in a row with."""

    benchmarks: tuple[BenchmarkFile, ...]
    ngram: int
    digest: str  # of the items' texts, the benchmarks' names and `ngram`
    items: tuple[tuple[str, int], ...]  # name and number of items of each benchmark
    calls_only: bool = False  # documents stay, without the calls near shared words

    @classmethod
    def of(cls, given: Sequence[str], ngram: int, *, calls_only: bool = False) -> Self | None:
        """Return what is to be kept out (None: nothing); a UsageError or CorpusError names what cannot be read."""
        if not given:
            return None
        benchmarks = tuple(map(_named, given))
        items = [item for one in benchmarks for item in _items_of(one, ngram)]
        counts = Counter(item.benchmark for item in items)
        return cls(benchmarks, ngram, _digest(items, ngram), tuple(counts.items()), calls_only)

    def finder(self) -> ItemFinder:
        """Return what finds the items, read once a process, or raise a UsageError if they have changed meanwhile."""
        with _READING:
            return _finder(self)


_READING = threading.Lock()


@lru_cache(maxsize=1)
def _finder(benchmarks: Decontamination) -> ItemFinder:
    items = [item for one in benchmarks.benchmarks for item in _items_of(one, benchmarks.ngram)]
    if _digest(items, benchmarks.ngram) != benchmarks.digest:
        names = ", ".join(one.path or one.task for one in benchmarks.benchmarks)
        raise UsageError(f"{names}: the items have changed since the build began; run the same build again")
    return ItemFinder(items, benchmarks.ngram)


def _named(given: str) -> BenchmarkFile:
    name, equals, path = given.partition("=")
    if equals and "/" not in name:
        return BenchmarkFile(task_named(name).name, name, _absolute(path))
    known, file = tasks(), Path(given)
    if given in known:
        return BenchmarkFile(given, given, None)
    if (task := file.name.lower().replace("_", "-").split(".")[0]) in known:
        return BenchmarkFile(task, task, _absolute(given))
    if file.suffix.lower() != ".txt":
        raise UsageError(
            f"--decontaminate {given}: which benchmark is it? Write TASK={given}; the tasks are {', '.join(known)}. "
            "A file of lines of text ends in .txt"
        )
    return BenchmarkFile(file.stem, "", _absolute(given))


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _items_of(benchmark: BenchmarkFile, ngram: int) -> Iterator[ItemTexts]:
    path = Path(benchmark.path) if benchmark.path else None
    if benchmark.task:
        task = task_named(benchmark.task)
        rows = read(task, path)
        yield from (ItemTexts.of(benchmark.name, task.form, row, ngram) for row in rows if isinstance(row, Item))
    elif path is not None:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as exc:
            raise CorpusError(f"{path} cannot be read as lines of text: {exc}") from exc
        yield from (ItemTexts(benchmark.name, str(n), (line,)) for n, line in enumerate(lines, start=1) if line.strip())


def _digest(items: Iterable[ItemTexts], ngram: int) -> str:
    return digest_of("benchmarks", str(ngram), *(digest_of(one.benchmark, one.item_id, *one.texts) for one in items))
