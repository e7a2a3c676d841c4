"""How often the passages that QA reads hold an accepted answer: recall at 1 and at 5.

    python benchmarks/tools/retrieval.py --passages passages.jsonl --questions NQ-open.dev.jsonl [--limit N] [--json]

The passages are any source that `toolformer index wikipedia` reads, or a folder that it wrote; the questions a file
that `toolformer evaluate --task nq` reads. A question is put to the index as QA puts it, and a passage counts if its
title or text holds an accepted answer by the evaluation's rule (`toolformer_core/evaluate/scoring.py`), at any place.

    recall@1, @5   share of the questions with such a passage among the best one, five; Wilson's 95 % interval
    no passage     share of the questions for which nothing is found

A passage may hold an answer by chance, and where it holds it the reader may miss it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.scoring import within_first_words
from toolformer_core.evaluate.tasks import read, task_named
from toolformer_core.tools.qa import QA
from toolformer_core.tools.search.index_writer import build_index
from toolformer_core.tools.search.passage_sources import open_source
from toolformer_core.tools.search.passages import PassageSearch
from toolformer_core.tools.search.search_index import SearchIndex

__all__ = ["DEPTHS", "Recall", "recall"]

DEPTHS = (1, 5)
_ANYWHERE = 1_000_000  # words of a text that are looked at


@dataclass(frozen=True, slots=True)
class Recall:
    """The share of questions with an answer among the best passages, and its interval."""

    depth: int
    questions: int
    found: int
    share: float
    low: float
    high: float


def recall(index: PassageSearch, questions: Path, limit: int | None = None) -> tuple[list[Recall], int]:
    """Return the recall at each depth, and for how many questions nothing is found."""
    from scipy.stats import binomtest

    qa = QA(index, passages=max(DEPTHS))
    items = [item for item in read(task_named("nq"), questions) if isinstance(item, Item)][:limit]
    ranks: list[int | None] = []  # of the first passage with an answer, from 1
    nothing = 0
    for number, item in enumerate(items):
        if number % 500 == 0:
            sys.stderr.write(f"{number} of {len(items)} questions\n")
        hits = qa.hits(item.prompt.partition(": ")[2])  # without the instruction to a model
        nothing += not hits
        texts = ((hit.passage.title, hit.passage.text) for hit in hits)
        holding = (rank for rank, parts in enumerate(texts, start=1) if any(_holds(item, part) for part in parts))
        ranks.append(next(holding, None))
    found = [sum(rank is not None and rank <= depth for rank in ranks) for depth in DEPTHS]
    intervals = [binomtest(n, len(items)).proportion_ci(0.95, method="wilson") for n in found]
    return [
        Recall(depth, len(items), n, n / len(items), float(interval.low), float(interval.high))
        for depth, n, interval in zip(DEPTHS, found, intervals, strict=True)
    ], nothing


def _holds(item: Item, text: str) -> bool:
    return within_first_words(item.answers, text, _ANYWHERE)


def main() -> None:
    """Measure and print the recall."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--passages", type=Path, required=True, help="a source of passages, or the folder of an index")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="ask at most this many questions")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.passages
        if not folder.is_dir():
            folder = Path(temporary) / "index"
            build_index(open_source(options.passages), folder)
        index = SearchIndex(folder)
        rows, nothing = recall(index, options.questions, options.limit)
        passages = index.load()
    lines = [f"{passages:,} passages, {rows[0].questions:,} questions, nothing found for {nothing:,}"]
    lines += [f"recall@{r.depth}   {r.share:6.1%}   [{r.low:.1%}, {r.high:.1%}]   {r.found:,}" for r in rows]
    if options.json:
        figures = {"passages": passages, "nothing": nothing, "recall": [asdict(row) for row in rows]}
        lines.append(json.dumps(figures))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
