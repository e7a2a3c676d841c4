"""A tokenizer without its model: what it is loaded from, and what it gives no tokens for."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tests.tiny import tokenizer
from toolformer_core.errors import ModelError
from toolformer_core.lm.load import load_tokenizer, model_digests


def test_that_of_the_embedded_model_has_its_digest_and_ends() -> None:
    loaded = load_tokenizer("embedded")
    assert loaded.digest == model_digests("embedded")[2]
    assert loaded.start == loaded.end == loaded.tokenizer.eos_token_id


def test_a_folder_without_a_model_will_do(tmp_path: Path) -> None:
    tokenizer().save_pretrained(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.tokenizer("so")["input_ids"] == tokenizer()("so")["input_ids"]
    assert (loaded.start, loaded.end) == (tokenizer().bos_token_id, tokenizer().eos_token_id)


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
