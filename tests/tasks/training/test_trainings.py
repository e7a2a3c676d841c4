"""What a finished training came to, from its job's folder into the warehouse's record, and its model's short name."""

from pathlib import Path

import pytest

from tasks.training.records import record_training
from tasks.training.registry import finished_finetune, model_label
from tests.support.finished_job import a_finished_job
from toolformer_core.finetune.recipe import JOB_FILE
from warehouse.records import trainings_table
from warehouse.store import Store


@pytest.mark.parametrize("within", [True, False])
def test_a_record_says_what_a_training_was_given_and_came_to(tmp_path: Path, within: bool) -> None:
    data = tmp_path / "data"
    jobs = data / "finetunes" if within else tmp_path / "shared"
    folder = a_finished_job(jobs / "cstar-toolformer-0a1b2c3d4e5f6789")
    (folder / "mlflow_run").write_text("5f5f\n")
    store, one = Store(data), finished_finetune(folder)
    assert one is not None
    record_training(store, one)
    (row,) = trainings_table(store).to_pylist()
    assert row["recipe"].startswith('{"batch":128,')
    # the rate and the speed are not among the events of this job
    curve = (
        '[{"dev_perplexity":20.1,"step":0},'
        '{"learning_rate":null,"loss":2.9,"step":1,"tokens_per_second":null},'
        '{"dev_perplexity":7.4,"learning_rate":null,"loss":2.5,"step":2,"tokens_per_second":null}]'
    )
    given = {"job": folder.name, "run_id": "5f5f", "arm": "toolformer", "dataset": "cstar", "version": "v1"}
    given |= {"model": "gpt", "model_digest": "d0", "recipe": row["recipe"], "checkpoint": str(folder / "model")}
    result = {"steps": 2, "train_loss": 2.5, "dev_loss": 2.0, "dev_perplexity": 7.4, "base_perplexity": 20.1}
    result |= {"best_step": 2, "best_perplexity": 7.4, "curve": curve}
    # (103 - 100) + (202 - 198) seconds; 202 s after 1970 began
    assert row == {**given, **result, "seconds": 7.0, "finished": "1970-01-01T00:03:22.000000+00:00"}
    if within:  # a folder that is moved takes its checkpoints along
        moved = Store(data.rename(tmp_path / "moved"))
        assert trainings_table(moved)["checkpoint"].to_pylist() == [f"{moved.root}/finetunes/{folder.name}/model"]


def test_a_training_that_goes_on_or_was_none_has_no_record(tmp_path: Path) -> None:
    folder = a_finished_job(tmp_path / "cstar-cc-0a1b2c3d4e5f6789")
    events = folder / "events.jsonl"
    events.write_text("".join(events.read_text().splitlines(keepends=True)[:-1]))
    assert finished_finetune(folder) is None
    assert finished_finetune(a_finished_job(tmp_path / "something")) is None


def test_a_training_is_named_by_its_job(tmp_path: Path) -> None:
    job = tmp_path / "cstar-toolformer-0a1b2c3d4e5f6789"
    (job / "model").mkdir(parents=True)
    (job / JOB_FILE).touch()
    (tmp_path / "gpt").mkdir()
    given = {f"{job}/model": job.name, f"{job}/../gpt/": "gpt", "EleutherAI/gpt-j-6b": "EleutherAI/gpt-j-6b"}
    assert {model: model_label(model) for model in given} == given
