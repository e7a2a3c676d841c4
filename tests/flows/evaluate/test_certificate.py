"""How many of a benchmark's items stand in the texts of a training, and the accuracy without them."""

from pathlib import Path

import pytest
from wh_fixtures import put, snapshot_of

from flows.build_dataset.versions import card_of
from flows.evaluate import certificate
from flows.evaluate.certificate import certificate_of, certificate_text, known_by_evaluation
from flows.evaluate.metrics import arm_figures, row_of
from tasks.shards.run_shard import ShardResult, result_of
from tasks.specs.evaluation_spec import Evaluation
from tests.flows.test_export import stored
from tests.support.examples_of_c_star import BOOKS
from tests.support.finished_job import a_finished_job
from toolformer_core.evaluate.prompts import word_problem
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.tools.build import ToolSettings
from viewer.report import report_page
from warehouse.queries import rows_of
from warehouse.records import write_certificate
from warehouse.store import Store

# "Of 587 books 58 are lent, so 529 remain.": seven words of the first item stand there in a row, around the call
PROBLEMS = {"1": "books 58 are lent, so 529 remain.", "2": "Of 588 books 58 are lent, so how many remain?", "3": "Why?"}
ROWS = [
    {"item_id": n, "task": "svamp", "prompt": word_problem(text, ""), "answers": ["9"]} for n, text in PROBLEMS.items()
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return stored(tmp_path / "data", [BOOKS])


def evaluation(model: Path | str, arm: str = "toolformer") -> Evaluation:
    return Evaluation(arm, 0, str(model), "m1", "gpt", "d0", (), (), ToolSettings(), 8)


def items(store: Store) -> ShardResult:
    return result_of(put(store, "benchmark", "", "svamp", ROWS), skipped=False)


def trained(store: Store, dataset: str) -> Path:
    """A finished training's folder, on a dataset."""
    return a_finished_job(Path(store.root) / "finetunes" / f"cstar-toolformer-{dataset[-4:]}", dataset=dataset)


def predictions(store: Store, name: str) -> ShardResult:
    """Items 1 and 2 are answered right, 3 is not: 2/3, and without item 1 a half."""
    own = {"evaluation": name, "arm": "toolformer"}
    rows = [{**row, **own, "correct": row["item_id"] != "3"} for row in ROWS]
    return result_of(put(store, "evaluate", "", name, rows), skipped=False)


def test_items_of_a_trainings_texts_are_counted_and_left_out(store: Store) -> None:
    (dataset,) = store.datasets()
    label = f"{dataset.name}@{dataset.version}"
    of_ours = evaluation(trained(store, label) / "model")
    gone = evaluation(trained(store, "cstar@gone") / "model", "cc")
    base = evaluation("embedded", "base")
    task = task_named("svamp")
    known = known_by_evaluation(store, task, items(store), [base, gone, of_ours])
    assert {one: (found.dataset, found.ids) for one, found in known.items()} == {of_ours: (label, frozenset({"1"}))}
    done = predictions(store, "e")
    ours, other = arm_figures(store, {of_ours: [done], base: [done]}, {of_ours: "e", base: "b"}, known=known)
    assert ours.certificate is not None
    assert (ours.certificate.known, ours.certificate.accuracy_unknown) == (["1"], 0.5)
    assert certificate_text(ours.certificate) == (
        f"known items (13 words in a row stand in a text of {label}): 1; 50.0 % of the others right"
    )
    assert (row_of(ours)["known"], row_of(ours)["accuracy_unknown"]) == (1, 0.5)
    assert "known" not in row_of(other)
    alone = certificate_of("e", of_ours, {"1": True}, known[of_ours])
    assert certificate_text(alone).endswith("; no other item is left")


def test_one_record_serves_the_next_run_views_reports_and_cards(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (dataset,) = store.datasets()
    ours = evaluation(trained(store, f"{dataset.name}@{dataset.version}") / "model")
    task = task_named("svamp")
    known = known_by_evaluation(store, task, items(store), [ours])
    write_certificate(store, certificate_of("svamp-e", ours, {"1": True, "2": True, "3": False}, known[ours]))
    row = "| svamp | toolformer | 0 | 3 | 66.7 | 1 | 50.0 |"  # 2 of 3; without item 1, 1 of 2
    assert row in card_of(store, dataset)
    page = report_page(store, dataset)
    assert "Models trained on it" in page
    assert '<td class="figure">66.7</td><td class="figure">1</td><td class="figure">50.0</td>' in page
    assert rows_of(snapshot_of(store), "SELECT task, items, known, accuracy_unknown FROM certificates") == [
        {"task": "svamp", "items": 3, "known": 1, "accuracy_unknown": 0.5}
    ]
    monkeypatch.setattr(certificate, "plain_texts", None)  # the texts are not read again
    assert known_by_evaluation(store, task, items(store), [ours]) == known


def test_texts_that_are_damaged_certify_nothing(store: Store) -> None:
    (dataset,) = store.datasets()
    one = evaluation(trained(store, f"{dataset.name}@{dataset.version}") / "model")
    Path(store.locate(dataset.files[0].path)).write_bytes(b"damaged")
    assert known_by_evaluation(store, task_named("svamp"), items(store), [one]) == {}
