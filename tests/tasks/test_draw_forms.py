"""The column of forced draws, and what a document's path says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import a_drawn
from wh_fixtures import make_run, put

from tasks import arrow
from tasks.build_spec import BuildSpec
from tasks.stage import shards_of
from tests.support.stage_runs import annotate_shard, calculator_spec, ingest
from toolformer_core.annotate.sample import SampledDocument
from toolformer_core.config import SampleConfig
from warehouse.explain import explain
from warehouse.snapshot.publish import publish
from warehouse.store import Store

FORM = "log_p_form"
TEXTS = ("Two and two makes a total of 4 apples.", "No number stands here.")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildSpec:
    """One tool and two shards of a document each, of which the prefilter drops the second; a call is drawn in front."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")

    def draw(lm: Any, prompt: Any, name: str, documents: Any, config: SampleConfig) -> list[SampledDocument]:
        log_p = -0.5 if config.draw_form == "forced" else None
        calls = [replace(a_drawn(d, 4, "1 + 1", prompt.tool), log_p_form=log_p) for d, _ in documents]
        return [SampledDocument(call.doc_id, "sampled", (call,)) for call in calls]

    monkeypatch.setattr("tasks.stages.sample.model_of", lambda spec: None)
    monkeypatch.setattr("tasks.stages.sample.sample", draw)
    monkeypatch.setattr("tasks.stages.execute.tool_of", lambda spec, key: pytest.fail("no tool is asked"))
    made = calculator_spec(tmp_path / "data", corpus)
    return replace(made, ingest=replace(made.ingest, shard_documents=1))


def sampled(spec: BuildSpec, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the files of both shards as tables."""
    from tasks.stages import build_stages

    wanted = [stage for stage in build_stages(spec, "tool") if stage.name in ("prefilter", "sample")]
    monkeypatch.setattr("tests.support.stage_runs.build_stages", lambda *_: wanted)
    store, tables = spec.store(), []
    for shard in shards_of(ingest(spec)):
        (file,) = annotate_shard(spec, "calculator", shard)["sample"].files
        tables.append(store.read(file))
    return tables


def test_all_files_of_forced_draws_have_the_column(spec: BuildSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    forced = replace(spec, sample={"calculator": SampleConfig(draw_form="forced")})
    tables = sampled(forced, monkeypatch)
    assert [table.column(FORM).to_pylist() for table in tables] == [[-0.5], []]
    assert [call.log_p_form for call in arrow.drawn_of(tables[0])] == [-0.5]


def test_a_documents_path_shows_the_forms_log_probability(tmp_path: Path) -> None:
    store = Store(tmp_path)
    texts = put(store, "ingest", "", "s0", [{"doc_id": "d1", "text": "Two and two makes 4."}])
    row = {"doc_id": "d1", "tool": "qa", "position": 3, "log_p": -1.0, "raw": "x", "outcome": "unparsable", FORM: -0.5}
    draws = put(store, "sample", "qa", "s0", [row], config={"draw_form": "forced"}, inputs=(texts.files[0].digest,))
    store.write_run(make_run("r1", [texts.key, draws.key]))
    found = explain(publish(store, None), "d1")
    assert [row[FORM] for row in found.sampled] == [-0.5]
