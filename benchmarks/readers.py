"""How fast a corpus is read, by format, on one core.

    python benchmarks/readers.py [--documents 2000] [--words 300] [--json]
    python benchmarks/readers.py --datatrove PYTHON [--workers 2]     PYTHON has datatrove[io]==0.10.1

The same made-up documents are written in each format, once, and read through the whole ingest: decompressed, parsed,
columns found, ids taken, duplicates looked for. HTML pages have a menu and a footer; articles have links, footnotes and
templates.

With `--datatrove` files of JSON lines, fifty times as many documents, become Parquet by ingest (digests, commits and
fsync included; `--workers` processes) and by datatrove's JsonlReader and ParquetWriter (as many), in turn.
"""

import bz2
import csv
import gzip
import io
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.report import parser_of, print_json, say
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.records import Document

_WORDS = "river bridge old stone city north year built water market tower long small green road people house".split()


def _texts(documents: int, words: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(_WORDS, k=words)) + f" {number}." for number in range(documents)]


def _csv(texts: list[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([["text", "n"], *([text, "1"] for text in texts)])
    return out.getvalue().encode()


def _warc(texts: list[str], html: bool) -> bytes:
    records = []
    for number, text in enumerate(texts):
        body = f"{text}\n".encode()
        kind, content = "conversion", "text/plain"
        if html:
            menu = "".join(f"<li><a href='/{i}'>Page {i}</a></li>" for i in range(20))
            main = f"<article><p>{text}</p></article><footer>x</footer>"
            page = f"<html><body><nav><ul>{menu}</ul></nav>{main}</body></html>"
            body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + page.encode()
            kind, content = "response", "application/http"
        head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://a.org/{number}\r\nContent-Type: {content}\r\n"
        records.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n")
    return b"".join(map(gzip.compress, records))


def _dump(texts: list[str]) -> bytes:
    pages = []
    for number, text in enumerate(texts):
        words = text.split()
        marked = [f"[[{word}]]" if i % 12 == 0 else word for i, word in enumerate(words)]
        marked[::40] = [f"{word}.&lt;ref&gt;{{{{cite|title={word}|year=1900}}}}&lt;/ref&gt;" for word in marked[::40]]
        source = f"{{{{Infobox|a=b}}}}\n'''{words[0]}''' {' '.join(marked)}\n== Places ==\n* one\n* two\n[[Category:X]]"
        pages.append(
            f"<page><title>T{number}</title><ns>0</ns><id>{number}</id><revision><id>1</id><model>wikitext</model>"
            f"<text>{source}</text></revision></page>"
        )
    return bz2.compress(("<mediawiki>" + "".join(pages) + "</mediawiki>").encode())


FORMATS: dict[str, Callable[[list[str]], bytes]] = {
    "c.jsonl": lambda texts: "".join(json.dumps({"text": text}) + "\n" for text in texts).encode(),
    "c.jsonl.gz": lambda texts: gzip.compress(FORMATS["c.jsonl"](texts)),
    "c.jsonl.bz2": lambda texts: bz2.compress(FORMATS["c.jsonl"](texts)),
    "c.json": lambda texts: json.dumps([{"text": text} for text in texts]).encode(),
    "c.csv": _csv,
    "c.wet.gz": lambda texts: _warc(texts, html=False),
    "c.warc.gz": lambda texts: _warc(texts, html=True),
    "c.xml.bz2": _dump,
}


def measure(documents: int, words: int) -> list[dict[str, Any]]:
    """Return a row for each format: the file's size, and documents and bytes of text a second of CPU."""
    texts, rows = _texts(documents, words), []
    with tempfile.TemporaryDirectory() as folder:
        for name, form in FORMATS.items():
            path = Path(folder, name)
            path.write_bytes(form(texts))
            start = time.process_time()
            read = [row for row in read_corpus(path, IngestConfig()) if isinstance(row, Document)]
            seconds = time.process_time() - start
            if len(read) != documents:
                raise RuntimeError(f"{name}: {len(read)} documents of {documents} were read")
            rate = {
                "documents_per_s": documents / seconds,
                "text_mb_per_s": sum(len(d.text) for d in read) / 1e6 / seconds,
            }
            rows.append({"format": name, "file_kb": path.stat().st_size / 1e3, **rate})
    return rows


_FILES, _TIMES = 4, 50
_DATATROVE = """
import os, sys, time
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import ParquetWriter
if __name__ == "__main__":
    corpus, out, workers, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    steps = [JsonlReader(corpus), ParquetWriter(out + "/rows", compression="zstd")]
    start, cpu = time.perf_counter(), sum(os.times()[:4])
    LocalPipelineExecutor(steps, tasks=files, workers=workers, logging_dir=out + "/logs").run()
    print(time.perf_counter() - start, sum(os.times()[:4]) - cpu)
"""


def beside_datatrove(python: str, documents: int, words: int, workers: int) -> dict[str, float]:
    """Return the seconds of ingest and of datatrove, and of CPU, each the best of three."""
    from flows.build_dataset.parameters import BuildParameters
    from flows.build_dataset.resolve import resolve
    from tasks.shards.corpus import part_specs
    from tasks.shards.reading import read_in_process
    from tasks.shards.stage import Inputs, run_stage
    from tasks.stages.ingest import CORPUS, INGEST

    seconds: dict[str, list[float]] = {"ingest_s": [], "ingest_cpu_s": [], "datatrove_s": [], "datatrove_cpu_s": []}
    texts = _texts(_TIMES * documents, words)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(3):
            corpus = Path(folder, f"corpus-{turn}")  # another one each time: nothing is known of it
            corpus.mkdir()
            for number in range(_FILES):
                (corpus / f"{number}.jsonl").write_bytes(FORMATS["c.jsonl"](texts[number::_FILES]))
            start, cpu = time.perf_counter(), sum(os.times()[:4])
            spec = resolve(BuildParameters(corpus=str(corpus), data=f"{folder}/data-{turn}"))
            parts = part_specs(spec)
            if workers > 1:  # as a build does
                with ThreadPoolExecutor(workers) as threads:
                    list(threads.map(read_in_process, [parts[first::workers] for first in range(workers)]))
            result = run_stage(INGEST, Inputs(spec, CORPUS))
            seconds["ingest_s"].append(time.perf_counter() - start)
            seconds["ingest_cpu_s"].append(sum(os.times()[:4]) - cpu)
            if sum(file.rows for file in result.files) != len(texts):
                raise RuntimeError("documents are missing")
            command = [python, "-c", _DATATROVE, corpus, f"{folder}/out-{turn}", str(workers), str(_FILES)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for name, value in zip(("datatrove_s", "datatrove_cpu_s"), done.stdout.split()[-2:], strict=True):
                seconds[name].append(float(value))
    best = {name: min(values) for name, values in seconds.items()}
    ratios = {f"datatrove/ingest{of}": best[f"datatrove{of}_s"] / best[f"ingest{of}_s"] for of in ("", "_cpu")}
    return best | ratios


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__, documents=2_000, words=300)
    parser.add_argument("--datatrove", metavar="PYTHON", help="compare with datatrove, run by this interpreter")
    parser.add_argument("--workers", type=int, default=1, help="with --datatrove")
    args = parser.parse_args()
    if args.datatrove:
        print_json(beside_datatrove(args.datatrove, args.documents, args.words, args.workers))
        return
    rows = measure(args.documents, args.words)
    say(f"{'format':12} {'file kB':>9} {'documents/s':>12} {'text MB/s':>10}")
    for row in rows:
        say(f"{row['format']:12} {row['file_kb']:9.0f} {row['documents_per_s']:12.0f} {row['text_mb_per_s']:10.1f}")
    if args.json:
        print_json({"documents": args.documents, "words": args.words, "rows": rows})


if __name__ == "__main__":
    main()
