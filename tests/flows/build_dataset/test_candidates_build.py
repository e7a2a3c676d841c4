"""`--candidates`: calls of a file are executed and scored in place of sampled ones."""

from pathlib import Path

import pytest

from flows.build_dataset.flow import run_build
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from tests.support.small_builds import small_build, write_jsonl
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.diagnose.gold import read_gold
from toolformer_core.errors import CorpusError
from toolformer_core.records import Document
from warehouse.queries import rows_of


def test_gold_calls_are_scored_and_kept_by_gain(prefect_server: None, few_documents: Path, tmp_path: Path) -> None:
    documents = {row.url for row in read_corpus(str(few_documents), IngestConfig()) if isinstance(row, Document)}
    urls = {document.doc_id: document.url for document in read_gold().documents}
    every = (call for calls in read_gold().calls.values() for call in calls)
    gold = [call for call in every if call.tool == "calculator" and urls[call.doc_id] in documents]
    rows = [
        {"url": urls[call.doc_id], "calls": [{"tool": call.tool, "input": call.input, "position": call.position}]}
        for call in gold
    ]
    file = write_jsonl(tmp_path / "calls.jsonl", rows)
    asked = small_build(few_documents, tmp_path / "data", tools=["calculator"], candidates=str(file))
    result = run_build(asked)

    def found(table: str) -> set[tuple[str, str, int]]:
        sql = f"SELECT d.url, t.input, t.position FROM {table} t JOIN documents d USING (doc_id)"
        return {(row["url"], row["input"], row["position"]) for row in rows_of(result.snapshot, sql)}

    sql = "SELECT d.url FROM prefiltered p JOIN documents d USING (doc_id) WHERE p.kept"
    passing = {row["url"] for row in rows_of(result.snapshot, sql)}
    wanted = {(urls[c.doc_id], c.input, c.position) for c in gold if urls[c.doc_id] in passing}
    assert found("sampled") == found("scored") == wanted
    kept = rows_of(result.snapshot, "SELECT gain FROM kept_calls")
    assert 0 < len(kept) <= len(wanted)
    assert min(row["gain"] for row in kept) >= 0.5  # the calculator's tau_f
    assert {shard.state for shard in plan_build(asked).shards} == {"cached"}

    write_jsonl(file, rows[:1])  # other calls are other work
    assert "cached" not in {s.state for s in plan_build(asked).shards if s.stage == "sample"}


def test_a_file_that_cannot_be_read_ends_the_build_before_it_begins(few_documents: Path, tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text('{"url": "a"}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match="line 1: no 'calls' in it"):
        resolve(small_build(few_documents, tmp_path / "data", candidates=str(file)))
    with pytest.raises(CorpusError):  # as of an empty variable of the shell: calls are not sampled instead
        resolve(small_build(few_documents, tmp_path / "data", candidates=""))
