"""The column of forced draws: files of free draws have none and stay what they were, and both can be read together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import a_drawn
from wh_fixtures import make_commit, make_run, put
from wh_fixtures import table as table_of

from tasks import arrow
from tasks.build_spec import BuildSpec
from tasks.stage import shards_of
from tests.support.stage_runs import annotate_shard, calculator_spec, ingest
from toolformer_core.annotate.sample import SampledDocument
from toolformer_core.config import SampleConfig
from warehouse.commits import Commit
from warehouse.encoding import encode_parquet
from warehouse.explain import explain
from warehouse.queries import rows_of
from warehouse.schema import stage_facts
from warehouse.snapshot.publish import publish
from warehouse.store import Store

FORM = "log_p_form"
TEXTS = ("Two and two makes a total of 4 apples.", "No number stands here.")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildSpec:
    """One tool and two shards of a document each, of which the prefilter drops the second; a call is drawn in front."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")

    def draw(lm: Any, prompts: Any, name: str, documents: Any, config: SampleConfig) -> list[SampledDocument]:
        log_p = -0.5 if config.draw_form == "forced" else None
        calls = [replace(a_drawn(d, 4, "1 + 1", prompts[0].tool), log_p_form=log_p) for d, _ in documents]
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


def test_files_of_free_draws_have_the_columns_and_the_bytes_that_they_had(
    spec: BuildSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table, rows in zip(sampled(spec, monkeypatch), (1, 0), strict=True):
        names = [name for name in stage_facts("sample").schema.names if name not in (FORM, "wording")]
        assert (table.column_names, table.num_rows) == (names, rows)
        before = arrow.stage_table("sample", arrow.drawn_of(table)).select(names)
        assert encode_parquet(table) == encode_parquet(before)
        assert [call.log_p_form for call in arrow.drawn_of(table)] == [None] * rows


def test_all_files_of_forced_draws_have_the_column(spec: BuildSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    forced = replace(spec, sample={"calculator": SampleConfig(draw_form="forced")})
    tables = sampled(forced, monkeypatch)
    assert [table.column(FORM).to_pylist() for table in tables] == [[-0.5], []]
    assert [call.log_p_form for call in arrow.drawn_of(tables[0])] == [-0.5]


def write_sampled(store: Store, tool: str, form: str, read: tuple[str, ...] = ()) -> Commit:
    """Write a draw of a tool, of one form; `read`: digests of the files it was made from."""
    row = {"doc_id": "d1", "tool": tool, "position": 3, "log_p": -1.0, "raw": "x", "outcome": "unparsable", FORM: -0.5}
    rows = table_of("sample", [row])
    file = store.write("sample", tool, "s0", "f" * 32, rows if form == "forced" else rows.drop_columns([FORM]))
    return store.commit(
        make_commit("sample", tool, "s0", [file], config={"draw_form": form, "positions": "need"}, inputs=read)
    )


@pytest.mark.parametrize("forced", ["calculator", "qa"])
def test_files_with_and_without_the_column_are_read_together(tmp_path: Path, forced: str) -> None:
    """Whichever comes first: DuckDB takes the columns of the first file for those of all."""
    store = Store(tmp_path)
    texts = put(store, "ingest", "", "s0", [{"doc_id": "d1", "text": "Two and two makes 4."}])
    read = (texts.files[0].digest,)
    commits = [write_sampled(store, t, "forced" if t == forced else "free", read) for t in ("calculator", "qa")]
    store.write_run(make_run("r1", [texts.key, *(commit.key for commit in commits)]))
    snapshot = publish(store, None)
    wanted = {"calculator": None, "qa": None, forced: -0.5}
    assert {row["tool"]: row[FORM] for row in rows_of(snapshot, "FROM sampled")} == wanted
    found = explain(snapshot, "d1")
    assert {row["tool"]: row[FORM] for row in found.sampled} == wanted
    assert found.ranked_by == "need"


def test_a_folder_of_free_draws_shows_the_column_as_null(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_sampled(store, "qa", "free")
    assert rows_of(publish(store, None), f"SELECT {FORM} FROM sampled") == [{FORM: None}]
