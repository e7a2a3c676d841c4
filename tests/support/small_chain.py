"""A data folder as flows would have left it, by hand: five documents to C*, a checkpoint, a benchmark and an export.

Two shards (3 and 2 documents), one tool. The prefilter keeps two of shard 0 and none of shard 1: later files are empty.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.wh_fixtures import a_training, make_commit, make_run, put, put_dataset, scored, table
from toolformer_core.finetune.recipe import Recipe
from warehouse.commits import Commit, Dataset, RowCounts, fingerprint
from warehouse.records import Export, write_export, write_training
from warehouse.schema import REJECTS
from warehouse.store import Store

BUILD, EVALUATION = "20240501-120000-aaaaaa", "20240502-120000-bbbbbb"
JOB = "cstar-toolformer-0123456789abcdef"
BEGAN = "2024-05-01T11:59:00.000000+00:00"  # of the build
_TOOL = "calculator"
_MODEL = {"model": "m" * 32}


def documents(store: Store, run: str = BUILD) -> Commit:
    parts = {"config": "c", "code": "ingest/2", "inputs": "corpus-digest"}
    key = fingerprint(parts)
    files = [
        store.write(
            "ingest", "", "corpus", key, table("ingest", [{"doc_id": f"d{n}"} for n in shard]), f"part-0000{at}"
        )
        for at, shard in enumerate(((0, 1, 2), (3, 4)))
    ]
    bad = {"source": "c", "line": 9, "reason": "no_text", "detail": "", "raw": ""}
    rejected = store.write_rejects("ingest", "", "corpus-00002", key, pa.Table.from_pylist([bad], schema=REJECTS))
    counts = (RowCounts("rows", 6, 5, failed={"no_text": 1}),)
    commit = make_commit("ingest", "", "corpus", [*files, rejected], parts=parts, balances=counts, run_id=run)
    store.commit(commit)
    return commit


def _shard(store: Store, source: Commit, number: int) -> list[Commit]:
    ids = (["d0", "d1", "d2"], ["d3", "d4"])[number]
    kept = ids[:2] if number == 0 else []
    read = [source.files[number].digest]
    commits: list[Commit] = []

    def step(stage: str, rows: list[dict[str, Any]], inputs: list[str], **more: Any) -> str:
        tool = "" if stage == "assemble" else _TOOL
        own = {"code": f"{stage}/1", "inputs": f"{stage}-{number}", **more.pop("parts", {})}
        commits.append(
            put(store, stage, tool, f"part-0000{number}", rows, parts=own, inputs=tuple(inputs), run_id=BUILD, **more)
        )
        return commits[-1].files[0].digest

    dropped = {"few_numbers": len(ids) - len(kept)}
    verdicts = [{"doc_id": doc, "tool": _TOOL, "kept": doc in kept, "context": "", "spans": []} for doc in ids]
    read.append(step("prefilter", verdicts, read[:1], balances=(RowCounts("documents", len(ids), len(kept), dropped),)))
    read.append(step("sample", [{"doc_id": doc, "tool": _TOOL} for doc in kept], read, parts=_MODEL))
    read.append(step("execute", [{"doc_id": doc, "tool": _TOOL} for doc in kept], read[1:]))
    scores = step("score", [scored(doc, _TOOL, 3, 1.0) for doc in kept], read, parts=_MODEL)
    examples = [{"doc_id": doc, "text": "x", "calls": []} for doc in kept[:1]]
    step("assemble", examples, [read[0], scores])
    return commits


def chain(folder: Path, *, state: str = "completed") -> Store:
    store = Store(folder)
    source = documents(store)
    commits = [source, *_shard(store, source, 0), *_shard(store, source, 1)]
    made_from = {"corpus": "/corpora/five.jsonl", "model": "gpt2"}
    told: dict[str, Any] = {"flow": "build-dataset", "state": state, "parameters": {"model": "gpt2"}, **made_from}
    if state != "running":
        told["finished"] = "2024-05-01T12:00:02.000000+00:00"
    if state == "completed":
        examples = [commit for commit in commits if commit.stage == "assemble"]
        figures = {"counts": {_TOOL: 1}, "thresholds": {_TOOL: 0.5}, "made": "123456789abc"} | made_from
        dataset = put_dataset(store, "cstar", examples, BUILD, created="2024-05-01T12:00:01+00:00", **figures)
        told["dataset"] = dataset.key
        _afterwards(store, dataset)
    store.write_run(make_run(BUILD, sorted(commit.key for commit in commits), BEGAN, **told))
    return store


def _afterwards(store: Store, dataset: Dataset) -> None:
    """A training on C*, an evaluation of its checkpoint, and an export."""
    given = {"version": dataset.version, "model": "gpt2", "model_digest": "m" * 32, "recipe": asdict(Recipe(steps=2))}
    finished = {"seconds": 7.0, "finished": "2024-05-01T13:00:07.000000+00:00"}
    write_training(store, a_training(JOB, **given, **finished))
    asked = {"task": "svamp", "path": "/benchmarks/svamp.json"}
    own: dict[str, Any] = {"run_id": EVALUATION}
    items = put(store, "benchmark", "", "svamp", [{"item_id": "i"}], config=asked, parts={"source": "s"}, **own)
    own["inputs"] = (items.files[0].digest,)
    models = {"model": f"{store.root}/finetunes/{JOB}/model", "model_digest": "trained", "base": "gpt2"}
    answers = put(store, "evaluate", "", "e-0", [{"item_id": "i"}], config={**models, "base_digest": "m"}, **own)
    began, ended = "2024-05-02T12:00:00.000000+00:00", "2024-05-02T12:01:00.000000+00:00"
    store.write_run(
        make_run(EVALUATION, [items.key, answers.key], began, flow="evaluate", finished=ended, model="gpt2")
    )
    rows = {"name": "cstar.jsonl", "split": "train", "rows": 1, "bytes": 10, "sha256": "f" * 64}
    export = Export(dataset.key, "jsonl", "/exports", (rows,), "0.1.0", "2024-05-01T14:00:00.000000+00:00")
    write_export(store, export)
