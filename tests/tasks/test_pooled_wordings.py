"""Builds with several wordings: fingerprint, column and counts; those with one keep theirs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wh_fixtures import make_run

from cli.render.answers import print_document_trace
from cli.render.progress import print_stats
from flows.document_trace import trace_document
from tasks import arrow
from tasks.build_spec import BuildSpec
from tasks.run_shard import ShardResult
from tests.fakes import FakeTool, a_drawn, a_prompt, a_scored
from tests.support.stage_runs import calculator_spec, run_all
from toolformer_core.annotate.sample import SampledDocument
from toolformer_core.records import DrawnCall, Prompt
from warehouse.explain import explain
from warehouse.queries import WordingYield, rows_of, stats
from warehouse.snapshot.publish import publish
from warehouse.store import Store

TEXT = "Two and two makes a total of 4 apples."
FIRST, SECOND = a_prompt(), Prompt("calculator", "Calls, please.\nInput: ", "\nOutput:", wording=2)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildSpec:
    """One document, one tool. Wording 1 draws `1 + 1` twice and no call once, wording 2 draws `1 + 1` and `2 + 2`."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"text": TEXT}) + "\n", encoding="utf-8")

    def draw(lm: Any, prompts: Any, name: str, documents: Any, config: Any) -> list[SampledDocument]:
        [(document, _)] = documents
        one, two = (a_drawn(document, 4, text, "calculator") for text in ("1 + 1", "2 + 2"))
        lost = replace(one, raw="x", outcome="unparsable", input="")
        calls = [
            replace(one, count=2, wording=1),
            replace(lost, wording=1),
            replace(one, wording=2),
            replace(two, wording=2),
        ]
        if len(prompts) == 1:
            calls = [replace(call, wording=None) for call in (one, two, lost)]
        return [SampledDocument(document.doc_id, "sampled", tuple(calls))]

    def judge(lm: Any, name: str, texts: Any, items: Any, *_: object) -> list[Any]:
        gains = {"1 + 1": 2.0, "2 + 2": 0.1}
        return [
            a_scored(c.doc_id, c.tool, c.position, c.input, r, gains[c.input]) for c, r in dict(distinct(items)).items()
        ]

    def distinct(items: Any) -> Any:
        seen: set[str] = set()
        for call, response in items:
            if call.input not in seen:
                seen.add(call.input)
                yield call, response

    for stage in ("sample", "score"):
        monkeypatch.setattr(f"tasks.stages.{stage}.model_of", lambda spec: None)
    monkeypatch.setattr("tasks.stages.sample.sample", draw)
    monkeypatch.setattr("tasks.stages.score.score", judge)
    monkeypatch.setattr("tasks.stages.execute.tool_of", lambda spec, key: FakeTool(lambda *_: "2"))
    return calculator_spec(tmp_path / "data", corpus)


def with_wordings(spec: BuildSpec, *prompts: Prompt) -> BuildSpec:
    return replace(spec, prompts={"calculator": prompts})


def sampled(results: list[ShardResult]) -> ShardResult:
    (found,) = (result for result in results if result.key.stage == "sample")
    return found


def test_one_wording_has_the_parts_and_columns_that_it_had(spec: BuildSpec) -> None:
    run_all(spec)
    (commit,) = spec.store().commits("sample")
    assert commit.parts["prompt"] == FIRST.digest
    assert not [name for name in commit.parts if name.startswith("prompt ")]
    assert "wordings" not in commit.config


def test_several_wordings_are_all_in_the_fingerprint(spec: BuildSpec) -> None:
    keys = set()
    for prompts in ((FIRST,), (FIRST, SECOND), (SECOND,), (FIRST, replace(SECOND, wording=3))):
        keys.add(sampled(run_all(with_wordings(spec, *prompts))).key)
    assert len(keys) == 4
    parts = {c.key: (c.parts, c.config.get("wordings")) for c in spec.store().commits("sample")}
    both = next(parts for parts, numbers in parts.values() if numbers == [1, 2])
    assert (both["prompt"], both["prompt 2"]) == (FIRST.digest, SECOND.digest)
    assert sampled(run_all(with_wordings(spec, FIRST, SECOND))).skipped
    other = replace(SECOND, head="Other calls.\nInput: ")
    assert not sampled(run_all(with_wordings(spec, FIRST, other))).skipped


def test_draws_say_by_which_wording_they_were_made(spec: BuildSpec) -> None:
    result = sampled(run_all(with_wordings(spec, FIRST, SECOND)))
    table = spec.store().read(result.files[0])
    assert table.column("wording").to_pylist() == [1, 1, 2, 2]
    calls = arrow.drawn_of(table)
    assert [(call.wording, call.log_p_form, call.count) for call in calls] == [
        (1, None, 2),
        (1, None, 1),
        (2, None, 1),
        (2, None, 1),
    ]
    assert all(isinstance(call, DrawnCall) for call in calls)


def published(spec: BuildSpec, results: list[ShardResult]) -> Path:
    store: Store = spec.store()
    store.write_run(make_run("r1", [result.key for result in results]))
    return publish(store, None)


def test_what_each_wording_gave_is_counted(spec: BuildSpec, capsys: pytest.CaptureFixture[str]) -> None:
    """`1 + 1` is kept (a gain of 2), `2 + 2` is not (0.1); both wordings drew the first, so it counts for both."""
    snapshot = published(spec, run_all(with_wordings(spec, FIRST, SECOND)))
    figures = stats(snapshot)
    assert figures.wordings == (
        WordingYield("calculator", 1, draws=3, well_formed=2, executed=1, kept=1),
        WordingYield("calculator", 2, draws=2, well_formed=2, executed=2, kept=1),
    )
    assert figures.conserved
    print_stats(figures)
    assert "Wordings: a call that several drew counts for each" in capsys.readouterr().out


def test_the_path_of_a_document_names_the_wording_of_a_draw(
    spec: BuildSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = published(spec, run_all(with_wordings(spec, FIRST, SECOND)))
    ((doc_id,),) = [row.values() for row in rows_of(snapshot, "SELECT doc_id FROM documents")]
    found = explain(snapshot, doc_id)
    assert [(row["raw"], row["wording"]) for row in found.sampled] == [
        ("Calculator(1 + 1)", 1),
        ("Calculator(1 + 1)", 2),
        ("Calculator(2 + 2)", 2),
        ("x", 1),
    ]
    trace = trace_document(spec.store(), snapshot, doc_id)
    assert [(row["draws"], row["parsed"]) for row in trace.positions] == [(5, 4)]
    print_document_trace(trace)
    assert "wording" in capsys.readouterr().out


def test_one_wording_is_not_counted_nor_named(spec: BuildSpec, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = published(spec, run_all(spec))
    assert stats(snapshot).wordings == ()
    assert rows_of(snapshot, "SELECT DISTINCT wording FROM sampled") == [{"wording": None}]
    print_stats(stats(snapshot))
    assert "ording" not in capsys.readouterr().out
