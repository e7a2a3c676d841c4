"""A corpus read in parts: the same bytes, however many are read at a time and however often they are killed."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.shards import corpus as corpus_module
from tasks.shards.corpus import corpus_digest, keep_digests, part_specs
from tasks.shards.reading import read_in_process
from tasks.shards.run_shard import ShardResult
from tasks.specs.build_spec import BuildSpec
from tasks.stages.ingest import read_stages
from tests.support.stage_runs import calculator_spec, ingest
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.records import Document
from warehouse.store import Store

DOCUMENTS = 200
SHARD = 7


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_BLOCK", 512)
    monkeypatch.setattr(corpus_module, "_READ", 64)
    monkeypatch.setattr(corpus_module, "_entries", {})


@pytest.fixture
def spec(tmp_path: Path) -> BuildSpec:
    write_corpus(tmp_path / "corpus")
    return calculator_spec(tmp_path / "data", tmp_path / "corpus", ingest=IngestConfig(shard_documents=SHARD))


def write_corpus(folder: Path, documents: int = DOCUMENTS) -> None:
    """One large file, three small ones; a broken row in each, and every document of `a/` again in `b.jsonl`."""
    draw = random.Random(0)
    texts = [f"Document {n} " + "x" * draw.randrange(60) for n in range(documents)]
    (folder / "a").mkdir(parents=True)
    for name, own in {"a/1": texts[:3], "a/2": texts[3:6], "a/3": texts[6:9], "b": texts}.items():
        rows = [json.dumps({"text": text}) for text in own]
        (folder / f"{name}.jsonl").write_text("\n".join([rows[0], "{", *rows[1:]]), encoding="utf-8")


def read_ahead(spec: BuildSpec, workers: int) -> None:
    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(read_stages, part_specs(spec)))


def rows(spec: BuildSpec, result: ShardResult) -> tuple[list[tuple[object, ...]], set[tuple[object, ...]]]:
    store = spec.store()
    [commit] = (one for one in store.commits("ingest") if one.key == result.key)
    names = ("doc_id", "text", "source", "line")
    documents = [tuple(r[n] for n in names) for f in result.files for r in store.read(f).to_pylist()]
    rejected = [f for f in commit.files if f not in result.files]
    return documents, {(r["source"], r["line"], r["reason"]) for f in rejected for r in store.read(f).to_pylist()}


@pytest.mark.parametrize("workers", [1, 4])
def test_the_parts_hold_what_the_corpus_read_in_one_go_holds(spec: BuildSpec, workers: int) -> None:
    assert len(part_specs(spec)) > 4
    read_ahead(spec, workers)
    result = ingest(spec)
    stream = list(read_corpus(spec.corpus, spec.ingest))
    expected = [(d.doc_id, d.text, d.source, d.line) for d in stream if isinstance(d, Document)]
    rejected = {(d.source, d.line, d.reason) for d in stream if not isinstance(d, Document)}
    assert rows(spec, result) == (expected, rejected)
    (counts,) = result.counts
    # 9 documents stand twice, and each of the 4 files has a broken row: 200 + 9 + 4
    assert (counts.rows_in, counts.kept, counts.failed) == (213, 200, {"broken_json": 4, "duplicate": 9})


@pytest.mark.parametrize("limit", [1, 8, 9, 10, 30])
def test_a_limit_cuts_the_same_documents(spec: BuildSpec, limit: int) -> None:
    whole, _ = rows(spec, ingest(spec))
    assert rows(spec, ingest(replace(spec, ingest=replace(spec.ingest, limit=limit))))[0] == whole[:limit]


def test_a_process_reads_ahead_and_leaves_what_it_cannot_read_to_ingest(spec: BuildSpec) -> None:
    parts = part_specs(spec)
    broken = replace(parts[1], part=replace(parts[1].part, files=(Path(spec.corpus) / "gone.jsonl",)))
    read_in_process([parts[0], broken, parts[2]])
    assert len(list(spec.store().commits("read"))) == 1
    undisturbed = ingest(replace(spec, data=f"{spec.data}-2"))
    assert ingest(spec).files == undisturbed.files


class Killed(BaseException):
    """Stands for a kill: nothing behind it runs."""


@pytest.mark.parametrize("workers", [1, 4])
def test_an_ingest_killed_five_times_ends_in_the_same_bytes(
    spec: BuildSpec, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    undisturbed = ingest(replace(spec, data=f"{spec.data}-2"))
    draw, create = random.Random(workers), Store.write

    def attempt(writes: int) -> ShardResult | None:
        left = [writes]

        def write(*arguments: object, **named: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return create(*arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Store, "write", write)
        try:
            read_ahead(spec, workers)
            return ingest(spec)
        except Killed:
            return None

    assert not any(attempt(workers + draw.randrange(1, 4)) for _ in range(5))
    done = len(list(spec.store().commits("read")))
    assert 0 < done < len(part_specs(spec))
    finished = attempt(1000)
    assert finished is not None
    assert (finished.key, finished.files, finished.counts) == (undisturbed.key, undisturbed.files, undisturbed.counts)


def test_a_part_that_was_read_is_not_read_again_when_the_corpus_grows(spec: BuildSpec) -> None:
    ingest(spec)
    before = {commit.id for commit in spec.store().commits("read")}
    (Path(spec.corpus) / "a" / "0.jsonl").write_text(json.dumps({"text": "y" * 490}), encoding="utf-8")
    grown = replace(spec, corpus_digest="c2")
    assert len(rows(grown, ingest(grown))[0]) == DOCUMENTS + 1
    after = {commit.id for commit in spec.store().commits("read")}
    assert (before < after, len(after - before)) == (True, 1)


def test_a_digest_follows_content_and_place_and_is_taken_once(
    spec: BuildSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = spec.store(), Path(spec.corpus)
    first = corpus_digest(spec.corpus, store)
    keep_digests(spec.corpus, store)

    def digest() -> str:
        monkeypatch.setattr(corpus_module, "_entries", {})  # as in another process
        return corpus_digest(spec.corpus, store)

    blocks: list[Path] = []
    read_block: Callable[[tuple[Path, int]], tuple[str, int]] = corpus_module._digest_block
    monkeypatch.setattr(corpus_module, "_digest_block", lambda block: blocks.append(block[0]) or read_block(block))
    assert digest() == first
    assert blocks == []
    (folder / "a" / "3.jsonl").rename(folder / "c.jsonl")  # its rows name another file now
    assert digest() != first
    assert blocks == [folder / "c.jsonl"]
    (folder / "c.jsonl").rename(folder / "a" / "3.jsonl")
    stat = (folder / "b.jsonl").stat()
    (folder / "b.jsonl").write_bytes((folder / "b.jsonl").read_bytes().replace(b"199", b"991"))
    os.utime(folder / "b.jsonl", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    changed = digest()
    assert changed != first
    folder.rename(tmp_path / "elsewhere")
    assert corpus_digest(str(tmp_path / "elsewhere"), store) == changed


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
def test_a_process_killed_five_times_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(corpus_module, "_BLOCK", 4096)
    write_corpus(tmp_path / "corpus", 3000)
    data, config = tmp_path / "data", IngestConfig(shard_documents=SHARD)
    undisturbed = ingest(calculator_spec(tmp_path / "whole", tmp_path / "corpus", ingest=config))
    draw = random.Random(workers)
    for _ in range(5):
        command = [sys.executable, "-c", _READER, str(data), str(tmp_path / "corpus"), str(workers)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(draw.randrange(1, 6)):
                assert process.stdout.readline()
            process.kill()
    spec = calculator_spec(data, tmp_path / "corpus", ingest=config)
    assert 5 <= len(list(spec.store().commits("read"))) < len(part_specs(spec))
    read_ahead(spec, workers)
    assert ingest(spec).files == undisturbed.files


_READER = """
import sys
from tasks.specs import build_spec
from tests.tasks import test_corpus as t

class Telling(t.Store):
    def commit(self, commit):
        committed = super().commit(commit)
        print(commit.id, flush=True)
        return committed

build_spec.Store = Telling
t.corpus_module._BLOCK = 4096
spec = t.calculator_spec(sys.argv[1], sys.argv[2], ingest=t.IngestConfig(shard_documents=t.SHARD))
t.read_ahead(spec, int(sys.argv[3]))
t.ingest(spec)
"""
