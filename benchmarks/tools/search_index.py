"""How long an index of passages takes to write, to open and to search, and what memory and disk it takes.

    python benchmarks/tools/search_index.py [--passages 1000000] [--queries 2000] [--folder DIR] [--json]

The passages are made from a seed: 200,000 invented words whose frequencies fall as 1 / rank (Zipf), texts of 60 to 100
words, titles of 1 to 4 words, of which a sixth are drawn by the same frequencies (as in `History of the ...`) and the
others from the rarer words. They are written to a JSONL file, which `build_index` reads in a process of its own.

    indexing   seconds of that process, its Python's start included, and its largest resident memory; what it maps of
               the index's files counts as well
    opening    in a fresh process: from a path to an index that answers, imports included; the median of five
    queries    in two processes at once, each its own queries of 2 to 8 words, after 100 others: half are search terms
               (a title and rarer words of its text), half are drawn from the words of a passage as they stand, frequent
               ones and all, as in a question

The file and the index lie in the page cache when they are read. On a busy machine the wall times hold the waits for a
core, so the processor's time is given as well. Nothing is asserted; the goals stand beside the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Figures", "measure"]

_SEED, _VOCABULARY = 7, 200_000
_RARE = 1_000  # the rank from which the other words of a title are drawn
_SYLLABLES = [first + vowel for first in "b br d f g h k l m n p r s st t v z".split() for vowel in "aeiou"]
_BLOCK = 10_000
_WARM_UP = 100


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured; times of queries are in milliseconds, by kind."""

    passages: int
    generate_s: float
    index_s: float
    index_cpu_s: float  # of all its threads
    peak_rss_mb: float
    disk_mb: float
    segments: int
    open_s: float
    p50_ms: dict[str, float]
    p99_ms: dict[str, float]
    p50_cpu_ms: dict[str, float]
    p99_cpu_ms: dict[str, float]
    load_before: float  # processes that wanted a core, a minute's mean
    load_after: float


def _vocabulary() -> list[str]:
    draw = random.Random(_SEED)
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        words["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) + draw.choice(["", "", "n", "r", "l"])] = None
    return list(words)


def passages(count: int) -> Iterator[tuple[str, str]]:
    """Yield titles and texts; the first n do not depend on the count."""
    words = np.array(_vocabulary(), dtype=object)
    shares = np.cumsum(1 / np.arange(1, _VOCABULARY + 1))
    shares /= shares[-1]
    for block in range(0, count, _BLOCK):
        draw = np.random.default_rng((_SEED, block))
        lengths, title_lengths = draw.integers(60, 101, _BLOCK), draw.integers(1, 5, _BLOCK)
        text = words[np.searchsorted(shares, draw.random(lengths.sum()))]
        frequent = np.searchsorted(shares, draw.random(title_lengths.sum()))
        rare = draw.integers(_RARE, _VOCABULARY, title_lengths.sum())
        title = words[np.where(draw.random(title_lengths.sum()) < 1 / 6, frequent, rare)]
        ends, title_ends = np.cumsum(lengths), np.cumsum(title_lengths)
        for row in range(min(_BLOCK, count - block)):
            start, title_start = ends[row] - lengths[row], title_ends[row] - title_lengths[row]
            yield " ".join(title[title_start : title_ends[row]]).title(), " ".join(text[start : ends[row]])


def queries(seed: int, count: int) -> list[tuple[str, str]]:
    """Return queries with their kind, in turn: `term` and `question`."""
    draw = random.Random(seed)
    frequent = frozenset(_vocabulary()[:_RARE])
    out = []
    sample = list(passages(_BLOCK))
    for number in range(count):
        title, text = draw.choice(sample)
        size, words = draw.randint(2, 8), text.split()
        if number % 2:
            out.append(("question", " ".join(draw.sample(words, size))))
        else:
            rarer = [word for word in words if word not in frequent] or words
            term = [*title.split(), *draw.sample(rarer, min(len(rarer), 8))]
            out.append(("term", " ".join(term[:size])))
    return out


def _write(path: Path) -> None:
    from toolformer_core.tools.search.index_writer import build_index
    from toolformer_core.tools.search.passage_sources import open_source

    build_index(open_source(path / "passages.jsonl"), path / "index")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _print(json.dumps({"rss": usage.ru_maxrss * 1024, "cpu": usage.ru_utime + usage.ru_stime}))


def _open(path: Path) -> None:
    start = time.perf_counter()
    from toolformer_core.tools.search.search_index import SearchIndex

    SearchIndex(path / "index").search("a")
    _print(json.dumps({"seconds": time.perf_counter() - start}))


def _search(path: Path, seed: int, count: int) -> None:
    from toolformer_core.tools.search.search_index import SearchIndex

    index = SearchIndex(path / "index")
    asked = queries(seed, count + _WARM_UP)
    _print("ready")
    sys.stdin.readline()
    times: dict[str, list[tuple[float, float]]] = {"term": [], "question": []}
    for number, (kind, query) in enumerate(asked):
        start, cpu = time.perf_counter(), time.thread_time()
        index.search(query)
        if number >= _WARM_UP:
            times[kind].append((1000 * (time.perf_counter() - start), 1000 * (time.thread_time() - cpu)))
    _print(json.dumps(times))


def _run(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *map(str, arguments)], stdin=-1, stdout=-1, text=True)


def _answer(process: subprocess.Popen[str], line: str = "\n") -> dict[str, Any]:
    out, _ = process.communicate(line)
    if process.returncode:
        sys.exit(f"a process ended with {process.returncode}")
    answer: dict[str, Any] = json.loads(out)
    return answer


def measure(folder: Path, count: int, asked: int) -> Figures:
    """Make the passages in a folder, index them, and search."""
    load_before = os.getloadavg()[0]
    start = time.perf_counter()
    with (folder / "passages.jsonl").open("w", encoding="utf-8") as file:
        for title, text in passages(count):
            file.write(json.dumps({"title": title, "text": text}) + "\n")
    generate_s = time.perf_counter() - start
    _say(f"{count:,} passages made in {generate_s:.0f} s")
    start = time.perf_counter()
    written = _answer(_run("--role", "write", "--folder", folder))
    index_s = time.perf_counter() - start
    _say(f"indexed in {index_s:.0f} s")
    opened = [_answer(_run("--role", "open", "--folder", folder))["seconds"] for _ in range(5)]
    searching = [_run("--role", "search", "--folder", folder, "--seed", seed, "--queries", asked) for seed in (1, 2)]
    for process in searching:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    for process in searching:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [_answer(process, "") for process in searching]
    times = {kind: [pair for answer in answers for pair in answer[kind]] for kind in ("term", "question")}
    times["all"] = [*times["term"], *times["question"]]
    wall_50, cpu_50 = _percentiles(times, 50)
    wall_99, cpu_99 = _percentiles(times, 99)
    files = [file for file in (folder / "index").iterdir() if file.is_file()]
    return Figures(
        passages=count,
        generate_s=round(generate_s, 1),
        index_s=round(index_s, 1),
        index_cpu_s=round(written["cpu"], 1),
        peak_rss_mb=round(written["rss"] / 1e6, 1),
        disk_mb=round(sum(file.stat().st_size for file in files) / 1e6, 1),
        segments=sum(file.suffix == ".store" for file in files),
        open_s=round(statistics.median(opened), 4),
        p50_ms=wall_50,
        p99_ms=wall_99,
        p50_cpu_ms=cpu_50,
        p99_cpu_ms=cpu_99,
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
    )


def _percentiles(times: dict[str, list[tuple[float, float]]], share: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return a percentile of wall and of processor time by kind."""
    wall, cpu = (
        {kind: round(float(np.percentile([pair[column] for pair in pairs], share)), 3) for kind, pairs in times.items()}
        for column in (0, 1)
    )
    return wall, cpu


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _table(figures: Figures) -> str:
    rows = [
        ("passages", f"{figures.passages:,}", ""),
        ("indexing, s", f"{figures.index_s:.1f}", "< 90 for 1,000,000"),
        ("... of a processor", f"{figures.index_cpu_s:.1f}", ""),
        ("largest resident memory, MB", f"{figures.peak_rss_mb:.0f}", "< 1000"),
        ("on disk, MB, in segments", f"{figures.disk_mb:.0f}, {figures.segments}", ""),
        ("opening, s", f"{figures.open_s:.3f}", "< 0.1"),
        *(
            (f"query, ms, {name}: {kind}", f"{values[kind]:.2f}", goal if kind == "all" else "")
            for name, values, goal in (
                ("p50", figures.p50_ms, "< 1"),
                ("p50 of a processor", figures.p50_cpu_ms, ""),
                ("p99", figures.p99_ms, "< 10"),
                ("p99 of a processor", figures.p99_cpu_ms, ""),
            )
            for kind in values
        ),
        ("load before and after", f"{figures.load_before}, {figures.load_after}", ""),
    ]
    return "\n".join(f"{name:<40}{value:>12}   {goal}".rstrip() for name, value, goal in rows)


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=2_000, help="of each of the two processes")
    parser.add_argument("--folder", type=Path, help="keep file and index there; by default they are removed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", choices=("write", "open", "search"), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "write":
        _write(options.folder)
    elif options.role == "open":
        _open(options.folder)
    elif options.role == "search":
        _search(options.folder, options.seed, options.queries)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            figures = measure(folder, options.passages, options.queries)
        _print(_table(figures))
        if options.json:
            _print(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
