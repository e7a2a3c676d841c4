"""From what a user calls a model to a loaded one: `embedded`, a folder, or a name on the Hugging Face hub.

`vllm+http://host:port/v1#model` is a model of one of these names that a vLLM server draws from (`vllm`).

The digest is taken from files alone, so that a plan can be made without loading anything. Loading a hub name needs the
network once, or the hub's cache; with HF_HUB_OFFLINE=1 only the cache is read.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import re
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer_core.errors import ModelError
from toolformer_core.lm.served import Credentials, served_model
from toolformer_core.records import digest_of
from toolformer_core.smallworld.embedded import MODEL

if TYPE_CHECKING:
    from toolformer_core.lm.hf import TransformersLM

__all__ = ["TOKENIZER_FILES", "load_model", "load_parts", "model_digest", "model_digests", "model_folder"]

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
TOKENIZER_FILES = ("tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "chat_template")
_WANTED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.bin")


def model_folder(name: str) -> Path:
    """Return the local folder of a model, fetching it from the hub if it is not there yet.

    Raises:
        ModelError: no such folder, no such name on the hub, or no network to look there.
    """
    name = _parted(name)[1]
    if not name.strip():
        raise ModelError("no model named; give 'embedded', a folder written by save_pretrained, or a hub name")
    if name == "embedded":
        if not (MODEL / "config.json").is_file():
            raise ModelError("the embedded model is missing from this installation; name another with --model")
        return MODEL
    path = Path(name).expanduser()
    if path.is_dir():
        _refuse_adapter(path, name)
        if not (path / "config.json").is_file():
            raise ModelError(f"{name} is a folder without config.json; give a folder written by save_pretrained")
        return path
    if difflib.SequenceMatcher(None, name.lower(), "embedded").ratio() > 0.7:
        raise ModelError(
            f"unknown model {name!r}. Did you mean 'embedded'? Valid: 'embedded', a folder written by save_pretrained, "
            "or a hub name."
        )
    if not _HUB_NAME.fullmatch(name) or path.is_file():
        raise ModelError(f"no folder {name!r}; give 'embedded', a folder written by save_pretrained, or a hub name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        path = Path(snapshot_download(name, allow_patterns=list(_WANTED)))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as exc:
        raise ModelError(
            f"no folder {name!r} here, and it could not be had from the hub ({type(exc).__name__}); "
            "give 'embedded', a folder written by save_pretrained, or a hub name that is cached or reachable"
        ) from exc
    _refuse_adapter(path, name)
    return path


def _refuse_adapter(folder: Path, name: str) -> None:
    """A folder with an adapter's weights alone: transformers would look for the rest wherever its config says."""
    weights = {f.name for pattern in ("*.safetensors", "*.bin") for f in folder.glob(pattern)}
    if (folder / "adapter_config.json").is_file() and all(f.startswith("adapter_model") for f in weights):
        raise ModelError(
            f"model {name!r} is a LoRA adapter, not a model: merge it (merge_and_unload), and save_pretrained the "
            "result and the tokenizer"
        )


def _parted(name: str) -> tuple[str | None, str]:
    """Return the address of the server that draws, if one does, and the model's own name.

    Raises:
        ModelError: a server is named without its model.
    """
    served = served_model(name)
    return (None, name) if served is None else (served.url, served.model)


def model_digest(name: str) -> str:
    """Return the digest of the model's files (weights, architecture, tokenizer), in order of their names.

    A model that a server draws from has another digest than the same one that does not, wherever the server is.
    """
    return _served(name, _digest_of_files(_model_files(name)))


def _served(name: str, digest: str) -> str:
    return digest if _parted(name)[0] is None else digest_of("vllm", digest)


def model_digests(name: str) -> tuple[str, str, str]:
    """Return the digests of all files of a model (`model_digest`), of all but its tokenizer's, and of the latter."""
    digests = _model_files(name)
    tokenizer = {file for file in digests if file.startswith(TOKENIZER_FILES) or file.endswith(".model")}
    return (
        _served(name, _digest_of_files(digests)),
        _served(name, _digest_of_files({file: own for file, own in digests.items() if file not in tokenizer})),
        _digest_of_files({file: own for file, own in digests.items() if file in tokenizer}),
    )


def _digest_of_files(digests: dict[str, str]) -> str:
    return digest_of("model", *(part for pair in digests.items() for part in pair))


def _model_files(name: str) -> dict[str, str]:
    """Return the digest of each of a model's files, in order of their names."""
    folder = model_folder(name)
    out = {}
    for file in sorted({f for pattern in _WANTED for f in folder.glob(pattern)}):
        h = hashlib.blake2b(digest_size=16)
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                h.update(block)
        out[file.name] = h.hexdigest()
    return out


def load_model(
    name: str, *, device: str | None = None, digest: str | None = None, credentials: Credentials | None = None
) -> TransformersLM:
    """Load a model for annotation.

    Args:
        name: `embedded`, a folder, or a hub name; behind `vllm+http://host:port/v1#` if a server is to draw.
        device: `cpu`, `cuda`, ...; `auto` spreads the layers over all GPUs (and the CPU, where those do not suffice);
            None takes the GPU if there is one, and all of them for a model that does not fit into one.
        digest: the model's digest if it is known already.
        credentials: what the server wants to know; default: what stands in the name. The model's own name has none.

    Returns:
        The model in float32 on a CPU, in its own precision (bfloat16 where the device has it) on a GPU.

    Raises:
        ModelError: it cannot be found or loaded, is no causal LM with a fast tokenizer, or is larger than a GPU where
            accelerate is not installed.
    """
    import torch

    from toolformer_core.lm.hf import TransformersLM

    served = served_model(name)
    name = name if served is None else served.name
    folder = model_folder(name)
    device = device or _device_for(folder)
    on_gpu = torch.cuda.is_available() if device == "auto" else torch.device(device).type != "cpu"
    model, tokenizer = load_parts(
        folder, name, dtype=torch.bfloat16 if on_gpu else torch.float32, spread=device == "auto"
    )
    model.eval()
    model.requires_grad_(False)
    if device != "auto":
        model.to(device)
    lm = TransformersLM(model, tokenizer, name=name, digest=digest or model_digest(name))
    if served is None:
        return lm
    from toolformer_core.lm.vllm import Server, VllmLM

    server = Server(served.url, served.model, credentials=credentials or served.credentials)
    return VllmLM(lm, server, name=name, digest=lm.digest)


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _device_for(folder: Path) -> str:
    """The CPU, the GPU, or `auto` for a model whose weights do not fit into the first of several GPUs."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    files = list(folder.glob("*.safetensors")) or list(folder.glob("*.bin"))
    free, _ = torch.cuda.mem_get_info(0)
    return "auto" if torch.cuda.device_count() > 1 and sum(f.stat().st_size for f in files) > 0.8 * free else "cuda"


def load_parts(folder: Path, name: str, *, dtype: Any, spread: bool = False) -> tuple[Any, Any]:
    """Load model and tokenizer from a folder, on the CPU and trainable.

    Args:
        name: what the user calls it, for messages.
        dtype: a torch dtype for the weights.
        spread: over all devices instead, as accelerate sees fit.

    Raises:
        ModelError: it is no causal LM, has no tokenizer, or weights are missing or no numbers; or it is to be spread,
            and accelerate is missing.
    """
    if spread and not _installed("accelerate"):
        raise ModelError(
            f"model {name!r} is to be spread over devices, which needs accelerate: pip install accelerate, or name one "
            "device that holds it"
        )
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from toolformer_core.lm.held_back import held_back
    from toolformer_core.lm.probe import check_weights

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    errors = (
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        TypeError,
        AttributeError,
        ImportError,
        SafetensorError,
    )
    with held_back(getLogger("transformers")):
        try:
            AutoConfig.from_pretrained(folder, local_files_only=True)  # asked for by the tokenizer, too
        except errors as exc:
            raise ModelError(f"model {name!r} cannot be loaded as a causal LM: {_first_line(exc)}") from exc
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except errors as exc:
            raise ModelError(_no_tokenizer(folder, name, exc)) from exc
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                dtype=dtype,
                output_loading_info=True,
                **({"device_map": "auto"} if spread else {}),
            )
        except errors as exc:
            raise ModelError(f"model {name!r} cannot be loaded as a causal LM: {_first_line(exc)}") from exc
        model, told = loaded
        _check_complete(told, name)
        check_weights(model, name)
    return model, tokenizer


def _no_tokenizer(folder: Path, name: str, exc: BaseException) -> str:
    there = any(f.name.startswith(TOKENIZER_FILES) or f.suffix == ".model" for f in folder.iterdir())
    why = f" ({_first_line(exc)})" if there else ""  # of files that are not there transformers says much, and not that
    return (
        f"model {name!r} has no tokenizer that can be read{why}; save it beside the model (tokenizer.save_pretrained)"
    )


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__


def _check_complete(told: Any, name: str) -> None:
    absent = sorted({*told["missing_keys"], *(str(key[0]) for key in told["mismatched_keys"])})
    if absent:
        raise ModelError(
            f"model {name!r} lacks {len(absent)} of its weights (e.g. {absent[0]}), which would be random; "
            "is the download complete, and config.json its own?"
        )
