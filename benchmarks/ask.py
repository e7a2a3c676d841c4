"""How fast the warehouse answers at ten million scored calls.

    python benchmarks/ask.py [--calls 10_000_000] [--documents 1024] [--data FOLDER] [--repeats 5] [--json]

The calls are synthetic; everything else is the real thing: the store's writer and schema, a commit for every stage,
tool and shard (at the defaults about 5,100), one run, one dataset version, and the snapshot as `publish` makes it. Each
answer is timed in a fresh process, of which the peak of resident memory is taken; `answer` is the query alone (a new
connection to the snapshot included), `CPU` what it takes of all cores, `process` the whole process with the
interpreter's start. `--data` keeps the folder and finds it again. What else runs on the machine counts.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.report import parser_of, print_json, progress, say
from warehouse.commits import Commit, DataFile, Dataset, RowCounts, Run, dataset_version, digest, fingerprint
from warehouse.schema import stage_facts
from warehouse.snapshot.publish import SNAPSHOT
from warehouse.store import Store

_TOOLS = ("calculator", "calendar", "mt", "qa", "wikisearch")
_PER_DOCUMENT = 8  # scored calls of a tool in a document: four positions, two distinct calls at each
_DRAWN = 2  # samples of which one is scored
INGEST = {"code": "ingest/1", "inputs": digest(b"")}

# A query as a program for a fresh process; argv: the snapshot, a document's id.
_QUERIES = {
    "yield": "from warehouse.queries import yield_by_threshold as ask\nfound = lambda: ask(path)",
    "what-if": (
        "from toolformer_core.annotate.call_filter import CallFilter\nfrom warehouse.what_if import what_if\n"
        "tools = ('calculator', 'calendar', 'mt', 'qa', 'wikisearch')\n"
        "before = CallFilter(dict(calculator=0.5, calendar=1.0, mt=0.5, qa=1.0, wikisearch=1.0))\n"
        "after = CallFilter({**before.tau_f, 'calculator': 0.7, 'qa': 1.2}, dict.fromkeys(tools, 3))\n"
        "found = lambda: what_if(path, before, after)"
    ),
    "explain": "from warehouse.queries.explain import explain\nfound = lambda: explain(path, sys.argv[2])",
}
_PROGRAM = """
import json, sys, time
path = sys.argv[1]
{query}
begin, cpu = time.perf_counter(), time.process_time()
answer = found()
seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
from benchmarks.report import peak_mib
print(json.dumps([seconds, cpu, peak_mib()]))
"""


def put_commit(
    store: Store,
    stage: str,
    tool: str,
    shard: str,
    written: pa.Table | tuple[DataFile, ...],
    inputs: tuple[DataFile, ...],
    config: dict[str, Any] | None = None,
) -> Commit:
    """Commit a table, or files that are written already."""
    parts = {"code": f"{stage}/1", "inputs": digest(" ".join(file.digest for file in inputs).encode())}
    fp = fingerprint(parts)
    files = written if isinstance(written, tuple) else (store.write(stage, tool, shard, fp, written),)
    rows = sum(file.rows for file in files)
    commit = Commit(
        stage=stage,
        stage_version="1",
        tool=tool,
        shard=shard,
        fingerprint=fp,
        parts=parts,
        files=files,
        inputs=tuple(file.digest for file in inputs),
        balances=(RowCounts("rows", rows, rows),),
        host="bench",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        run_id="bench",
        seconds=1.0,
        counters={},
        config=config or {},
        versions={},
    )
    store.commit(commit)
    return commit


def _table(stage: str, columns: dict[str, Any], rows: int) -> pa.Table:
    """Return a stage's table; columns that are not given hold a plain value."""
    plain = {pa.string(): "", pa.int64(): 0, pa.float64(): 0.0, pa.bool_(): False}
    out = []
    for one in stage_facts(stage).schema:
        given = columns.get(one.name)
        if given is None:
            given = [None if one.nullable else plain.get(one.type, [])] * rows
        out.append(given if isinstance(given, pa.Array) else pa.array(given, one.type))
    return pa.table(out, schema=stage_facts(stage).schema)


def _calls(ids: pa.Array, tool: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of a shard's samples and of its scored calls: two distinct ones at each of four positions."""
    n = len(ids) * _PER_DOCUMENT
    own = np.repeat(np.arange(len(ids)), _PER_DOCUMENT)
    # four positions that differ, as one is sampled once; a fifth of them is shared by the tools, which compete for it
    places = (rng.integers(0, 500, (len(ids), 4)) + np.arange(4) * 500) * 5 + rng.choice(
        [0, 1 + _TOOLS.index(tool) % 4], (len(ids), 4), p=[0.2, 0.8]
    )
    position = np.repeat(places.reshape(-1), 2)
    gain = rng.normal(-0.5, 0.9, n)  # about one call in eight gains 0.5 nats
    plus = rng.normal(5.0, 1.0, n)
    numbers = rng.integers(0, 1000, (n, 2))
    input_ = pa.array([f"{a} + {b}" for a, b in numbers.tolist()])
    doc_id = pa.array(np.asarray(ids.to_pylist(), dtype=object)[own])
    scored = {
        "doc_id": doc_id,
        "tool": [tool] * n,
        "position": position,
        "input": input_,
        "response": pa.array([str(s) for s in numbers.sum(axis=1).tolist()]),
        "log_p": -rng.random(n) * 3,
        "count": np.ones(n, dtype=np.int64),
        "loss_plain": plus + gain,
        "loss_call": plus + gain + 0.1,
        "loss_response": plus,
        "seen_after": rng.random(n) < 0.1,
        "gain": gain,
    }
    again = np.repeat(np.arange(n), _DRAWN)
    drawn = {
        "doc_id": doc_id.take(pa.array(again)),
        "tool": [tool] * len(again),
        "position": position[again],
        "rank": np.tile(np.repeat(np.arange(4), 2 * _DRAWN), len(ids)),
        "raw": pa.array([f"Calculator({a} + {b}" for a, b in numbers[again].tolist()]),
        "outcome": pa.array(["ok" if i % _DRAWN == 0 else "unparsable" for i in range(len(again))]),
        "input": pa.array(
            [f"{a} + {b}" if i % _DRAWN == 0 else "" for i, (a, b) in enumerate(numbers[again].tolist())]
        ),
        "count": np.ones(len(again), dtype=np.int64),
    }
    return drawn, scored


def write_shard(data: str, number: int, documents: int) -> tuple[DataFile, list[Commit]]:
    """Write one shard of documents; return its documents' file and its commits."""
    store, name = Store(data), f"part-{number:05d}"
    own = pa.array([digest(f"{number}/{i}".encode()) for i in range(documents)])
    same = "Two and two makes a total of 4 apples. " * 50
    text = pa.array([f"Text {i} of {name}. " + same for i in range(documents)])
    columns = {"doc_id": own, "text": text, "source": ["bench.jsonl"] * documents, "line": range(documents)}
    file = store.write("ingest", "", name, fingerprint(INGEST), _table("ingest", columns, documents))
    commits, scores = [], []
    for index, tool in enumerate(_TOOLS):
        drawn, scored = _calls(own, tool, np.random.default_rng([number, index]))
        n = len(scored["gain"])
        verdicts = {"doc_id": own, "tool": [tool] * documents, "kept": [True] * documents}
        answers = {"tool": [tool] * n, "input": scored["input"], "response": scored["response"]}
        config = {"top_k": 4, "tau_s": 0.0, "samples": 4}
        first = put_commit(store, "prefilter", tool, name, _table("prefilter", verdicts, documents), (file,))
        sampled = _table("sample", drawn, n * _DRAWN)
        second = put_commit(store, "sample", tool, name, sampled, (file, *first.files), config=config)
        third = put_commit(store, "execute", tool, name, _table("execute", answers, n), (*first.files, *second.files))
        read = (file, *first.files, *second.files, *third.files)
        scores.append(put_commit(store, "score", tool, name, _table("score", scored, n), read))
        commits += [first, second, third, scores[-1]]
    read = (file, *(one for commit in scores for one in commit.files))
    kept = min(64, documents)
    examples = _table("assemble", {"doc_id": own.slice(0, kept), "text": ["x"] * kept}, kept)
    commits.append(
        put_commit(store, "assemble", "", name, examples, read, config={"tau_f": {}, "max_examples": 25_000})
    )
    return file, commits


def make(store: Store, calls: int, documents: int) -> None:
    """Write a warehouse with `calls` scored calls."""
    shards = max(1, round(calls / (documents * _PER_DOCUMENT * len(_TOOLS))))
    files, commits = [], []
    with ProcessPoolExecutor(2) as pool:
        jobs = pool.map(write_shard, repeat(store.root), range(shards), repeat(documents))
        for done, (file, own) in enumerate(jobs, start=1):
            files.append(file)
            commits += own
            if done % 25 == 0:
                progress(f"{done} of {shards} shards written")
    commits.append(put_commit(store, "ingest", "", "corpus", tuple(files), ()))
    now = datetime.now(UTC).isoformat()
    run = Run("bench", "build-dataset", now, now, "completed", {}, "bench.jsonl", "none", tuple(c.key for c in commits))
    store.write_run(run)
    held = tuple(file for c in commits if c.stage == "assemble" for file in c.files)
    store.write_dataset(Dataset("cstar", dataset_version(held), held, {}, {}, "bench", "none", "bench", now))


def measure(snapshot: Path, doc_id: str, repeats: int) -> dict[str, dict[str, float]]:
    """Ask each question in fresh processes; return its seconds and MiB."""
    out = {}
    for name, query in _QUERIES.items():
        own: list[tuple[float, float, float, float]] = []
        for _ in range(repeats):
            begin = time.perf_counter()
            seconds, cpu, peak = _in_process(query, str(snapshot), doc_id)
            own.append((seconds, cpu, time.perf_counter() - begin, peak))
        answer, cpus, process, peak_mib = zip(*own, strict=True)
        out[name] = {
            "answer_best_s": round(min(answer), 3),
            "answer_median_s": round(statistics.median(answer), 3),
            "answer_worst_s": round(max(answer), 3),
            "answer_cpu_s": round(min(cpus), 3),
            "process_median_s": round(statistics.median(process), 3),
            "peak_mib": round(max(peak_mib), 1),
        }
    return out


def _in_process(query: str, *arguments: str) -> tuple[float, float, float]:
    """Run a query in a process of its own; return its seconds, its CPU seconds and the process's peak in MiB."""
    command = [sys.executable, "-c", _PROGRAM.format(query=query), *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parents[1])
    if said.returncode:
        sys.exit(said.stderr)
    seconds, cpu, peak = json.loads(said.stdout.splitlines()[-1])
    return seconds, cpu, peak


def _publish(data: Path) -> dict[str, float]:
    """Publish in a process of its own, without an earlier snapshot and with one; return its seconds and MiB."""
    query = (
        "from warehouse.catalog import Catalog\nfrom warehouse.snapshot.publish import publish\n"
        "from warehouse.store import Store\nstore = Store(path)\n"
        "catalog = Catalog(store.local_folder / 'catalog.duckdb', store=store)\n"
        "found = lambda: publish(store, catalog)"
    )
    out: dict[str, float] = {}
    (data / SNAPSHOT).unlink(missing_ok=True)
    for name in ("first", "again"):
        seconds, _, peak = _in_process(query, str(data))
        out |= {f"{name}_s": round(seconds, 2), f"{name}_peak_mib": round(peak, 1)}
    return out


def main() -> None:
    """Make the warehouse, publish it, ask it."""
    parser = parser_of(__doc__, calls=10_000_000, documents=1024, repeats=5)  # documents of a shard
    parser.add_argument("--data", type=Path, help="keep the warehouse in this folder, or find it there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolformer-bench-") as temporary:
        data = args.data or Path(temporary)
        store = Store(data)
        if not store.runs():
            make(store, args.calls, args.documents)
        published = _publish(data)
        commits = sum(1 for _ in store.files.walk("commits", ".json"))
        rows = sum(file.rows for c in store.commits("score") for file in c.files)
        doc_id = digest(b"7/7")
        found = measure(data / SNAPSHOT, doc_id, args.repeats)
    say(f"{rows:,} scored calls, {commits:,} commits, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    say(f"{'':9} {'answer, best':>13} {'median':>8} {'worst':>8} {'CPU':>8} {'process':>9} {'peak MiB':>9}")
    for name, own in found.items():
        a, b, c, cpu, d, e = own.values()
        say(f"{name:9} {a:>11.3f} s {b:>6.3f} s {c:>6.3f} s {cpu:>6.3f} s {d:>7.3f} s {e:>9.1f}")
    say(f"\npublish   {published['first_s']:.1f} s anew ({published['first_peak_mib']:.0f} MiB),")
    say(f"{published['again_s']:.1f} s where nothing changed ({published['again_peak_mib']:.0f} MiB)")
    if args.json:
        report = {"calls": rows, "commits": commits, "load": os.getloadavg()[0], "publish": published, **found}
        print_json(report)


if __name__ == "__main__":
    main()
