"""Finds, digests and loads the Hugging Face checkpoints that tools use: a folder, or a name on the hub.

A hub name is taken from the hub's cache, or else downloaded when it is looked up. The digest of a folder is that of its
files, of a hub name its commit, so nothing is loaded to compute it. A checkpoint is loaded once per process, on the
first GPU if there is one. torch and transformers are imported on use.
"""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from toolformer_core.errors import ModelError, first_line
from toolformer_core.folders import file_digest
from toolformer_core.records import digest_of

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.bin")
_WEIGHTS = ("*.safetensors", "*.bin")
_TOKENIZERS = ("tokenizer.json", "vocab.*", "*.model")
_RESIDENT_AT_MOST = 4  # models kept for tools that ask for them later; a tool keeps its own as long as it lives

T = TypeVar("T")


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
            config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise ModelError(f"config.json of the model {self.name!r} cannot be read: {exc}") from exc
        if not isinstance(config, dict):
            raise ModelError(f"config.json of the model {self.name!r} is not a JSON object")
        return config

    @property
    def architectures(self) -> list[str]:
        """The names of the model's classes, as `config.json` says."""
        return [str(architecture) for architecture in self.config.get("architectures") or ()]

    @property
    def architecture(self) -> str:
        """The same, for a message."""
        return ", ".join(self.architectures) or "of no named architecture"

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

    @property
    def device(self) -> Any:
        """Where the model runs, a torch device."""
        return self.model.device


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
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    download = partial(snapshot_download, name, allow_patterns=list(_FILES))
    try:
        with suppress(LocalEntryNotFoundError):
            snapshot = Path(download(local_files_only=True))
            if _is_complete(snapshot):  # no interrupted download, and not only files that something else needed
                return Checkpoint(name, snapshot, snapshot.name)
        snapshot = Path(download())
    except (HfHubHTTPError, HFValidationError, OSError) as exc:
        raise ModelError(
            f"there is no folder {name!r}, and it is neither in the hub's cache nor could it be downloaded "
            f"({type(exc).__name__}); give a folder written by save_pretrained, or a hub name that is cached or "
            "reachable"
        ) from exc
    if not _is_complete(snapshot):
        raise ModelError(
            f"the hub's cache holds only a part of the model {name!r}; download it with `hf download {name}`"
        )
    return Checkpoint(name, snapshot, snapshot.name)


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


_LOADING = threading.Lock()  # two threads asking for one model must not load it twice
_resident: OrderedDict[tuple[str, Path, str], Any] = OrderedDict()


def resident(kind: str, checkpoint: Checkpoint, load: Callable[[], T]) -> T:
    """Return what `load` makes of a checkpoint, made once per process; `kind` names what, e.g. a transformers class."""
    key = (kind, checkpoint.folder, checkpoint.digest)
    with _LOADING:
        if key not in _resident:
            _resident[key] = load()
            if len(_resident) > _RESIDENT_AT_MOST:
                _resident.popitem(last=False)
        _resident.move_to_end(key)
        loaded: T = _resident[key]
        return loaded


def load_transformer(checkpoint: Checkpoint, auto_class: str) -> Loaded:
    """Load a model with its fast tokenizer, once per process: in bfloat16 on a GPU that has it, else in float32.

    `auto_class` names a class of transformers, e.g. `AutoModelForSeq2SeqLM`. A `ModelError` if the files cannot be
    loaded with it, weights are missing, or there is no fast tokenizer.
    """
    return resident(auto_class, checkpoint, lambda: _load(checkpoint, auto_class))


def _load(checkpoint: Checkpoint, auto_class: str) -> Loaded:
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
    except _load_errors() as exc:
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
    if not any(any(checkpoint.folder.glob(pattern)) for pattern in _TOKENIZERS):  # transformers would make an empty one
        raise ModelError(
            f"the model {checkpoint.name!r} has no tokenizer; save it beside the model (tokenizer.save_pretrained)"
        )
    try:
        return tokenizers.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
    except _load_errors() as exc:
        raise ModelError(
            f"the model {checkpoint.name!r} has no readable tokenizer ({first_line(exc)}); save it beside the model "
            "(tokenizer.save_pretrained)"
        ) from exc


def _load_errors() -> tuple[type[Exception], ...]:
    from safetensors import SafetensorError

    return (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, ImportError, SafetensorError)
