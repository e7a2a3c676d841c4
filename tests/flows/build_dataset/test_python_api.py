"""`toolformer_core.annotate_texts` gives the calls that a build with the same settings keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import toolformer_core as tf
from tests.support.small_builds import examples_in
from toolformer_core.records import document_id
from warehouse.queries import rows_of
from warehouse.store import Store

if TYPE_CHECKING:
    from flows.build_dataset.flow import BuildResult


def test_the_calls_are_those_of_a_build(built: tuple[BuildResult, Path, list[str]]) -> None:
    result, data, _ = built
    documents = rows_of(result.snapshot, "SELECT doc_id, text, url FROM documents ORDER BY line")
    # the settings of `small_build`
    annotations = tf.annotate_texts(
        [row["text"] for row in documents],
        tf.load_model("embedded"),
        ["calculator", "calendar"],
        urls=[row["url"] for row in documents],
        top_k=3,
        draws=2,
        tau_f={"calendar": 0.2},
    )
    assert [row["doc_id"] for row in documents] == [document_id(row["text"], row["url"]) for row in documents]
    found = {
        (row["doc_id"], call.tool, call.position, call.input, call.response, call.count): call
        for row, annotation in zip(documents, annotations, strict=True)
        for call in annotation.calls
    }
    scored = rows_of(result.snapshot, "SELECT * FROM scored")
    assert len(scored) > 10  # the comparison is about something
    keys = ("doc_id", "tool", "position", "input", "response", "count")
    assert {tuple(row[key] for key in keys) for row in scored} == found.keys()
    for row in scored:
        call = found[tuple(row[key] for key in keys)]
        # a build's shards are other batches, and sums of floats differ by their order
        losses = (call.log_p, call.loss_plain, call.loss_call, call.loss_response)
        expected = tuple(row[key] for key in ("log_p", "loss_plain", "loss_call", "loss_response"))
        assert (call.loss_call is None) == (row["loss_call"] is None)
        assert [x or 0.0 for x in losses] == pytest.approx([x or 0.0 for x in expected], abs=1e-4)
    store = Store(data)
    [dataset] = [one for one in store.datasets() if (one.version, one.made) == (result.version, result.made)]
    examples = {example.doc_id: example.text for example in examples_in(store, dataset)}
    assert examples
    assert examples == {
        row["doc_id"]: annotation.annotated
        for row, annotation in zip(documents, annotations, strict=True)
        if annotation.kept
    }
