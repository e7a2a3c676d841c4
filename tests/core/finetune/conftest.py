from __future__ import annotations

import pytest
from tiny import tiny_lm


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    network = tiny_lm("llama").network
    network.model.save_pretrained(folder)
    network.tokenizer.save_pretrained(folder)
    return str(folder)
