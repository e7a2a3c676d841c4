"""Checks that a model's files are complete without loading it, so that a run fails before its long work starts.

The checks take milliseconds: unparsable JSON, a missing tokenizer, an interrupted download. Whether the model can be
used is only known once it is loaded. Neither torch nor transformers is imported.
"""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

from toolformer_core.errors import ModelError
from toolformer_core.lm.load import TOKENIZER_FILES, model_folder
from toolformer_core.lm.reference import ModelRef

_INDEX = "model.safetensors.index.json"
_SINGLE_FILE = "model.safetensors"  # if it exists, no other weights are loaded
_PICKLE = b"\x80"  # how torch began a file before version 1.6
_REMEDY = "download or save it again"


def check_model(model: str | ModelRef) -> None:
    """Check the files of a model.

    Raises:
        ModelError: a file is missing, truncated or has the wrong content; or see `model_folder`.
    """
    named = ModelRef.of(model)
    folder, name = model_folder(named), named.name
    for file in sorted(folder.glob("*.json")):
        if file.name in ("config.json", "tokenizer.json", "tokenizer_config.json", _INDEX):
            _read_object(file, name)
    if not any(file.name.startswith(TOKENIZER_FILES) or file.suffix == ".model" for file in folder.iterdir()):
        raise ModelError(f"model {name!r} has no tokenizer; save it beside the model (tokenizer.save_pretrained)")
    weights = [folder / _SINGLE_FILE] if (folder / _SINGLE_FILE).is_file() else []
    if (folder / _INDEX).is_file():
        weight_map = _read_object(folder / _INDEX, name).get("weight_map")
        parts = set(weight_map.values()) if isinstance(weight_map, dict) else set()
        for part in sorted(part for part in parts if not (folder / str(part)).is_file()):
            raise ModelError(f"model {name!r} lacks {part}, which {_INDEX} names; {_REMEDY}")
        weights = weights or [folder / str(part) for part in sorted(parts)]
    pickled = [] if weights else sorted(folder.glob("pytorch_model*.bin"))
    if not weights and not pickled:
        raise ModelError(f"model {name!r} has no weights (model.safetensors); {_REMEDY}")
    for file in pickled:
        if not zipfile.is_zipfile(file) and not _is_old_pickle(file):
            raise ModelError(f"model {name!r}: {file.name} is truncated or holds no weights; {_REMEDY}")
    for file in weights:
        _check_weights(file, name)


def _is_old_pickle(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_PICKLE)) == _PICKLE


def _read_object(file: Path, name: str) -> dict[str, object]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ModelError(f"model {name!r}: {file.name} cannot be read ({exc}); {_REMEDY}") from exc
    if not isinstance(value, dict):
        raise ModelError(f"model {name!r}: {file.name} is not a JSON object; {_REMEDY}")
    return value


def _check_weights(file: Path, name: str) -> None:
    """Compare the size of a safetensors file with its header.

    The format is eight bytes with the header's length, the header (JSON with the offsets of each tensor), the tensors.
    """
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header: Any = json.loads(stream.read(length)) if length < size else None
        ends = [tensor["data_offsets"][1] for key, tensor in header.items() if key != "__metadata__"]
    except (OSError, ValueError, struct.error, AttributeError, KeyError, TypeError, IndexError) as exc:
        raise ModelError(f"model {name!r}: {file.name} is truncated or holds no weights; {_REMEDY}") from exc
    if (expected := 8 + length + max(ends, default=0)) != size:
        raise ModelError(f"model {name!r}: {file.name} has {size:,} bytes, but should have {expected:,}; {_REMEDY}")
