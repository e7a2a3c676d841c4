r"""How many of a benchmark's items `build --decontaminate` finds in pages, and what it finds where none stands.

    python -m benchmarks.benchmark_items --pages C4.jsonl --items SVAMP.json nq=NQ-open.dev.jsonl \
        --without TEXTS.jsonl...

Of each benchmark, 200 questions are put into pages at random places: whole, their first half, with other case, with
other spaces. `words`: of them, those of which enough words are left to be found. The texts `--without` hold no item on
purpose; every one that is found in them is printed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.report import parser_of, say
from tasks.specs.decontamination import Decontamination, read_items
from toolformer_core.config import MIN_WORDS, NGRAM
from toolformer_core.shared_words import words_in

_ITEMS = 200


def _texts(paths: list[str]) -> Iterator[str]:
    """Yield the texts of JSON lines: `text`, or a question with its answer."""
    for path in paths:
        with Path(path).open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                yield row["text"] if "text" in row else f"{row['question']} {row['answer']}"


def main() -> None:
    """Count and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--pages", nargs="+", required=True)
    parser.add_argument("--items", nargs="+", required=True, help="as `--decontaminate` takes them")
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    chosen = random.Random(1)
    kinds: dict[str, Callable[[str], str]] = {
        "whole": str,
        "half": lambda text: " ".join(text.split()[: (len(text.split()) + 1) // 2]),
        "case": lambda text: "".join(chosen.choice((char.upper(), char.lower())) for char in text),
        "spaces": lambda text: re.sub(r"\s+", lambda _: chosen.choice(("\n", "\t", "  ", "\u00a0", "\n\n")), text),
    }
    benchmarks = Decontamination.of(given.items, NGRAM)
    if benchmarks is None:
        return
    finder = benchmarks.finder()
    pages = [text for text in _texts(given.pages) if not finder.find(text)]
    for name in dict(benchmarks.items):
        items = chosen.sample(
            [item for item in read_items(benchmarks.benchmarks, NGRAM) if item.benchmark == name], _ITEMS
        )
        for kind, change in kinds.items():
            found = enough = 0
            for item in items:
                page, planted = chosen.choice(pages).split(" "), change(item.texts[0])
                page.insert(chosen.randrange(len(page) + 1), planted)
                found += item.item_id in {one.item_id for one in finder.find(" ".join(page)) if one.benchmark == name}
                whole = len(words_in(item.texts[0]))
                enough += len(words_in(planted)) >= max(MIN_WORDS, min(NGRAM, whole))
            say(f"{name}, {kind}: {found} of {len(items)} found; words {enough}")
    texts = 0
    for texts, text in enumerate(_texts(given.without), start=1):  # noqa: B007
        for one in finder.find(text):
            say(f"{one.benchmark}, item {one.item_id} stands in a text: {one.shared}")
    say(f"{texts:,} texts were looked at that were to hold none")


if __name__ == "__main__":
    main()
