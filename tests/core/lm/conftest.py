"""A small model's folder, for the tests of what is read from one."""

from pathlib import Path

import pytest
from tiny import saved_in, tiny_lm


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a model and its tokenizer, as `save_pretrained` writes them."""
    return saved_in(tmp_path, tiny_lm())
