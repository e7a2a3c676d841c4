import pytest
from tiny import tiny_lm


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    hf_model = tiny_lm("llama").hf_model
    hf_model.model.save_pretrained(folder)
    hf_model.tokenizer.save_pretrained(folder)
    return str(folder)
