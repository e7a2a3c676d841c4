"""A small model's folder, for the tests of what is read from one."""

from pathlib import Path

import pytest
from tiny import tiny_lm


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a model and its tokenizer, as `save_pretrained` writes them."""
    hf_model = tiny_lm().hf_model
    hf_model.model.save_pretrained(tmp_path)
    hf_model.tokenizer.save_pretrained(tmp_path)
    return tmp_path
