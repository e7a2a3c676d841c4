"""Near-duplicates that `build --deduplicate` finds, beside datatrove's MinHash on the same texts and exact counts.

    python -m benchmarks.near_duplicates TEXTS.jsonl... [--documents 100000] [--datatrove PYTHON]

PYTHON is that of an environment with `pip install datatrove==0.10.1 spacy orjson tokenizers 'xxhash<4'`. Documents of
some 200 words are made of the files' sentences at random. A tenth are copies, in five equal parts: each word was
exchanged with a chance of 1, 2, 5, 10 or 20 %.

    planted    of the copies, by that chance, the share of which the copy or its original is dropped
    alike      of a sample, pairs that share 0.8 of all five-word runs: in how many one is dropped
    unlike     ... documents that share less than 0.5 with every other: how many are dropped
    cpu_s, mb  for a million documents, of a process of its own: its memory with all of them less that with a fifth
               (a part of 10,000 is held at a time, so memory means little for fewer than 100,000)
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
_SPREAD, _IDS = 0x9E3779B97F4A7C15F39CC0605CEDC835, 1 << 128  # a document's id is a digest: its bits look random
_DATATROVE = """
import glob, json, sys
from datatrove.executor import LocalPipelineExecutor as Run
from datatrove.pipeline.dedup import minhash
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
corpus, out = sys.argv[1:]
read, config, dropped = JsonlReader(corpus), minhash.MinhashConfig(), JsonlWriter(out + "/dropped", compression=None)
for tasks, *steps in (
    (1, read, minhash.MinhashDedupSignature(out + "/sign", config=config)),
    (config.num_buckets, minhash.MinhashDedupBuckets(out + "/sign", out + "/buckets", config=config)),
    (1, minhash.MinhashDedupCluster(out + "/buckets", out + "/remove", config=config)),
    (1, read, minhash.MinhashDedupFilter(out + "/remove", exclusion_writer=dropped)),
):
    Run(steps, tasks=tasks, workers=1, logging_dir=f"{out}/logs/{type(steps[-1]).__name__}").run()
ids = [int(json.loads(line)["id"]) for path in glob.glob(out + "/dropped/*") for line in open(path)]
json.dump({"ids": ids, "status": open("/proc/self/status").read()}, open(out + "/dropped.json", "w"))
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
        copies[len(rows)] = original, (chance := CHANCES[number % len(CHANCES)])
        rows.append([chosen.choice(words) if chosen.random() < chance else word for word in rows[original]])
    folder.mkdir()
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"id": n, "text": " ".join(row)}) + "\n" for n, row in enumerate(rows))
    return copies


def _texts(corpus: Path) -> Iterator[str]:
    with (corpus / "corpus.jsonl").open(encoding="utf-8") as lines:
        yield from (json.loads(line)["text"] for line in lines)


def find_here(corpus: Path, out: Path) -> None:
    """Write the numbers of the documents that a build drops: signatures part by part, and what they come to."""

    def parts() -> Iterator[tuple[list[str], pa.Table, tuple[()]]]:
        texts = ((f"{number * _SPREAD % _IDS:032x}", text) for number, text in enumerate(_texts(corpus)))
        while part := list(islice(texts, _PART)):
            signed = [(doc_id, one) for doc_id, text in part if (one := signature_of(text)) is not None]
            rows = [{"doc_id": doc_id, "bands": one.bands, "sketch": one.sketch} for doc_id, one in signed]
            yield [doc_id for doc_id, _ in part], pa.Table.from_pylist(rows), ()

    out.mkdir()
    ids = [int(one, 16) * pow(_SPREAD, -1, _IDS) % _IDS for one in find_near_duplicates(parts(), None)]
    (out / "dropped.json").write_text(json.dumps({"ids": ids, "status": Path("/proc/self/status").read_text()}))


def nearest(corpus: Path, sample: set[int]) -> dict[int, tuple[float, int]]:
    """Return, of each document of a sample, the largest share of all runs that another has in common, and that one."""

    def runs_of(text: str) -> set[str]:
        words = words_in(text)
        return {" ".join(words[at : at + NGRAM]) for at in range(len(words) - NGRAM + 1)}

    own = {number: runs_of(text) for number, text in enumerate(_texts(corpus)) if number in sample}
    holders = defaultdict(list)
    for number, run in ((number, run) for number, runs in own.items() for run in runs):
        holders[run].append(number)
    best = dict.fromkeys(own, (0.0, -1))
    for other, text in enumerate(_texts(corpus)):
        runs = runs_of(text)
        for number, both in Counter(number for run in runs for number in holders.get(run, ())).items():
            if number != other:
                best[number] = max(best[number], (both / (len(runs) + len(own[number]) - both), other))
    return best


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--datatrove", metavar="PYTHON")
    parser.add_argument("--find", nargs=2, type=Path, metavar=("CORPUS", "OUT"), help="what a process of its own does")
    if (given := parser.parse_args()).find:
        return find_here(*given.find)
    programs = {"here": [sys.executable, "-m", "benchmarks.near_duplicates", "--find"]}
    programs |= {"datatrove": [given.datatrove, "-c", _DATATROVE]} if given.datatrove else {}
    with tempfile.TemporaryDirectory() as name:
        few, many, n = Path(name, "few"), Path(name, "many"), given.documents
        write_corpus(given.texts, n // 5, few)
        copies = write_corpus(given.texts, n, many)
        near = nearest(many, {*random.Random(2).sample(range(n), min(n, _SAMPLE)), *list(copies)[:_SAMPLE]})
        for program, command in programs.items():
            mb = []
            for corpus in (few, many):
                begin = os.times()
                subprocess.run([*command, corpus, f"{corpus}-{program}"], stdout=subprocess.DEVNULL, check=True)
                cpu_s = sum(os.times()[2:4]) - sum(begin[2:4])
                result = json.loads(Path(f"{corpus}-{program}", "dropped.json").read_text())
                mb.append(int(re.search(r"VmHWM:\s+(\d+)", result["status"])[1]) / 1e3)
            dropped = set(result["ids"])
            found = Counter(chance for copy, (original, chance) in copies.items() if {copy, original} & dropped)
            alike = [bool({one, other} & dropped) for one, (share, other) in near.items() if share >= _ALIKE]
            unlike = [one in dropped for one, (share, _) in near.items() if share < _UNLIKE]
            figures = {
                "planted": {chance: len(CHANCES) * found[chance] / len(copies) for chance in CHANCES},
                "alike": [sum(alike), len(alike)],
                "unlike": [sum(unlike), len(unlike)],
                "cpu_s": cpu_s / n * 1e6,
                "mb": (mb[1] - mb[0]) / 0.8 / n * 1e6,
            }
            print_json({"program": program, "documents": n, **figures})
    return None


if __name__ == "__main__":
    main()
