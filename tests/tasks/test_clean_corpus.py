"""A corpus without items of benchmarks: what is dropped and why, in whatever parts the corpus is read."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from wh_fixtures import make_run, put, scored, snapshot_of

from flows.build_dataset.pipeline import assembly_spec_of
from flows.report.document_trace import trace_document
from tasks.shards import corpus as corpus_module
from tasks.shards.run_shard import result_of
from tasks.shards.stage import Inputs, run_stage
from tasks.specs.build_spec import BuildSpec
from tasks.specs.decontamination import Decontamination
from tasks.specs.example_limit import with_limits
from tasks.stages.assemble import ASSEMBLE
from tasks.stages.ingest import with_shared_words
from tests.support.commands import Run
from tests.support.stage_runs import calculator_spec, ingest
from toolformer_core.config import IngestConfig
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import document_id
from warehouse.queries import rows_of, stats
from warehouse.queries.builds import BenchmarkInCorpus

PROBLEM = {"Body": "Dan has 8 pens and gives 3 of them away.", "Question": "How many are left?", "Answer": 5}
WHOLE = "He says: dan has 8 pens, and gives 3 of them AWAY. How many are left?"  # thirteen words of it in a row
QUESTION = "who was the first king of the isles"  # eight words: all of them count
LINE = "alpha beta gamma delta epsilon zeta"  # six


def write_corpus(folder: Path, texts: Sequence[str]) -> Path:
    folder.mkdir()
    rows = [json.dumps({"text": text}) + "\n" for text in texts]
    (folder / "a.jsonl").write_text("".join(rows[: len(rows) // 3]), encoding="utf-8")
    (folder / "b.jsonl").write_text("".join(rows[len(rows) // 3 :]), encoding="utf-8")
    return folder


@pytest.fixture
def benchmarks(tmp_path: Path) -> list[str]:
    (tmp_path / "SVAMP.json").write_text(json.dumps([PROBLEM]), encoding="utf-8")
    (tmp_path / "dev.jsonl").write_text(json.dumps({"question": QUESTION, "answer": ["x"]}) + "\n", encoding="utf-8")
    (tmp_path / "own.txt").write_text(f"\n{LINE}\nnot long enough\n", encoding="utf-8")
    return [str(tmp_path / "SVAMP.json"), f"nq={tmp_path / 'dev.jsonl'}", str(tmp_path / "own.txt")]


def found(spec: BuildSpec) -> tuple[list[str], dict[tuple[str, int, str], str], dict[str, int]]:
    """Return the texts that are kept, why lines are not (file, line, reason), and the counts of documents dropped."""
    result, store = ingest(spec), spec.store()
    [commit] = (one for one in store.commits("ingest") if one.key == result.key)
    texts = [row["text"] for file in result.files for row in store.read(file).to_pylist()]
    rejects = [row for file in commit.files if file not in result.files for row in store.read(file).to_pylist()]
    return texts, {(r["source"], r["line"], r["reason"]): r["detail"] for r in rejects}, result.counts[0].dropped


def test_documents_with_items_are_dropped_by_the_benchmarks_name(
    tmp_path: Path, benchmarks: list[str], run: Run
) -> None:
    texts = ["Nothing.", WHOLE, f"So {QUESTION}? {LINE}", f"{LINE}.", f"{LINE}.", "Dan has 8 pens and gives them away."]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    plain = calculator_spec(tmp_path / "data", tmp_path / "c.jsonl")
    spec = replace(plain, decontamination=Decontamination.of(benchmarks, 13))
    kept, rejects, dropped = found(spec)
    assert kept == ["Nothing.", "Dan has 8 pens and gives them away."]
    assert dropped == {"benchmark:nq": 1, "benchmark:own": 1, "benchmark:svamp": 1}
    words, doc = "dan has 8 pens, and gives 3 of them AWAY. How many are left", document_id(WHOLE, None)
    detail = rejects["c.jsonl", 2, "benchmark:svamp"]
    assert detail.startswith(f"document {doc} holds words of item ")
    assert detail.endswith(f": {words}")
    assert {line for _, line, reason in rejects if reason == "duplicate"} == {5}
    path = snapshot_of(spec.store())
    rows = rows_of(path, "SELECT doc_id, benchmark, like_doc_id, likeness FROM dropped_documents WHERE line = 2")
    assert [tuple(row.values()) for row in rows] == [(doc, "svamp", None, None)]
    report = [BenchmarkInCorpus(name, items, 1, 1, None) for name, items in {"nq": 1, "own": 2, "svamp": 1}.items()]
    assert list(stats(path).benchmarks) == report
    out = " ".join(run("explain", doc[:12], "--data", tmp_path / "data").out.split())
    assert "dropped as benchmark:svamp" in out
    assert words in out
    told = "svamp: 1 of 1 items stood in the corpus, 1 documents dropped, not annotated"
    assert told in run("stats", "--data", tmp_path / "data").out


def test_calls_near_shared_words_go_where_documents_stay(tmp_path: Path, run: Run) -> None:
    (tmp_path / "own.txt").write_text(f"{LINE}\n", encoding="utf-8")
    texts = [f"One {LINE} and so on.", "Nothing at all.", f"One {LINE} and so on."]
    plain = calculator_spec(tmp_path / "data", write_corpus(tmp_path / "corpus", texts))
    given = [str(tmp_path / "own.txt")]
    spec = replace(plain, decontamination=Decontamination.of(given, 13, calls_only=True))
    kept, rejects, dropped = found(spec)
    assert (kept, dropped, {reason for *_, reason in rejects}) == (texts[:2], {}, {"duplicate"})
    result = ingest(spec)
    assert result.key not in {ingest(plain).key, ingest(replace(spec, decontamination=None)).key}
    doc, other = (document_id(text, None) for text in texts[:2])
    spec = with_shared_words(spec)
    # "One " is 4 characters long, and the line 6 words of 5, 4, 5, 5, 7 and 4 letters with 5 spaces: 35
    assert spec.shared_words == {doc: [(4, 39, "benchmark:own")]}
    store = spec.store()
    windows = {0: 4, 39: 44, 1: 5, 38: 44}  # position -> end of what it is judged by: in the first two no shared words
    calls = [
        *(scored(doc, "calculator", at, 1.0, input=f"{at}", window_end=end) for at, end in windows.items()),
        scored(doc, "calculator", 30, 0.1, input="30", window_end=33),  # it would not be kept in any case
        scored(other, "calculator", 4, 1.0),
    ]
    losses = put(store, "score", "calculator", "part-00000", calls, inputs=[result.files[0].digest])
    scores = {"part-00000": [result_of(losses, skipped=True)]}
    assembly = with_limits(assembly_spec_of(spec), scores)
    files = {"ingest": result.files, "score": losses.files}
    done = run_stage(ASSEMBLE, Inputs(assembly, "part-00000", files=files))
    assert done.counts[0].dropped == {"below_threshold": 1, "benchmark:own": 2}
    kept_calls = store.read(done.files[0])["calls"].to_pylist()
    assert [[call["position"] for call in calls] for calls in kept_calls] == [[0, 39], [4]]
    without = run_stage(ASSEMBLE, Inputs(replace(assembly, shared_words={}), "part-00000", files=files))
    assert without.key != done.key
    store.write_run(make_run("r", [result.key, losses.key, done.key]))
    path = snapshot_of(store)
    assert stats(path).benchmarks == (BenchmarkInCorpus("own", 1, 1, 0, 2),)
    told = "own: 1 of 1 items stood in the corpus, 2 kept calls dropped"
    assert told in run("stats", "--data", tmp_path / "data").out
    outcomes = {call["position"]: call["outcome"] for call in trace_document(store, path, doc).calls}
    assert outcomes == {0: "kept", 39: "kept", 30: "below_threshold", 1: "benchmark:own", 38: "benchmark:own"}


def test_no_part_beyond_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text(f"{LINE}\n", encoding="utf-8")
    corpus = write_corpus(tmp_path / "corpus", [f"One {LINE}.", "Two.", f"Three {LINE}."])  # the first has its own file
    decontamination = Decontamination.of([str(tmp_path / "own.txt")], 13, calls_only=True)
    spec = calculator_spec(tmp_path / "data", corpus, ingest=IngestConfig(limit=1), decontamination=decontamination)
    spec = replace(spec, deduplicate=True)
    assert found(spec)[0] == [f"One {LINE}."]
    assert list(with_shared_words(spec).shared_words) == [document_id(f"One {LINE}.", None)]
    assert len(list(spec.store().commits("read"))) == 1


def test_what_is_named_differently_is_done_again_and_off_nothing_changes(tmp_path: Path, benchmarks: list[str]) -> None:
    plain = calculator_spec(tmp_path / "data", write_corpus(tmp_path / "corpus", [WHOLE, LINE, "Nothing."]))
    specs = [replace(plain, decontamination=Decontamination.of(benchmarks, words)) for words in (13, 4)]
    keys = {ingest(spec).key for spec in (plain, *specs)}
    assert len(keys) == 3
    assert ingest(plain).skipped
    assert len(list(plain.store().commits("read"))) == 1  # of the corpus, once for all
    Path(benchmarks[0]).write_text(json.dumps([{**PROBLEM, "Body": "Dan has 9 pens."}]), encoding="utf-8")
    other = Decontamination.of(benchmarks, 13)
    assert other is not None
    assert ingest(replace(plain, decontamination=other)).key not in keys
    with pytest.raises(UsageError, match="have changed since the build began"):
        replace(other, digest="other").finder()


def test_near_duplicates_are_dropped_and_explained(tmp_path: Path, run: Run) -> None:
    text = "Of the 587 books of the library 58 are lent out, and only 529 are left."
    other = "Something else that nobody has said before."
    texts = [text, other, text.upper(), f"{text} ", "one two three", "One two three"]
    plain = calculator_spec(tmp_path / "data", write_corpus(tmp_path / "corpus", texts))
    off = ingest(plain)
    spec = replace(plain, deduplicate=True)
    kept, rejects, dropped = found(spec)
    assert kept == [text, other, "one two three", "One two three"]
    assert dropped == {"near_duplicate": 2}
    first, second = document_id(text, None), document_id(texts[2], None)
    assert rejects["b.jsonl", 1, "near_duplicate"] == f"document {second} is like {first} (1.00)"
    assert ingest(spec).key != off.key
    data = tmp_path / "data"
    limited = replace(spec, data=f"{data}-2", ingest=IngestConfig(limit=3))  # one of three is a near-duplicate
    assert found(limited)[0] == [text, other]
    spec.store().files.delete(f"commits/{off.key.id}.json")
    snapshot_of(spec.store())
    assert f"is like {first} (1.00)" in " ".join(run("explain", second, "--data", data).out.split())
    explained = json.loads(run("explain", first, "--data", data, "--json").out)
    alike = {(one["doc_id"], one["likeness"]) for one in explained["near_duplicates"]}
    assert alike == {(second, 1.0), (document_id(texts[3], None), 1.0)}
    assert "near-duplicates dropped" in run("explain", first, "--data", data).out


@pytest.mark.parametrize(
    ("given_", "error", "says"),
    [
        ("test.jsonl", UsageError, "which benchmark is it"),
        ("svmp=test.jsonl", UnknownNameError, "svamp"),
        ("gone.txt", Exception, "gone.txt"),
    ],
)
def test_a_benchmark_that_is_none_is_named(given_: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Decontamination.of([given_], 13)


READ = 16  # bytes


def texts_of(fewest: int, most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(["a", "b", "c"]), min_size=fewest, max_size=most).map(" ".join)


@settings(deadline=None, max_examples=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    texts=st.lists(texts_of(1, 9), min_size=1, max_size=12).flatmap(
        lambda texts: st.permutations([*texts, *map(str.upper, texts)])  # each with a near-duplicate
    ),
    items=st.lists(texts_of(3, 6), min_size=1, max_size=3),
    block=st.integers(1, 10).map(lambda n: n * READ),
    limit=st.none() | st.integers(1, 8),
)
def test_the_parts_of_the_corpus_change_nothing(
    texts: list[str], items: list[str], block: int, limit: int | None
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        (folder / "items.txt").write_text("\n".join(items), encoding="utf-8")
        corpus = write_corpus(folder / "corpus", texts)
        results: list[Any] = []
        patch.setattr(corpus_module, "_READ", READ)
        for size in (1 << 20, block):
            patch.setattr(corpus_module, "_BLOCK", size)
            patch.setattr(corpus_module, "_entries", {})
            clean = {"decontamination": Decontamination.of([str(folder / "items.txt")], 3), "deduplicate": True}
            config = IngestConfig(shard_documents=3, limit=limit)
            kept, rejects, dropped = found(calculator_spec(folder / str(size), corpus, ingest=config, **clean))
            # a part is read up to the limit by itself, so more of its own duplicates may be counted
            results.append((kept, {key: why for key, why in rejects.items() if key[2] != "duplicate"}, dropped))
    assert results[0] == results[1]
