"""Checks that a model's files are complete without loading it, so that a run fails before its long work starts.

Unparsable JSON, a missing tokenizer, an interrupted download. Neither torch nor transformers is imported.
"""

import json
import zipfile
from pathlib import Path

from safetensors import SafetensorError, safe_open

from toolformer_core.errors import ModelError
from toolformer_core.lm.load import is_tokenizers, model_folder
from toolformer_core.lm.reference import ModelRef

_INDEX = "model.safetensors.index.json"
_SINGLE_FILE = "model.safetensors"  # if it exists, no other weights are loaded
_PICKLE = b"\x80"  # how torch began a file before version 1.6
_REMEDY = "download or save it again"


def check_model(model: str | ModelRef) -> None:
    """Check the files of a model; a ModelError if one is missing, truncated or has the wrong content."""
    named = ModelRef.of(model)
    folder, name = model_folder(named), named.name
    for file in sorted(folder.glob("*.json")):
        if file.name in ("config.json", "tokenizer.json", "tokenizer_config.json", _INDEX):
            _read_object(file, name)
    if not any(is_tokenizers(file.name) for file in folder.iterdir()):
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
        with file.open("rb") as stream:
            is_old = stream.read(len(_PICKLE)) == _PICKLE
        if not is_old and not zipfile.is_zipfile(file):
            raise ModelError(f"model {name!r}: {file.name} is truncated or holds no weights; {_REMEDY}")
    for file in weights:
        try:
            with safe_open(file, framework="numpy"):  # compares the header with the file's length
                pass
        except (OSError, SafetensorError) as exc:
            raise ModelError(f"model {name!r}: {file.name} is truncated or holds no weights; {_REMEDY}") from exc


def _read_object(file: Path, name: str) -> dict[str, object]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ModelError(f"model {name!r}: {file.name} cannot be read ({exc}); {_REMEDY}") from exc
    if not isinstance(value, dict):
        raise ModelError(f"model {name!r}: {file.name} is not a JSON object; {_REMEDY}")
    return value
