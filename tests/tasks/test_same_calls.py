"""Equal calls of many documents: how many keep one, which ones, and what is said of the others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wh_fixtures import make_run, put, scored, snapshot_of

from flows.build_dataset.pipeline import assembly_spec_of
from flows.report.document_trace import trace_document
from tasks.shards.run_shard import ShardResult, result_of
from tasks.shards.stage import Inputs, run_stage
from tasks.specs.example_limit import with_limits
from tasks.stages.assemble import ASSEMBLE, AssemblySpec
from tasks.stages.ingest import CORPUS, INGEST
from tests.fakes import a_scored
from tests.support.stage_runs import calculator_spec
from toolformer_core.annotate.assemble import cap_rank
from toolformer_core.annotate.call_filter import same_call_rank
from toolformer_core.config import AssembleConfig
from toolformer_core.records import AnsweredCall, ScoredCall
from warehouse.commits import CommitKey
from warehouse.queries import rows_of
from warehouse.queries.builds import KeptCalls, kept_calls, stats
from warehouse.store import Store

DOCS = [f"{number:032x}" for number in range(6)]
CALL_TEXT = {"input": "1 + 1", "response": "2"}
CALL = {"tool": "calculator", **CALL_TEXT}
TEXT = "Two and two makes 4, and three and three makes 6."
# All six documents hold 1 + 1 -> 2, the last one twice, far apart; two of them another call, one another response.
CALLS: list[dict[str, Any]] = [
    *(scored(doc, "calculator", 4, 2.0) for doc in DOCS),
    scored(DOCS[5], "calculator", 30, 1.5),
    scored(DOCS[0], "calculator", 20, 1.0, input="3 + 3", response="6"),
    scored(DOCS[1], "calculator", 20, 1.0, input="3 + 3", response="6"),
    scored(DOCS[2], "calculator", 20, 1.0, response="2.0"),
]


def equal_rank(doc: str, seed: int = 0) -> str:
    return same_call_rank(a_scored(doc), seed)[1]


def assembled(
    folder: Path, shards: Sequence[Sequence[str]], limit: int | None, **config: Any
) -> tuple[Store, dict[str, list[str]], dict[str, int], dict[str, ShardResult]]:
    """Assemble C* of the documents in these shards; return, beside the store, inputs by document, drops and results."""
    store = Store(folder)
    files, scores, keys = {}, {}, []
    for number, docs in enumerate(shards):
        name = f"part-{number:05d}"
        texts = [{"doc_id": doc, "text": TEXT} for doc in docs]
        read = put(store, "ingest", "", name, texts)
        calls = [call for call in CALLS if call["doc_id"] in docs]
        losses = put(store, "score", "calculator", name, calls, inputs=[read.files[0].digest])
        files[name], scores[name] = read.files, [result_of(losses, skipped=True)]
        keys += [read.key, losses.key]
    rules = AssemblySpec("r1", store.root, AssembleConfig(**config), {"calculator": "Calculator"}, max_same_call=limit)
    rules = with_limits(rules, scores)
    inputs_of = {name: {"ingest": files[name], "score": scores[name][0].files} for name in files}
    results = {name: run_stage(ASSEMBLE, Inputs(rules, name, files=own)) for name, own in inputs_of.items()}
    store.write_run(make_run("r1", [*keys, *(result.key for result in results.values())]))
    rows = [row for result in results.values() for file in result.files for row in store.read(file).to_pylist()]
    dropped = Counter[str]()
    for result in results.values():
        dropped.update(result.counts[0].dropped)
    inputs = {row["doc_id"]: [f"{call['input']} -> {call['response']}" for call in row["calls"]] for row in rows}
    return store, inputs, dropped, results


def test_so_many_documents_keep_equal_calls_wherever_they_stand(tmp_path: Path) -> None:
    stay = sorted(DOCS, key=equal_rank)[:2]
    one = assembled(tmp_path / "one", [DOCS], 2)
    assert {doc for doc, inputs in one[1].items() if "1 + 1 -> 2" in inputs} == set(stay)
    # the two documents with 3 + 3 and the one with another response keep these; a document's equal calls go together
    others = {doc: [one for one in inputs if one != "1 + 1 -> 2"] for doc, inputs in one[1].items()}
    kept = {DOCS[0]: ["3 + 3 -> 6"], DOCS[1]: ["3 + 3 -> 6"], DOCS[2]: ["1 + 1 -> 2.0"]}
    assert others == {doc: [] for doc in stay} | kept
    # seven calls 1 + 1 in six documents, of which two keep theirs
    assert one[2] == {"same_call": 7 - sum(inputs.count("1 + 1 -> 2") for inputs in one[1].values())}
    for name, shards in {"three": [DOCS[:1], DOCS[1:4], DOCS[4:]], "turned": [DOCS[3:], DOCS[:3]]}.items():
        _, inputs, dropped, _ = assembled(tmp_path / name, shards, 2)
        assert (inputs, dropped) == one[1:3]
    other = next(seed for seed in range(1, 9) if sorted(DOCS, key=lambda doc: equal_rank(doc, seed))[0] != stay[0])
    single = assembled(tmp_path / "seed", [DOCS], 1, seed=other)[1]
    [doc] = [doc for doc, inputs in single.items() if "1 + 1 -> 2" in inputs]
    assert doc == min(DOCS, key=lambda doc: equal_rank(doc, other)) != stay[0]


def test_a_shard_that_drops_none_is_the_shard_without_a_limit(tmp_path: Path) -> None:
    def keys(limit: int | None) -> list[CommitKey]:
        return [result.key for result in assembled(tmp_path, [DOCS[:3], DOCS[3:]], limit)[3].values()]

    off = keys(None)
    assert keys(6) == off
    on = keys(5)  # one of the six goes
    last = max(DOCS, key=equal_rank)
    assert [own != other for own, other in zip(on, off, strict=True)] == [last in DOCS[:3], last in DOCS[3:]]


def test_without_the_options_fingerprints_are_what_they_were(tmp_path: Path) -> None:
    spec = calculator_spec(tmp_path / "data", tmp_path / "c.jsonl")
    assembled = ASSEMBLE.shard_spec(Inputs(assembly_spec_of(spec), "part-00000")).key
    # as computed by the commit before there were such options; another version of a stage is another fingerprint
    assert assembled.fingerprint == "bb9acc86f3a62e5173dda40a4b080ddd"
    assert INGEST.shard_spec(Inputs(spec, CORPUS)).key.fingerprint == "5f690984dc65423919e82a06a73985c9"


def test_explain_and_stats_say_it(tmp_path: Path) -> None:
    store, inputs, _, _ = assembled(tmp_path, [DOCS[:3], DOCS[3:]], 2)
    path = snapshot_of(store)
    for doc in DOCS:
        outcomes = {call["position"]: call["outcome"] for call in trace_document(store, path, doc).calls}
        assert outcomes[4] == ("kept" if "1 + 1 -> 2" in inputs.get(doc, []) else "same_call")
    # distinct inputs: 1 + 1 and 3 + 3; distinct responses: 2, 2.0 and 6
    found = stats(path)
    calls = sum(map(len, inputs.values()))
    assert kept_calls(path) == (KeptCalls("calculator", calls, 2, 3),)
    assert sum(b.dropped.get("same_call", 0) for b in found.balances) == len(CALLS) - calls
    rows = rows_of(path, "SELECT doc_id, outcome, tau_f, won_by FROM call_outcomes WHERE position = 4 ORDER BY doc_id")
    stay = sorted(DOCS, key=equal_rank)[:2]
    expected = [(doc, "kept" if doc in stay else "same_call", 0.5, None) for doc in DOCS]
    assert [tuple(row.values()) for row in rows] == expected


def test_call_outcomes_name_the_winner_and_the_limit_of_examples(tmp_path: Path) -> None:
    store = Store(tmp_path)
    chain = scored("a", "qa", 4, 1.2, input="2?", preceding_calls=[CALL], loss_shorter=4.0)
    read = put(store, "ingest", "", "s0", [{"doc_id": doc, "text": TEXT} for doc in ("a", "b")])
    single = put(store, "score", "calculator", "s0", [scored(doc, "calculator", 4, 0.7, **CALL_TEXT) for doc in "ab"])
    chained = put(store, "score_2", "qa", "s0", [chain])
    names = {"calculator": "Calculator", "qa": "QA"}
    last = sorted(cap_rank(0, "calculator", doc) for doc in "ab")
    spec = AssemblySpec("r1", store.root, AssembleConfig(), names, last_ranks={"calculator": last[0]})
    files = {"ingest": read.files, "score": single.files, "score_2": chained.files}
    result = run_stage(ASSEMBLE, Inputs(spec, "s0", files=files))
    store.write_run(make_run("r1", [read.key, single.key, chained.key, result.key]))
    path = snapshot_of(store)
    rows = rows_of(path, "SELECT doc_id, tool, tau_f, outcome, won_by.input AS won_by FROM call_outcomes ORDER BY ALL")
    # at a@4 the chain is longer, and has an example of the calculator as well: of its two one is over the limit
    over = {doc: "over_limit" if cap_rank(0, "calculator", doc) == last[1] else "kept" for doc in "ab"}
    assert [tuple(row.values()) for row in rows] == [
        ("a", "calculator", 0.5, "shorter_chain", "2?"),
        ("a", "qa", 1.0, over["a"], None),
        ("b", "calculator", 0.5, over["b"], None),
    ]


def test_chains_are_equal_if_all_their_calls_are() -> None:
    def chain(doc: str, first: str) -> ScoredCall:
        return replace(a_scored(doc), preceding_calls=(AnsweredCall("qa", first, "2"),))

    calls = [a_scored("a"), chain("a", "who"), chain("b", "who"), chain("b", "when")]
    same = [same_call_rank(call, 0)[0] for call in calls]
    assert [same.index(one) for one in same] == [0, 1, 1, 3]
