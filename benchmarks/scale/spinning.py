"""How long OpenMP's threads may spin while they wait: a model's time alone, and beside busy processes.

    python benchmarks/scale/spinning.py [--busy 0 2 8] [--counts 20000 2000] [--threads 2] [--json]

Draws calls of the embedded model into a few texts of its corpus, in a process of its own for every GOMP_SPINCOUNT
(`default`: none is set; `passive`: OMP_WAIT_POLICY=PASSIVE), beside `--busy` processes that compute without end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from benchmarks.report import busy_processes, parser_of, print_json, say

_DOCUMENTS = 16


def draw(threads: int) -> dict[str, float]:
    """Draw, and return the CPU and wall seconds."""
    import torch

    torch.set_num_threads(threads)
    from toolformer_core.annotate.ingest import read_corpus
    from toolformer_core.annotate.sample import sample
    from toolformer_core.config import IngestConfig, SampleConfig
    from toolformer_core.embedded import CORPUS
    from toolformer_core.lm.load import load_model
    from toolformer_core.prompts.load import load_prompt
    from toolformer_core.records import Document, PrefilterResult

    rows = read_corpus(str(CORPUS), IngestConfig(limit=_DOCUMENTS))
    pairs = [(row, PrefilterResult(row.doc_id, "qa", True, "")) for row in rows if isinstance(row, Document)]
    lm, prompt, config = load_model("embedded"), load_prompt("qa"), SampleConfig.for_tool("qa")
    sample(lm, [prompt], "QA", pairs[:1], config)
    cpu, wall = time.process_time(), time.perf_counter()
    sample(lm, [prompt], "QA", pairs, config)
    return {"cpu_s": round(time.process_time() - cpu, 2), "wall_s": round(time.perf_counter() - wall, 2)}


def environment(count: str) -> dict[str, str]:
    """Return the environment for one way of waiting."""
    clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    if count == "passive":
        return {**clean, "OMP_WAIT_POLICY": "PASSIVE"}
    return clean if count == "default" else {**clean, "GOMP_SPINCOUNT": count}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2, 8])
    parser.add_argument("--counts", nargs="+", default=["default", "20000", "2000", "passive"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--draw", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.draw:
        print_json(draw(args.threads))
        return
    figures = []
    for beside in args.busy:
        for count in args.counts:
            command = [sys.executable, __file__, "--draw", "--threads", str(args.threads)]
            with busy_processes(beside):
                done = subprocess.run(command, env=environment(count), capture_output=True, text=True, check=True)
            figures.append({"busy": beside, "spin": count, **json.loads(done.stdout.splitlines()[-1])})
    say("busy  spin      CPU s   wall s")
    for f in figures:
        say(f"{f['busy']:4}  {f['spin']:8} {f['cpu_s']:6.2f}  {f['wall_s']:7.2f}")
    if args.json:
        print_json({"figures": figures})


if __name__ == "__main__":
    main()
