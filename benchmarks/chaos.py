"""Kill a build with SIGKILL at random moments, start it again, and compare with a build that was left alone.

    python benchmarks/chaos.py --kills 10 [--runner dask] [--server URL] [--clean [calls]] [--json]

Every round starts `toolformer build` in a process of its own and kills a random moment after it has committed a random
number of further shards, from none to six. What is killed is, in a random order, each as often: everything (the flow,
its workers and the server it started, which a power cut would take too), the flow alone, or, where Dask runs it, one of
its workers, after which the build is to go on by itself. A build that is done before its moment is thrown away and
begun anew. The last start is left alone; Ctrl-C makes the next one the last. With --server all builds use that Prefect
server, which saves most of their start and is not killed; with --clean they drop near-duplicates, equal calls, and
documents with items of a benchmark (with `--clean calls` the calls near these), and mask addresses. Then the two
datasets must be the same files, byte for byte, every row of every stage accounted for, no shard counted twice, and no
file damaged.
"""

import contextlib
import gzip
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.report import parser_of, print_json, progress, say_figures
from tasks.environment import environment
from toolformer_core.embedded import CORPUS
from warehouse.audit import audit
from warehouse.queries import stats
from warehouse.store import Store

_PATIENCE_S = 1200.0  # a build that takes longer hangs
_STARTING_S = "600"  # a Prefect server's start; a busy machine is no failure


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    kills: int  # while a build ran
    of_all: int  # of them: the flow, its workers and its server
    of_flow: int  # ... the flow alone
    of_worker: int  # ... one Dask worker
    builds_failed: int  # builds that ended with an error after a worker's death, and went on when started again
    finished_early: int  # builds that were done before their moment came
    examples: int
    identical: bool  # same dataset version, same files, same bytes
    conserved: bool
    shards_counted_twice: int
    damaged: int  # files that are not what they were
    undisturbed_s: float
    disturbed_s: float


def _command(data: Path, documents: int, runner: str, items: Path | None, drops: str) -> list[str]:
    options = {
        "--corpus": str(CORPUS),
        "--data": str(data),
        "--limit": str(documents),
        "--tools": "calculator,calendar",
        "--shard-documents": "4",
        "--top-k": "4",
        "--samples": "2",
        "--tau-f": "calculator=0.1,calendar=0.1",
        "--runner": runner,
        "--workers": "2",
    }
    clean = ["--deduplicate", "--mask-pii", "--max-same-call", "1"]
    clean = [*clean, "--decontaminate", str(items), "--decontaminate-drops", drops] if items is not None else []
    return [sys.executable, "-m", "cli.main", "build", *(x for pair in options.items() for x in pair), *clean]


def _start(command: list[str], place: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _alone(command: list[str], place: dict[str, str]) -> None:
    done = subprocess.run(command, env=place, capture_output=True, text=True, timeout=_PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(f"a build that was left alone ended with {done.returncode}:\n{done.stderr[-4000:]}")


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return a process and all below it; nothing if it is gone."""
    try:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def kill(victims: list[psutil.Process]) -> None:
    """Kill the processes, the last ones first, and wait until they are gone."""
    for victim in reversed(victims):
        try:
            victim.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(victims, timeout=10)


def _commits(data: Path) -> list[Path]:
    return list((data / "commits").rglob("*.json"))


def _cstar(data: Path) -> dict[str, bytes]:
    store = Store(data)
    dataset = store.datasets()[-1]
    return {file.path: Path(store.locate(file.path)).read_bytes() for file in dataset.files}


class _KilledBuild:
    """A build that is killed and started again."""

    def __init__(
        self, command: list[str], place: dict[str, str], data: Path, victims: Sequence[str], seed: int
    ) -> None:
        self._command, self._place, self._data = command, place, data
        self._victims, self._next = victims, list[str]()
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()  # kills, by victim; builds that failed, or were done early
        self.seen: list[psutil.Process] = []
        self.process = _start(command, place)

    def disturb(self, kills: int) -> None:
        """Kill so often; leave a build that nobody disturbs any more."""
        r, counts, begin = self._random, self.counts, time.monotonic()
        while counts["kills"] < kills and counts["early"] < kills:
            _until(self.process, self._data, len(_commits(self._data)) + r.randint(0, 6))
            try:
                self.process.wait(r.uniform(0.0, 0.6))
            except subprocess.TimeoutExpired:
                what = self._kill_one()
                if what:
                    counts["kills"] += 1
                    counts[what] += 1
                    at = f"{len(_commits(self._data))} commits, {time.monotonic() - begin:.0f} s"
                    progress(f"kill {counts['kills']} of {kills}: {what}, {at}")
                if what not in ("all", "flow"):
                    continue  # the build goes on by itself
                self.process.wait()
            else:
                counts["early" if self.process.returncode == 0 else "failed"] += 1
                if self.process.returncode == 0:
                    shutil.rmtree(self._data)  # nothing would be left to interrupt: begin anew
            self.process = _start(self._command, self._place)

    def _kill_one(self) -> str:
        """Kill the next process in turn and return its role; "": a worker's, and they are still starting."""
        living = family(self.process)
        self.seen += living
        workers = [p for p in living if _is_worker(p)]
        self._next = self._next or self._random.sample(self._victims, len(self._victims))
        if self._next[-1] == "worker" and not workers:
            return ""
        what = self._next.pop()
        kill({"all": living, "flow": living[:1], "worker": [self._random.choice(workers or living)]}[what])
        return what

    def finish(self) -> None:
        """Let the build end, in peace; start it once more if it failed, as it may after a worker's death."""
        if self.process.wait(_PATIENCE_S) != 0:
            _alone(self._command, self._place)

    def clean_up(self) -> None:
        """End whatever is left."""
        kill([p for p in (*self.seen, *family(self.process)) if p.is_running()])


def run(
    folder: Path,
    *,
    kills: int,
    documents: int = 24,
    seed: int = 0,
    runner: str = "threads",
    server: str | None = None,
    victims: Sequence[str] = (),
    clean: str = "",
) -> Report:
    """Run the comparison in an empty folder.

    Args:
        victims: what is killed: `all`, `flow`, `worker`; default: all kinds there are.
        clean: what of a benchmark's items the builds drop, `documents` or `calls`, besides near-duplicates and equal
            calls; "": they drop nothing.
    """
    calm, wild = folder / "calm", folder / "wild"
    place = environment() | {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": _STARTING_S}
    place |= {"PREFECT_API_URL": server} if server else {}
    items = folder / "items.txt" if clean else None
    if items is not None:
        with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:  # the first document is an item
            items.write_text(" ".join(json.loads(next(lines))["text"].split()), encoding="utf-8")
    begin = time.monotonic()
    _alone(_command(calm, documents, "threads", items, clean), place)
    undisturbed = time.monotonic() - begin
    begin = time.monotonic()
    victims = victims or ("all", "flow", *(("worker",) if runner == "dask" else ()))
    killed = _KilledBuild(_command(wild, documents, runner, items, clean), place, wild, victims, seed)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            killed.disturb(kills)
        killed.finish()
    finally:
        killed.clean_up()
    counts = killed.counts
    disturbed = time.monotonic() - begin
    one, other = _cstar(calm), _cstar(wild)
    keys = Store(wild).runs()[-1].commits
    return Report(
        kills=counts["kills"],
        of_all=counts["all"],
        of_flow=counts["flow"],
        of_worker=counts["worker"],
        builds_failed=counts["failed"],
        finished_early=counts["early"],
        examples=sum(file.rows for file in Store(wild).datasets()[-1].files),
        identical=one == other,
        conserved=stats(wild / "warehouse.duckdb").conserved,
        shards_counted_twice=len(keys) - len({(k.stage, k.tool, k.shard) for k in keys}),
        damaged=len(audit(Store(wild))) + len(list(Store(wild).files.walk("quarantine"))),
        undisturbed_s=round(undisturbed, 1),
        disturbed_s=round(disturbed, 1),
    )


def _until(process: subprocess.Popen[bytes], data: Path, goal: int) -> None:
    """Wait until there are `commits` commits, or the build has ended."""
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and len(_commits(data)) < goal:
        if time.monotonic() > until:
            raise subprocess.TimeoutExpired(process.args, _PATIENCE_S)
        time.sleep(0.02)


def main() -> None:
    parser = parser_of(__doc__, kills=10)
    parser.add_argument("--runner", choices=("threads", "dask"), default="threads")
    parser.add_argument("--server", help="URL of a Prefect server, e.g. http://127.0.0.1:4200/api")
    parser.add_argument("--clean", nargs="?", choices=("documents", "calls"), const="documents", default="")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), kills=a.kills, runner=a.runner, server=a.server, clean=a.clean)
    say_figures(asdict(report))
    if a.json:
        print_json(asdict(report))
    if not (report.identical and report.conserved and report.shards_counted_twice + report.damaged == 0):
        sys.exit(1)


if __name__ == "__main__":
    main()
