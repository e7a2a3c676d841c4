"""A model whose files are not whole is refused before anything loads it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from toolformer_core.errors import ModelError
from toolformer_core.lm.check import check_model

# nothing, a page, what git has in place of a large file, and the beginning of a download
_NO_PICKLES = (b"", b"<html>", b"version https://git-lfs.github.com/spec/v1\n", b"PK\x03\x04archive/data.pkl")


def _cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-7]) and None


def _no_tokenizer(folder: Path) -> None:
    for file in [*folder.glob("tokenizer*"), *folder.glob("*special_tokens*"), *folder.glob("chat_template*")]:
        file.unlink()


def _pickled(content: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(content)

    return spoil


def _half_an_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-00002.safetensors"}}))


def test_what_is_whole_is_not_refused(saved: Path) -> None:
    check_model(str(saved))
    check_model("embedded")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_cut("config.json"), "config.json cannot be read"),
        (_cut("tokenizer.json"), "tokenizer.json cannot be read"),
        (_cut("model.safetensors"), "model.safetensors is truncated or holds no weights"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "truncated or holds no weights"),
        *((_pickled(content), "pytorch_model.bin is truncated or holds no weights") for content in _NO_PICKLES),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json is not a JSON object"),
        (_half_an_index, "lacks model-00002.safetensors"),
        (_no_tokenizer, "has no tokenizer; save it beside the model"),
    ],
)
def test_what_is_not_whole_is_named(saved: Path, spoil: Callable[[Path], None], told: str) -> None:
    spoil(saved)
    with pytest.raises(ModelError, match=told) as caught:
        check_model(str(saved))
    assert "\n" not in str(caught.value)
