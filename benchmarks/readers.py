"""How fast a corpus of JSON lines becomes Parquet, beside datatrove.

    python benchmarks/readers.py PYTHON [--documents 100000] [--words 300] [--workers 1]

PYTHON has datatrove[io]==0.10.1. Four files of made-up documents are read by ingest (digests, commits and fsync
included; `--workers` processes) and by datatrove's JsonlReader and ParquetWriter (as many), in turn, three times. The
best of each is printed, and ratios; with several workers not of CPU seconds, as those of datatrove's are not counted.
"""

import json
import os
import random
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.report import parser_of, print_json, say_figures

_WORDS = "river bridge old stone city north year built water market tower long small green road people house".split()


_FILES = 4
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
    draw = random.Random(0)
    texts = [" ".join(draw.choices(_WORDS, k=words)) + f" {number}." for number in range(documents)]
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(3):
            corpus = Path(folder, f"corpus-{turn}")  # another one each time: nothing is known of it
            corpus.mkdir()
            for number in range(_FILES):
                lines = "".join(json.dumps({"text": text}) + "\n" for text in texts[number::_FILES])
                (corpus / f"{number}.jsonl").write_text(lines)
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
    counted = ("", "_cpu") if workers == 1 else ("",)
    ratios = {f"datatrove/ingest{of}": best[f"datatrove{of}_s"] / best[f"ingest{of}_s"] for of in counted}
    return {f"{name}{of}_s": best[f"{name}{of}_s"] for name in ("ingest", "datatrove") for of in counted} | ratios


def main() -> None:
    parser = parser_of(__doc__, documents=100_000, words=300, workers=1)
    parser.add_argument("python", help="the interpreter that has datatrove")
    args = parser.parse_args()
    found = beside_datatrove(args.python, args.documents, args.words, args.workers)
    say_figures({name: round(value, 2) for name, value in found.items()})
    if args.json:
        print_json(found)


if __name__ == "__main__":
    main()
