"""Finds, digests and loads the Hugging Face checkpoints that tools use: a folder, or a name on the hub.

torch and transformers are imported on use.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from toolformer_core.errors import ModelError, first_line
from toolformer_core.folders import file_digest
from toolformer_core.records import digest_of

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.bin")
_WEIGHTS = ("*.safetensors", "*.bin")
_TOKENIZERS = ("tokenizer.json", "vocab.*", "*.model")
RESIDENT_AT_MOST = 4  # models kept for tools that ask for them later; a tool keeps its own as long as it lives


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of a model on this machine."""

    name: str  # as the user wrote it
    folder: Path
    commit: str = ""  # of a hub name; "" for a folder

    @property
    def digest(self) -> str:
        """Digest of the commit of a hub name, or of a folder's files."""
        return digest_of("hub", self.name, self.commit) if self.commit else _folder_digest(_stamps(self.folder))

    @property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`; a `ModelError` if it is not a JSON object."""
        try:
            return dict(json.loads((self.folder / "config.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as exc:
            raise ModelError(f"config.json of the model {self.name!r} cannot be read as an object: {exc}") from exc

    @property
    def architectures(self) -> list[str]:
        return [str(architecture) for architecture in self.config.get("architectures") or ()]

    @property
    def writes_text(self) -> bool:
        """Whether it is an encoder-decoder model that writes a text for a text."""
        ends = any(architecture.endswith("ForConditionalGeneration") for architecture in self.architectures)
        return bool(self.config.get("is_encoder_decoder")) and ends


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with its tokenizer. Their user holds the lock, because a tokenizer's settings are shared state."""

    tokenizer: Any
    model: Any
    lock: threading.RLock = field(default_factory=threading.RLock)

    def positions(self, otherwise: int) -> int:
        """Return how many tokens the model can read at a time; the number given if it does not say."""
        return int(getattr(self.model.config, "max_position_embeddings", None) or otherwise)


def find_checkpoint(name: str) -> Checkpoint:
    """Return the files of a model, downloading those of a hub name that are not in its cache; else a `ModelError`."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{name} is a folder without config.json; give a folder written by save_pretrained")
        return Checkpoint(name, folder.resolve())
    if folder.exists() or not _HUB_NAME.fullmatch(name):
        raise ModelError(f"no folder {name!r}; give a folder written by save_pretrained, or a hub name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    problem: object = "only a part of it is there"
    for cached in (True, False):
        try:
            snapshot = Path(snapshot_download(name, allow_patterns=list(_FILES), local_files_only=cached))
            if _is_complete(snapshot):  # no interrupted download, and not only files that something else needed
                return Checkpoint(name, snapshot, snapshot.name)
        except (HfHubHTTPError, HFValidationError, OSError) as exc:  # also that nothing of it is cached
            problem = type(exc).__name__
    raise ModelError(
        f"there is no folder {name!r}, and it is neither in the hub's cache nor could it be downloaded ({problem}); "
        f"give a folder written by save_pretrained, or see what `hf download {name}` says"
    )


def _is_complete(folder: Path) -> bool:
    """Return whether a folder has a configuration and all the weights that its index names."""
    indexes = folder.glob("*.safetensors.index.json")
    parts = {part for index in indexes for part in json.loads(index.read_text("utf-8"))["weight_map"].values()}
    weights = any(file.is_file() for pattern in _WEIGHTS for file in folder.glob(pattern))
    return weights and all((folder / name).is_file() for name in ("config.json", *parts))


def _stamps(folder: Path) -> tuple[tuple[Path, int, int], ...]:
    files = sorted({file for pattern in _FILES for file in folder.glob(pattern) if file.is_file()})
    return tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


@lru_cache(maxsize=8)  # several tools of a process ask, and reading the weights takes seconds
def _folder_digest(stamps: tuple[tuple[Path, int, int], ...]) -> str:
    return digest_of("checkpoint", *(part for file, _, _ in stamps for part in (file.name, file_digest(file))))


def load_transformer(checkpoint: Checkpoint, auto_class: str) -> Loaded:
    """Load a model with its fast tokenizer, once per process: in bfloat16 on a GPU that has it, else in float32.

    `auto_class` names a class of transformers, e.g. `AutoModelForSeq2SeqLM`. A `ModelError` if the files cannot be
    loaded with it, weights are missing, or there is no fast tokenizer.
    """
    return _load(checkpoint, checkpoint.digest, auto_class)


@lru_cache(maxsize=RESIDENT_AT_MOST)
def _load(checkpoint: Checkpoint, digest: str, auto_class: str) -> Loaded:
    import torch
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer = load_tokenizer(checkpoint)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    half = device == "cuda" and torch.cuda.is_bf16_supported()
    loader: Any = getattr(transformers, auto_class)
    try:
        model, info = loader.from_pretrained(
            checkpoint.folder,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            dtype=torch.bfloat16 if half else torch.float32,
        )
    except Exception as exc:  # whatever transformers finds wrong with the files
        raise ModelError(f"the model {checkpoint.name!r} cannot be loaded: {first_line(exc)}") from exc
    if missing := sorted({*info["missing_keys"], *(str(key[0]) for key in info["mismatched_keys"])}):
        raise ModelError(
            f"the model {checkpoint.name!r} lacks {len(missing)} of its weights (e.g. {missing[0]}), which would be "
            "random; check that the download is complete and that config.json belongs to these weights"
        )
    return Loaded(tokenizer, model.eval().requires_grad_(False).to(device))


def load_tokenizer(checkpoint: Checkpoint) -> Any:
    """Return a checkpoint's tokenizer; a `ModelError` if it has none that can be read."""
    from transformers import AutoTokenizer

    tokenizers: Any = AutoTokenizer
    try:
        if not any(any(checkpoint.folder.glob(pattern)) for pattern in _TOKENIZERS):
            raise FileNotFoundError("no file of one")  # transformers would make an empty one
        return tokenizers.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
    except Exception as exc:  # whatever transformers finds wrong with the files
        raise ModelError(
            f"the model {checkpoint.name!r} has no tokenizer that can be read ({first_line(exc)}); save it beside the "
            "model (tokenizer.save_pretrained)"
        ) from exc
