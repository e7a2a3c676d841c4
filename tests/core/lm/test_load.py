"""From a name to a model, or to its tokenizer alone: what is refused, and with which words."""

import json
import logging
from pathlib import Path

import accelerate
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import PROMPT, TEXTS, tiny_lm

from tests.tiny import tokenizer
from toolformer_core.errors import ModelError
from toolformer_core.lm.base import DrawRequest, ScoreRequest
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


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Embeded", "Did you mean 'embedded'"),
        ("./nowhere", "give 'embedded', a folder"),
        ("some/model", "could not be downloaded from the hub"),
        (str(Path(__file__).parent), r"without config\.json"),
        ("", "no model named"),
        (" ", "no model named"),
    ],
)
def test_a_name_that_is_none_is_answered(name: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        load_model(name)


def answers(lm: TransformersLM) -> tuple[list[list[float]], list[str], list[float]]:
    (scan,) = lm.scan(PROMPT, TEXTS[:2])
    draws = scan.draw([DrawRequest(t, 0, 5) for t in (0, 1)], max_tokens=6, temperature=1.0)
    score = lm.log_probs([ScoreRequest(" [QA(x) -> y]", TEXTS[0], 0, 5)])[0]
    return [told.tolist() for told in scan.log_probs], [d.text for d in draws], score.tolist()


def assert_alike(got: TransformersLM, wanted: TransformersLM) -> None:
    ours, theirs = answers(got), answers(wanted)
    for a, b in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert ours[1] == theirs[1]
    np.testing.assert_allclose(ours[2], theirs[2], atol=1e-5)


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


def test_a_token_without_an_embedding_is_read_as_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = tokenizer()
    state = json.loads(own.backend_tokenizer.to_str())
    own.save_pretrained(tmp_path)
    size = len(own)
    state["added_tokens"].append({**state["added_tokens"][0], "id": size, "content": "<pad>"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": size}), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        loaded = load_tokenizer(str(tmp_path))
    assert max(loaded.tokenizer("<pad>")["input_ids"]) < size
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 9}), encoding="utf-8")
    with pytest.raises(ModelError, match="has no embedding for token"):
        load_tokenizer(str(tmp_path))


def test_a_folder_without_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no readable tokenizer"):
        load_tokenizer(str(tmp_path))
    with pytest.raises(ModelError, match="Did you mean 'embedded'"):
        load_tokenizer("embeded")
