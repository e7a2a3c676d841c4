"""The flow, end to end and in process: the embedded model on a few documents, then the same again."""

import dataclasses
import json
from pathlib import Path

import pytest
from safetensors.numpy import save_file

import toolformer_core as tf
from flows.build_dataset.flow import _why_rejected, run_build
from flows.build_dataset.plan import plan_build
from flows.build_dataset.resolve import resolve
from flows.export.find import find_dataset
from flows.export.run import export_dataset
from flows.runtime.ledger import Ledger
from tests.support.small_builds import Built, examples_in, small_build, write_jsonl
from tests.support.stage_runs import ingest
from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import TOOL_NAMES, IngestConfig
from toolformer_core.diagnose.gold import read_gold
from toolformer_core.errors import CorpusError, UsageError
from toolformer_core.records import Document, document_id
from toolformer_core.syntax import strip
from warehouse.catalog import Catalog
from warehouse.commits import Run
from warehouse.errors import StoreError
from warehouse.queries import rows_of, stats
from warehouse.store import Store

TOOLS = ("calculator", "calendar")


def test_every_row_is_accounted_for(built: Built) -> None:
    result, _, _ = built
    found = stats(result.snapshot)
    assert found.conserved
    by = {(b.stage, b.tool, b.unit): b for b in found.balances}
    ingest = by["ingest", "", "rows"]
    # 16 documents, then one line cut off, one without a text, one repeated
    assert (ingest.rows_in, ingest.kept) == (19, 16)
    assert ingest.failed == {"broken_json": 1, "duplicate": 1, "no_text": 1}
    for tool in TOOLS:
        # what one stage keeps is what the next one gets
        assert by["prefilter", tool, "documents"].rows_in == 16
        assert by["sample", tool, "documents"].rows_in == by["prefilter", tool, "documents"].kept
        assert by["score", tool, "calls"].rows_in >= by["execute", tool, "calls"].kept
    assert by["assemble", "", "calls"].rows_in == sum(by["score", tool, "calls"].kept for tool in TOOLS)
    assert by["assemble", "", "documents"].rows_in == 16


def test_the_calendars_latest_date_is_the_corpuss(built: Built, few_documents: Path) -> None:
    _, data, _ = built
    rows = [json.loads(line) for line in few_documents.read_text().splitlines() if line.endswith("}")]
    newest = max(row["timestamp"][:10] for row in rows if "timestamp" in row)
    used = {c.tool: c.config["latest_date"] for c in Store(data).commits("prefilter")}
    assert used == {"calculator": "", "calendar": newest}


def test_stripping_an_example_gives_the_document_back(built: Built) -> None:
    result, data, _ = built
    store = Store(data)
    (dataset,) = store.datasets()
    texts = {r["doc_id"]: r["text"] for r in rows_of(result.snapshot, "SELECT doc_id, text FROM documents")}
    examples = examples_in(store, dataset)
    assert examples
    assert result.examples == len(examples)
    for example in examples:
        assert strip(example.text, [(c.start, c.end) for c in example.calls]) == texts[example.doc_id]
        for call in example.calls:
            said = example.text[call.start : call.end]
            assert said == f" [{TOOL_NAMES[call.tool]}({call.input}) -> {call.response}]"


def test_altered_data_is_found_and_done_again(built: Built, few_documents: Path) -> None:
    result, data, _ = built
    victim = sorted((data / "shards" / "score" / "calendar").glob("*.parquet"))[0]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-9] + b"something")
    again = run_build(small_build(few_documents, data))
    assert again.done == 1
    assert again.version == result.version
    assert victim.read_bytes() == whole
    assert list((data / "quarantine").rglob("*.parquet"))


def test_a_separator_that_a_text_holds_is_refused(built: Built, tmp_path: Path) -> None:
    store, out = Store(built[1]), tmp_path / "out"
    export_dataset(store, "cstar", "text", out, separator="###")
    texts = [example.text for example in examples_in(store, find_dataset(store, "cstar"))]
    assert out.read_text(encoding="utf-8").split("\n###\n") == [*texts, ""]
    with pytest.raises(UsageError, match="holds a line"):
        export_dataset(store, "cstar", "text", tmp_path / "other", separator=texts[0].splitlines()[0])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "out.card.md", "out.manifest.json"]


def test_prompts_that_are_not_there_are_missed_before_anything_runs(few_documents: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such-folder"):
        resolve(small_build(few_documents, tmp_path, prompts="no-such-folder"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("corpus", "says"),
    [
        (
            b'{"body": "one"}\n{"body": "two"}\n',
            "no_text 2 (looked for text, raw_content, content; the row has body: name one with --columns text=NAME)",
        ),
        # its first bytes are no UTF-8; behind the byte of the line's end there is one more, which is no JSON
        (
            '{"text": "one"}\n'.encode("utf-16"),
            "not_utf8 1 (convert the corpus to UTF-8, e.g. by iconv), broken_json 1",
        ),
        (b"\n\n[1]\n", "blank 2, not_an_object 1 (each row must be one JSON object)"),
    ],
)
def test_why_no_row_is_a_usable_document(tmp_path: Path, corpus: bytes, says: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(corpus)
    spec = resolve(small_build(path, tmp_path / "data"))
    assert _why_rejected(spec.store(), ingest(spec)).startswith(f"{says}; every row's own is in ")


def test_a_corpus_without_a_usable_row_ends_the_build(prefect_server: None, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n", encoding="utf-8")
    for _ in range(2):  # the second build finds the corpus read
        with pytest.raises(UsageError) as caught:
            run_build(small_build(path, tmp_path / "data"))
        assert f"no row of {path} is a usable document: blank 1; " in str(caught.value)
        assert "\n" not in str(caught.value)


def test_workers_elsewhere_get_full_paths(few_documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.jsonl").write_bytes(few_documents.read_bytes())
    (tmp_path / "passages.jsonl").write_text('{"title": "A", "text": "b c"}\n', encoding="utf-8")
    (tmp_path / "phrases.tsv").write_text("fr\tchat\tcat\n", encoding="utf-8")
    (tmp_path / "model").mkdir()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / "model" / name).write_text("{}", encoding="utf-8")
    save_file({}, tmp_path / "model" / "model.safetensors")
    asked = {"model": "model", "passages": "passages.jsonl", "translator": "phrases.tsv"}
    spec = resolve(small_build(Path("few.jsonl"), Path("data"), **asked))
    assert [spec.data, spec.corpus, spec.model] == [str(tmp_path / name) for name in ("data", "few.jsonl", "model")]
    assert spec.tool_settings.passages == tmp_path / "passages.jsonl"
    assert spec.tool_settings.translator == str(tmp_path / "phrases.tsv")
    # names that are no paths stay what they are, though a folder be called so
    (tmp_path / "embedded").mkdir()
    other = resolve(small_build(Path("few.jsonl"), Path("data"), data="memory://data"))
    assert (other.data, other.model) == ("memory://data", "embedded")


def test_work_that_went_elsewhere_is_not_passed_over(few_documents: Path, tmp_path: Path) -> None:
    spec = resolve(small_build(few_documents, tmp_path / "here"))
    elsewhere = dataclasses.replace(spec, data=str(tmp_path / "elsewhere"))
    done = ingest(elsewhere)
    run = Run("r", "build-dataset", "2024-01-01", None, "running", {}, "c", "m")
    with Catalog(tmp_path / "catalog.duckdb") as catalog:
        ledger = Ledger(spec.store(), catalog, run)
        with pytest.raises(StoreError, match="here does not hold it"):
            ledger.add(done)
    assert not ledger.keys


def test_the_calls_are_those_of_a_build(built: Built) -> None:
    result, data, _ = built
    documents = rows_of(result.snapshot, "SELECT doc_id, text, url FROM documents ORDER BY line")
    # the settings of `small_build`
    annotations = tf.annotate_texts(
        [row["text"] for row in documents],
        tf.load_model("embedded"),
        ["calculator", "calendar"],
        urls=[row["url"] for row in documents],
        top_k=3,
        samples=2,
        tau_f={"calendar": 0.2},
    )
    assert [row["doc_id"] for row in documents] == [document_id(row["text"], row["url"]) for row in documents]
    keys = ("tool", "position", "input", "response", "count")
    losses = ("log_p", "loss_plain", "loss_call", "loss_response")
    found = {
        (row["doc_id"], *(getattr(call, key) for key in keys)): [getattr(call, loss) for loss in losses]
        for row, annotation in zip(documents, annotations, strict=True)
        for call in annotation.calls
    }
    scored = rows_of(result.snapshot, "SELECT * FROM scored")
    assert len(scored) == len(found) > 10  # the comparison is about something
    for row in scored:
        # a build's shards are other batches, and sums of floats differ by their order
        own = found[row["doc_id"], *(row[key] for key in keys)]
        assert own == [None if row[loss] is None else pytest.approx(row[loss], abs=1e-4) for loss in losses]
    store = Store(data)
    [dataset] = [one for one in store.datasets() if (one.version, one.made) == (result.version, result.made)]
    told = zip(documents, annotations, strict=True)
    kept = {row["doc_id"]: annotation.annotated for row, annotation in told if annotation.kept}
    assert kept == {example.doc_id: example.text for example in examples_in(store, dataset)} != {}


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
