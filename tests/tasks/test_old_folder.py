"""A data folder that an earlier version of the code wrote is opened by today's: nothing in it is done again.

`old_folder/` was written before stages were declarations (version 0.1.0), but for the commits of stages whose versions
were raised since: one shard of two documents, one tool, a model and a tool that are functions.
`python tests/tasks/test_old_folder.py FOLDER` writes the like with the present code.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.stages import VERSIONS, execute, sample, score
from tests.fakes import FakeTool, a_drawn, a_scored
from tests.support.stage_runs import calculator_spec, run_all
from toolformer_core.annotate.sample import SampledDocument
from toolformer_core.config import SampleConfig
from toolformer_core.records import Document, DrawnCall, PrefilterResult, Prompt, ScoredCall
from warehouse.store import Store

OLD = Path(__file__).with_name("old_folder")
TEXTS = ("Two and two makes a total of 4 apples.", "Three and three makes a total of 6 pears.")


def refuse(*_: object) -> Any:
    raise AssertionError("nothing is left to ask")


def test_commits_of_an_earlier_version_are_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((sample, "model_of"), (score, "model_of"), (execute, "tool_of")):
        monkeypatch.setattr(module, name, refuse)
    data = Path(shutil.copytree(OLD, tmp_path / "data"))
    written = {commit.stage: commit.stage_version for commit in Store(data).commits()}
    assert written == {name: VERSIONS[name] for name in written}, "a stage's VERSION was raised: write old_folder anew"
    results = run_all(calculator_spec(data, tmp_path / "no corpus is read"))
    assert [result.key.stage for result in results] == ["ingest", "prefilter", "sample", "execute", "score", "assemble"]
    assert all(result.skipped for result in results)
    assert {result.key for result in results} == {commit.key for commit in Store(data).commits()}


def draw(
    lm: Any,
    prompts: Sequence[Prompt],
    name: str,
    documents: Iterable[tuple[Document, PrefilterResult]],
    config: SampleConfig,
) -> list[SampledDocument]:
    return [SampledDocument(d.doc_id, "sampled", (a_drawn(d, 4, "1 + 1", prompts[0].tool),)) for d, _ in documents]


def judge(
    lm: Any, name: str, texts: Mapping[str, str], items: Iterable[tuple[DrawnCall, str]], *_: object
) -> list[ScoredCall]:
    return [a_scored(c.doc_id, c.tool, c.position, c.input, response) for c, response in items]


if __name__ == "__main__":
    data = Path(sys.argv[1])
    corpus = data.with_name("corpus.jsonl")
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    replaced: list[tuple[Any, str, Any]] = [
        (sample, "model_of", lambda spec: None),
        (score, "model_of", lambda spec: None),
        (execute, "tool_of", lambda spec, key: FakeTool(lambda *_: "2")),
        (sample, "sample", draw),
        (score, "score", judge),
    ]
    for module, name, value in replaced:
        setattr(module, name, value)
    run_all(calculator_spec(data, corpus))
