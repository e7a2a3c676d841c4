"""From a name to a model, or to its tokenizer alone: what is refused, and with which words."""

import copy
import json
from pathlib import Path

import accelerate
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import TEXTS, tiny_lm, tokenizer

from tests.support import plainly
from toolformer_core.errors import ModelError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model, load_tokenizer, model_digest, model_digests


@pytest.mark.parametrize(
    ("multiplies", "large", "dtype"),
    [(True, 1, torch.bfloat16), (True, 1 << 40, torch.float32), (False, 1, torch.float32)],
)
def test_a_large_model_is_in_bfloat16_where_the_cpu_multiplies_in_it(
    saved: Path, monkeypatch: pytest.MonkeyPatch, multiplies: bool, large: int, dtype: torch.dtype
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": multiplies})
    monkeypatch.setattr("toolformer_core.lm.load._LARGE", large)
    lm = load_model(str(saved), device="cpu")
    assert lm.hf_model.model.dtype == dtype
    assert lm.digest == model_digest(str(saved))


def test_the_digest_follows_the_files(saved: Path) -> None:
    before = model_digest(str(saved))
    weights = load_file(saved / "model.safetensors")
    first = sorted(weights)[0]
    save_file({**weights, first: weights[first] + 1}, saved / "model.safetensors", metadata={"format": "pt"})
    assert model_digest(str(saved)) != before


@pytest.mark.parametrize("content", [b"", b"<html>", b"version https://git-lfs.github.com/spec/v1\n"])
def test_pickled_weights_that_are_none_are_refused_in_one_line(saved: Path, content: bytes) -> None:
    (saved / "model.safetensors").unlink()
    (saved / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ModelError, match="truncated or holds no weights; download it again") as caught:
        load_model(str(saved), device="cpu")
    assert "\n" not in str(caught.value)


def test_missing_weights_are_not_made_up(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    some = {name: value for name, value in weights.items() if "layers.1" not in name}
    save_file(some, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 9 of its weights"):
        load_model(str(saved), device="cpu")


def test_a_name_that_is_none_is_answered() -> None:
    for name, says in (
        ("Embeded", "Did you mean 'embedded'"),
        ("./nowhere", "give 'embedded', a folder"),
        ("some/model", "could not be downloaded from the hub"),
        (str(Path(__file__).parent), r"without config\.json"),
        ("", "no model named"),
        (" ", "no model named"),
    ):
        with pytest.raises(ModelError, match=says):
            load_model(name)


def assert_alike(got: TransformersLM, wanted: TransformersLM) -> None:
    ours, theirs = (plainly.scanned(lm, TEXTS[:2]) for lm in (got, wanted))
    for text, (_, log_probs) in theirs.items():
        np.testing.assert_allclose(ours[text][1], log_probs, atol=1e-5)
    assert plainly.drawn(got, TEXTS[:2], 1.0) == plainly.drawn(wanted, TEXTS[:2], 1.0)
    asked = plainly.asked_of(TEXTS[:2])
    for one, other in zip(got.log_probs(asked), wanted.log_probs(asked), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_model_spread_over_devices_answers_the_same(saved: Path) -> None:
    assert_alike(load_model(str(saved), device="auto"), load_model(str(saved), device="cpu"))


def test_a_model_whose_weights_are_fetched_for_each_layer() -> None:
    """What accelerate does with layers for which no device has room; its last one is not beside the hidden states."""
    model = tiny_lm("gpt2").hf_model
    accelerate.cpu_offload(model.model, torch.device("cpu"))
    assert model.model.get_output_embeddings().weight.is_meta
    assert_alike(TransformersLM(model.model, model.tokenizer, name="x", digest="x"), tiny_lm("gpt2"))


def test_spreading_needs_accelerate(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolformer_core.lm.load.is_installed", lambda _: False)
    with pytest.raises(ModelError, match="needs accelerate: pip install accelerate"):
        load_model(str(saved), device="auto")


def test_that_of_the_embedded_model_has_its_digest_and_ends() -> None:
    loaded = load_tokenizer("embedded")
    assert loaded.digest == model_digests("embedded")[2]
    assert loaded.start == loaded.end == loaded.tokenizer.eos_token_id


def test_the_digest_follows_the_chat_template(tmp_path: Path) -> None:
    tokenizer().save_pretrained(tmp_path)
    before = load_tokenizer(str(tmp_path)).digest
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert load_tokenizer(str(tmp_path)).digest == before
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    assert load_tokenizer(str(tmp_path)).digest != before


def test_a_token_without_an_embedding_is_read_as_text(tmp_path: Path) -> None:
    more, size = copy.deepcopy(tokenizer()), len(tokenizer())
    more.add_tokens(["<pad>"])
    more.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": size}), encoding="utf-8")
    assert max(load_tokenizer(str(tmp_path)).tokenizer("<pad>")["input_ids"]) < size
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 9}), encoding="utf-8")
    with pytest.raises(ModelError, match="has no embedding for token"):
        load_tokenizer(str(tmp_path))


def test_a_folder_without_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no readable tokenizer"):
        load_tokenizer(str(tmp_path))
