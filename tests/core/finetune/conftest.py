import pytest
from tiny import saved_in, tiny_lm


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(saved_in(tmp_path_factory.mktemp("model"), tiny_lm("llama")))
