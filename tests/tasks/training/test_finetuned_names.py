"""The short name of a model: what tells one training from another where all of them lie in a folder named `model`."""

from __future__ import annotations

from pathlib import Path

from tasks.training.registry import model_label
from toolformer_core.finetune.recipe import JOB_FILE


def test_a_training_is_named_by_its_job(tmp_path: Path) -> None:
    job = tmp_path / "cstar-toolformer-0a1b2c3d4e5f6789"
    (job / "model").mkdir(parents=True)
    (job / JOB_FILE).touch()
    (tmp_path / "gpt").mkdir()
    assert model_label(str(job / "model")) == "cstar-toolformer-0a1b2c3d4e5f6789"
    assert model_label(f"{job}/../gpt/") == "gpt"
    assert model_label("EleutherAI/gpt-j-6b") == "EleutherAI/gpt-j-6b"
    assert model_label("embedded") == "embedded"
