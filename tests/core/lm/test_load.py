"""From a name to a model: what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tiny import tiny_lm

from toolformer_core.errors import ModelError
from toolformer_core.lm.load import load_model, model_digest


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    network = tiny_lm().network
    network.model.save_pretrained(tmp_path)
    network.tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_is_loaded_in_float32_with_its_digest(saved: Path) -> None:
    lm = load_model(str(saved), device="cpu")
    assert str(lm.network.model.dtype) == "torch.float32"
    assert lm.digest == model_digest(str(saved))


def test_the_digest_follows_the_files(saved: Path) -> None:
    before = model_digest(str(saved))
    weights = load_file(saved / "model.safetensors")
    first = sorted(weights)[0]
    save_file({**weights, first: weights[first] + 1}, saved / "model.safetensors", metadata={"format": "pt"})
    assert model_digest(str(saved)) != before


def test_missing_weights_are_not_made_up(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    some = {name: value for name, value in weights.items() if "layers.1" not in name}
    save_file(some, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 9 of its weights"):
        load_model(str(saved), device="cpu")


def test_a_truncated_file_is_an_error_in_one_line(saved: Path) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be loaded as a causal LM") as caught:
        load_model(str(saved), device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Embeded", "Did you mean 'embedded'"),
        ("./nowhere", "give 'embedded', a folder"),
        ("some/model", "from the hub"),
    ],
)
def test_a_name_that_is_none_is_answered(name: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        load_model(name)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"without config\.json"):
        load_model(str(tmp_path))
