"""Whether a model's files are whole, without loading it: a run finds that out before it does anything that takes long.

What is seen here takes milliseconds: JSON that cannot be parsed, no tokenizer, a download that was cut off. Whether the
model can be used is only known when it is loaded; neither torch nor transformers is imported.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from toolformer_core.errors import ModelError
from toolformer_core.lm.load import TOKENIZER_FILES, model_folder

__all__ = ["check_model"]

_INDEX = "model.safetensors.index.json"
_WHOLE = ("model.safetensors",)  # others beside it are not loaded
_AGAIN = "fetch or save it anew"


def check_model(name: str) -> None:
    """Look at the files of a model.

    Raises:
        ModelError: a file is missing, truncated or not what its name says; or see `model_folder`.
    """
    folder = model_folder(name)
    for file in sorted(folder.glob("*.json")):
        if file.name in ("config.json", "tokenizer.json", "tokenizer_config.json", _INDEX):
            _object(file, name)
    if not any(file.name.startswith(TOKENIZER_FILES) or file.suffix == ".model" for file in folder.iterdir()):
        raise ModelError(f"model {name!r} has no tokenizer; save it beside the model (tokenizer.save_pretrained)")
    wanted = [folder / name for name in _WHOLE if (folder / name).is_file()]
    if (folder / _INDEX).is_file():
        parts = _object(folder / _INDEX, name).get("weight_map")
        names = set(parts.values()) if isinstance(parts, dict) else set()
        for part in sorted(part for part in names if not (folder / str(part)).is_file()):
            raise ModelError(f"model {name!r} lacks {part}, which {_INDEX} names; {_AGAIN}")
        wanted = wanted or [folder / str(part) for part in sorted(names)]
    if not wanted and not any(folder.glob("pytorch_model*.bin")):
        raise ModelError(f"model {name!r} has no weights (model.safetensors); {_AGAIN}")
    for file in wanted:
        _check_weights(file, name)


def _object(file: Path, name: str) -> dict[str, object]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ModelError(f"model {name!r}: {file.name} cannot be read ({exc}); {_AGAIN}") from exc
    if not isinstance(value, dict):
        raise ModelError(f"model {name!r}: {file.name} is no JSON object; {_AGAIN}")
    return value


def _check_weights(file: Path, name: str) -> None:
    """Compare a file of weights with its header: eight bytes of length, JSON with each tensor's place, the tensors."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header: Any = json.loads(stream.read(length)) if length < size else None
        ends = [told["data_offsets"][1] for key, told in header.items() if key != "__metadata__"]
    except (OSError, ValueError, struct.error, AttributeError, KeyError, TypeError, IndexError) as exc:
        raise ModelError(f"model {name!r}: {file.name} is truncated or holds no weights; {_AGAIN}") from exc
    if (wanted := 8 + length + max(ends, default=0)) != size:
        raise ModelError(f"model {name!r}: {file.name} has {size:,} bytes, and should have {wanted:,}; {_AGAIN}")
