"""Near-duplicates that `build --deduplicate` finds, beside datatrove's MinHash on the same texts and exact counts.

    python -m benchmarks.near_duplicates TEXTS.jsonl... [--documents 100000] [--datatrove PYTHON]

PYTHON has datatrove==0.10.1, spacy, orjson, tokenizers and xxhash<4. Documents of some 200 words are made of the files'
sentences at random. A tenth are copies, in five equal parts: a word was exchanged with a chance of 1, 2, 5, 10 or 20 %.

    found      share of copies of which they or their original are dropped, by that chance
    alike      of a sample, documents that share 0.8 of all five-word runs with another: of how many one alone is left
    unlike     ... that share 0.5 with no other: how many are dropped
    cpu_s, mb  for a million documents, of a child process: its memory with all of them less that with a fifth
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

from benchmarks.report import parser_of, print_json
from tasks.stages.deduplicate import find_near_duplicates
from toolformer_core.annotate.duplicates import NGRAM, signature_of
from toolformer_core.shared_words import words_in

CHANCES = (0.01, 0.02, 0.05, 0.1, 0.2)
_SAMPLE, _ALIKE, _UNLIKE, _PART = 2_000, 0.8, 0.5, 10_000
_DATATROVE = """
import glob, json, sys
from datatrove.executor import LocalPipelineExecutor as Run
from datatrove.pipeline.dedup import minhash
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
corpus, out = sys.argv[1:]
read, config, kept = JsonlReader(corpus), minhash.MinhashConfig(), JsonlWriter(out + "/dropped", compression=None)
for tasks, *steps in (
    (1, read, minhash.MinhashDedupSignature(out + "/sign", config=config)),
    (config.num_buckets, minhash.MinhashDedupBuckets(out + "/sign", out + "/buckets", config=config)),
    (1, minhash.MinhashDedupCluster(out + "/buckets", out + "/remove", config=config)),
    (1, read, minhash.MinhashDedupFilter(out + "/remove", exclusion_writer=kept)),
):
    Run(steps, tasks=tasks, workers=1, logging_dir=f"{out}/logs/{type(steps[-1]).__name__}").run()
ids = [int(json.loads(line)["id"]) for path in glob.glob(out + "/dropped/*") for line in open(path)]
json.dump(ids, open(out + "/dropped.json", "w"))
"""


def write_corpus(paths: list[str], documents: int, folder: Path) -> dict[int, tuple[int, float]]:
    """Write a corpus; return, of each copy by its number, the number of its original and the chance of a word."""
    chosen = random.Random(1)
    texts = [json.loads(line)["text"] for path in paths for line in Path(path).read_text("utf-8").split("\n") if line]
    sentences = sorted({one for text in texts for one in re.split(r"(?<=[.!?])\s+|\n+", text) if len(one.split()) > 4})
    words = " ".join(sentences).split()
    rows: list[list[str]] = [[] for _ in range(documents - documents // 10)]
    for row in rows:
        while len(row) < 200:
            row += chosen.choice(sentences).split()
    copies = {}
    for number, original in enumerate(chosen.sample(range(len(rows)), documents // 10)):
        chance = CHANCES[number % len(CHANCES)]
        copies[len(rows)] = original, chance
        rows.append([chosen.choice(words) if chosen.random() < chance else word for word in rows[original]])
    folder.mkdir()
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"id": n, "text": " ".join(row)}) + "\n" for n, row in enumerate(rows))
    return copies


def _texts(corpus: Path) -> Iterator[str]:
    with (corpus / "corpus.jsonl").open(encoding="utf-8") as lines:
        yield from (json.loads(line)["text"] for line in lines)


def find_here(corpus: Path, out: Path) -> None:
    """Write the numbers of the documents that the program drops: signatures part by part, then what `ingest` asks."""

    def parts() -> Iterator[tuple[list[str], pa.Table, tuple[()]]]:
        texts = ((f"{number:032x}", text) for number, text in enumerate(_texts(corpus)))
        while part := list(islice(texts, _PART)):
            signed = [(doc_id, one) for doc_id, text in part if (one := signature_of(text)) is not None]
            rows = [{"doc_id": doc_id, "bands": one.bands, "sketch": one.sketch} for doc_id, one in signed]
            yield [doc_id for doc_id, _ in part], pa.Table.from_pylist(rows), ()

    out.mkdir()
    (out / "dropped.json").write_text(json.dumps([int(one, 16) for one in find_near_duplicates(parts(), None)]))


def exact(corpus: Path, sample: set[int]) -> dict[int, dict[int, float]]:
    """Return, of each document of a sample, the others that share at least `_UNLIKE` of all runs with it."""

    def runs_of(text: str) -> set[str]:
        words = words_in(text)
        return {" ".join(words[at : at + NGRAM]) for at in range(len(words) - NGRAM + 1)}

    own = {number: runs_of(text) for number, text in enumerate(_texts(corpus)) if number in sample}
    holders = defaultdict(list)
    for number, run in ((number, run) for number, runs in own.items() for run in runs):
        holders[run].append(number)
    alike: dict[int, dict[int, float]] = {number: {} for number in own}
    for other, text in enumerate(_texts(corpus)):
        runs = runs_of(text)
        for number, both in Counter(number for run in runs for number in holders.get(run, ())).items():
            if number != other and (share := both / (len(runs) + len(own[number]) - both)) >= _UNLIKE:
                alike[number][other] = share
    return alike


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--datatrove", metavar="PYTHON")
    parser.add_argument("--find", nargs=2, type=Path, help="what a child process does: CORPUS OUT")
    if (given := parser.parse_args()).find:
        return find_here(*given.find)
    programs = {"here": [sys.executable, "-m", "benchmarks.near_duplicates", "--find"]}
    programs |= {"datatrove": [given.datatrove, "-c", _DATATROVE]} if given.datatrove else {}
    with tempfile.TemporaryDirectory() as name:
        few, many, n = Path(name, "few"), Path(name, "many"), given.documents
        write_corpus(given.texts, n // 5, few)
        copies = write_corpus(given.texts, n, many)
        alike = exact(many, {*random.Random(2).sample(range(n - len(copies)), _SAMPLE), *list(copies)[:_SAMPLE]})
        near = {one: {o for o, share in others.items() if share >= _ALIKE} for one, others in alike.items()}
        like, unlike = ([one for one in near if near[one]], [one for one in alike if not alike[one]])
        for program, command in programs.items():
            used = []
            for corpus in (few, many):
                running = subprocess.Popen([*command, corpus, f"{corpus}-{program}"], stdout=subprocess.DEVNULL)
                used.append(os.wait4(running.pid, 0)[2])
            (little, most), cpu = [one.ru_maxrss / 1e3 for one in used], used[1].ru_utime + used[1].ru_stime
            dropped = set(json.loads(Path(f"{many}-{program}", "dropped.json").read_text()))
            found = Counter(chance for copy, (original, chance) in copies.items() if {copy, original} & dropped)
            figures = {
                "found": {chance: len(CHANCES) * found[chance] / len(copies) for chance in CHANCES},
                "alike": [sum(len({one, *near[one]} - dropped) == 1 for one in like), len(like)],
                "unlike": [len(dropped.intersection(unlike)), len(unlike)],
                **{"dropped": len(dropped), "cpu_s": cpu / n * 1e6, "mb": (most - little) / 0.8 / n * 1e6},
            }
            print_json({"program": program, "documents": n, **figures})
    return None


if __name__ == "__main__":
    main()
