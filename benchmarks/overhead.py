"""What the platform costs beside the language model and the tools, and whether its memory grows with the corpus.

    python benchmarks/overhead.py [--documents 2000,20000] [--ms 20] [--json]

A corpus is made up, every text of it worth a look to every tool requested, and built with a stub for the language model
that only waits: `--ms` milliseconds a document, shared by the tools (two tools: half of it for each scan). Drawing and
scoring take what the stub needs to make them up, a few per cent of that: so this is hardest on the platform. Each size
runs in a process of its own, through the same flow, Prefect server and settings as `toolformer build`.

    overhead   the time in which neither the model nor a tool was at work, of the whole run: start-up included
    platform   seconds of CPU of the process and of its Prefect server (a waiting stub takes none, the tools are in it)
    memory     the most the process and its server held, looked at twice a second
"""

import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import parser_of, print_json, progress, say

CORPUS = "corpus.jsonl"
_TAU_S = 0.05
_LIKELY = 5  # positions of a text above it


def make_corpus(path: Path, documents: int) -> None:
    """Texts of about 110 words, no two the same, each with a sum and a dated address."""
    words = "the inn keeps a ledger where boats bread nets salt ropes and lamps are counted by hand each week".split()
    with path.open("w", encoding="utf-8") as stream:
        for n in range(documents):
            line = [words[(n * 7 + i * (1 + n % 5)) % len(words)] for i in range(100)]
            line[50:50] = f"with {n} and {n + 3} they make a total of {2 * n + 3} in all".split()
            url = f"https://small.example/{2000 + n % 20}/{1 + n % 12:02d}/{1 + n % 28:02d}/{n}"
            stream.write(json.dumps({"text": " ".join(line), "url": url}) + "\n")


class Memory(threading.Thread):
    """Looks at what the process and its children hold, and at what the children have computed."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._end = threading.Event()
        self.own = self.children = 0
        self.children_cpu = 0.0

    def run(self) -> None:
        me = psutil.Process()
        children: list[psutil.Process] = []
        for look in itertools.count():
            if self._end.wait(0.5):
                return
            self.own = max(self.own, me.memory_info().rss)
            if look % 20 == 0:  # looking for them reads about every process there is
                children = me.children(recursive=True)
            held, cpu = 0, 0.0
            for child in children:
                try:
                    held += child.memory_info().rss
                    cpu += sum(child.cpu_times()[:2])
                except psutil.Error:  # it has just ended
                    continue
            self.children = max(self.children, held)
            self.children_cpu = max(self.children_cpu, cpu)

    def stop(self) -> None:
        self._end.set()
        self.join()


def measure(documents: int, ms: float, tools: Sequence[str], folder: Path) -> dict[str, float]:
    """Build a corpus of that many documents in this process; it lies in the folder."""
    begin = time.perf_counter() - (time.time() - psutil.Process().create_time())  # imports are the platform's too
    from benchmarks.stub_builds import Clock, StubLM, TimedTool, build

    memory = Memory()
    memory.start()
    clock = Clock()
    lm = StubLM(ms / 1000 / len(tools), clock.working)
    parameters = {
        "corpus": str(folder / CORPUS),
        "data": str(folder / "data"),
        "tools": list(tools),
        "tau_s": _TAU_S,
        "top_k": _LIKELY,
        "samples": 5,
        "shard_documents": 256,
        "workers": 4,
    }

    def report(stage: str, finished: int, total: int) -> None:
        if finished == total:
            progress(f"{time.perf_counter() - begin:7.1f} s  {stage} {finished}/{total}")

    result = build(parameters, lm, lambda tool: TimedTool(tool, clock), report)
    ended = time.perf_counter()
    wall = ended - begin
    own_cpu = time.process_time()
    memory.stop()
    from warehouse.queries import rows_of

    (counted,) = rows_of(Path(result.snapshot), "SELECT count(*) AS n FROM scored")
    cpu = own_cpu + memory.children_cpu
    return {
        "documents": documents,
        "tools": len(tools),
        "calls": counted["n"],  # scored
        "wall_s": round(wall, 1),
        "lm_s": round(lm.waited, 1),
        "lm_or_tools_s": round(clock.seconds, 1),  # at least one of them at work
        # before the first of that: imports, Prefect's server, the corpus read and cut into shards
        "starting_s": round(clock.first - begin, 1),
        "waiting_s": round(clock.last - clock.first - clock.seconds, 1),  # between first and last, neither at work
        "ending_s": round(ended - clock.last, 1),  # after the last: the end of C*, the snapshot
        "overhead": round((wall - clock.seconds) / wall, 4),  # the three, as a share of the wall time
        "overhead_but_start": round((ended - clock.first - clock.seconds) / wall, 4),  # the latter two
        "cpu_s": round(cpu, 1),  # of the process and its server
        "cpu": round(cpu / wall, 4),
        "cpu_ms_per_document": round(1000 * cpu / documents, 2),
        "server_cpu_s": round(memory.children_cpu, 1),
        "peak_mb": round(memory.own / 1e6),
        "server_peak_mb": round(memory.children / 1e6),
    }


def main() -> None:
    parser = parser_of(__doc__, documents="2000,20000", ms=20.0, tools="calculator,calendar")
    parser.add_argument("--here", type=Path, help="what a process of its own does: one size, of the corpus there")
    a = parser.parse_args()
    sizes = [int(n) for n in a.documents.split(",")]
    if a.here is not None:
        print_json(measure(sizes[0], a.ms, a.tools.split(","), a.here))
        from cli.terminal import leave

        leave(0)  # as the command line does
    reports: list[dict[str, Any]] = []
    for size in sizes:
        options = ["--documents", str(size), "--ms", str(a.ms), "--tools", a.tools]
        with tempfile.TemporaryDirectory() as folder:
            make_corpus(Path(folder) / CORPUS, size)
            command = [sys.executable, __file__, "--here", folder, *options]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        reports.append(json.loads(said.splitlines()[-1]))
    for name in reports[0]:
        say(f"{name:<20}" + "".join(f"{report[name]:>12,}" for report in reports))
    if a.json:
        print_json(reports)


if __name__ == "__main__":
    main()
