"""A model in a GGUF file becomes a folder as `save_pretrained` writes it: once, beside the hub's cache.

transformers reads the file (extra `gguf`); quantized weights are saved as the float32 numbers that they stand for.
"""

import shutil
import struct
import tempfile
from functools import lru_cache
from pathlib import Path

from toolformer_core.errors import ModelError, first_line
from toolformer_core.extras import how_to_install, is_installed
from toolformer_core.folders import file_digest


def gguf_folder(file: Path) -> Path:
    """Return the folder of a GGUF file's model, made at first and then found by its content, or raise a ModelError."""
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ModelError(
                f"{file} is no GGUF file: it does not begin with GGUF; check that its download is complete"
            )
    state = file.stat()
    return _converted(file.absolute(), state.st_size, state.st_mtime_ns)


@lru_cache
def _converted(file: Path, size: int, modified_ns: int) -> Path:
    from huggingface_hub.constants import HF_HOME

    digest = file_digest(file)
    folder = Path(HF_HOME) / "gguf" / digest
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{digest}-", dir=folder.parent))
        try:
            _convert(file, unfinished)
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path) -> None:
    for package in ("gguf", "accelerate"):
        if not is_installed(package):
            raise ModelError(f"reading {file} needs the package {package}: {how_to_install('gguf')}")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, struct.error) as exc:
        raise ModelError(f"the GGUF file {file} cannot be read as a causal LM: {first_line(exc)}") from exc
    del loaded.config.quantization_config  # the weights are plain numbers now, which transformers would not save else
    model = type(loaded)(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
