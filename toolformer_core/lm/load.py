"""Finds and loads a model by its name, or by what a name was parsed to (`reference`).

A model behind a server alone is not loaded here (see `remote`). The digest is computed from files alone. Loading a hub
name needs the network once, or the hub's cache; with HF_HUB_OFFLINE=1 only the cache is read.
"""

from __future__ import annotations

import difflib
import logging
import pickle
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer_core.endpoints import Credentials
from toolformer_core.errors import ModelError, first_line
from toolformer_core.extras import is_installed
from toolformer_core.folders import file_digest
from toolformer_core.lm.gguf import gguf_folder
from toolformer_core.lm.reference import EMBEDDED, ModelRef
from toolformer_core.records import digest_of

if TYPE_CHECKING:
    from toolformer_core.lm.hf.engine import TransformersLM

__all__ = [
    "LoadedTokenizer",
    "cpu_has_bfloat16",
    "faster_in_bfloat16",
    "load_model",
    "load_parts",
    "load_tokenizer",
    "model_digest",
    "model_digests",
    "model_folder",
]

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TOKENIZER_FILES = ("tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "chat_template")
_MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.bin")
_LARGE = 1 << 27  # bytes of weights; a smaller model's calls cost more than its products
_WITHOUT_WEIGHTS = ("*.json", "*.model", "*.txt", "*.jinja")
_UNREADABLE = (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, ImportError)  # of transformers


def model_folder(model: str | ModelRef, *, weights: bool = True) -> Path:
    """Return a model's local folder, downloaded if need be, or a ModelError; without weights, a tokenizer's will do."""
    named = ModelRef.of(model)
    if named.kind == "remote" and weights:
        raise ModelError(
            f"model {named.name!r} lives behind its server alone, which can annotate (build, plan); this needs the "
            "model here: give its folder or hub name"
        )
    here = named.here
    name, path = here.model, here.path
    if here.kind == "gguf":
        return gguf_folder(path)
    if here.kind == "hub":
        path = _from_hub(name, path, _MODEL_FILES if weights else _WITHOUT_WEIGHTS)
    if not weights:
        return path
    # of an adapter alone, transformers would load the base model from wherever it says
    files = {f.name for pattern in ("*.safetensors", "*.bin") for f in path.glob(pattern)}
    if (path / "adapter_config.json").is_file() and all(f.startswith("adapter_model") for f in files):
        raise ModelError(
            f"model {name!r} is a LoRA adapter, not a model: merge it (merge_and_unload), then save the result and the "
            "tokenizer with save_pretrained"
        )
    if not (path / "config.json").is_file():
        raise ModelError(f"{name} is without config.json; give a folder written by save_pretrained")
    return path


def _from_hub(name: str, path: Path, patterns: Sequence[str]) -> Path:
    valid = "give 'embedded', a folder written by save_pretrained, or a hub name"
    if difflib.SequenceMatcher(None, name.lower(), EMBEDDED).ratio() > 0.7:
        raise ModelError(f"unknown model {name!r}. Did you mean 'embedded'? Else {valid}")
    if not _HUB_NAME.fullmatch(name) or path.is_file():
        raise ModelError(f"no folder {name!r}; {valid}" if name.strip() else f"no model named; {valid}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as exc:
        why = f"it could not be downloaded from the hub ({type(exc).__name__})"
        raise ModelError(f"there is no folder {name!r}, and {why}; {valid} that is cached or reachable") from exc


def model_digest(model: str | ModelRef) -> str:
    """Return the digest of the model's files (weights, architecture, tokenizer), in order of their names.

    A model whose samples a server makes has another digest than without a server; the server's address does not matter.
    """
    return model_digests(model)[0]


def model_digests(model: str | ModelRef) -> tuple[str, str, str]:
    """Return three digests of a model: of all its files (`model_digest`), without its tokenizer, of its tokenizer."""
    named = ModelRef.of(model)
    digests = _digests_of(model_folder(named), _MODEL_FILES)
    tokenizer, others = ({f: d for f, d in digests.items() if is_tokenizers(f) is wanted} for wanted in (True, False))
    whole, without = _combined_digest(digests), _combined_digest(others)
    if named.url:
        whole, without = digest_of("vllm", whole), digest_of("vllm", without)
    return whole, without, _combined_digest(tokenizer)


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    tokenizer: Any  # never gives a token that the model has no embedding for, if the model's size is known
    start: int | None  # the token that starts every sequence; None: there is none
    end: int | None  # the token after every text; None: there is none
    digest: str  # of its files, a chat template's among them


def load_tokenizer(model: str | ModelRef) -> LoadedTokenizer:
    """Load a model's tokenizer; no weights are read or downloaded, and a folder may hold it alone.

    A ModelError if it cannot be found or read, reports no character offsets, or belongs to another model.
    """
    from transformers import AutoConfig, AutoTokenizer

    from toolformer_core.lm.tokens import drop_unembedded_tokens, start_token

    named = ModelRef.of(model)
    folder, name = model_folder(named, weights=False), named.here.name
    has_config = (folder / "config.json").is_file()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True) if has_config else None
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except _UNREADABLE as exc:
        raise ModelError(_no_tokenizer(folder, name, exc)) from exc
    if not tokenizer.is_fast:
        raise ModelError(f"the tokenizer of {name!r} reports no character offsets; give one with a tokenizer.json")
    start, end = start_token(tokenizer, config), tokenizer.eos_token_id
    rows = getattr(config.get_text_config(), "vocab_size", None) if config is not None else None
    if rows is not None:
        tokenizer = drop_unembedded_tokens(tokenizer, rows, name, start, end)
    files = _digests_of(folder, _WITHOUT_WEIGHTS)
    digest = _combined_digest({file: digest for file, digest in files.items() if is_tokenizers(file)})
    return LoadedTokenizer(tokenizer, start, end, digest)


def is_tokenizers(file: str) -> bool:
    return file.startswith(_TOKENIZER_FILES) or file.endswith(".model")


def _combined_digest(digests: dict[str, str]) -> str:
    return digest_of("model", *(part for pair in digests.items() for part in pair))


def _digests_of(folder: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    files = sorted({f for pattern in patterns for f in folder.glob(pattern) if f.is_file()})
    return {file.name: file_digest(file) for file in files}


def load_model(
    model: str | ModelRef,
    *,
    device: str | None = None,
    digest: str | None = None,
    credentials: Credentials | None = None,
) -> TransformersLM:
    """Load a model for annotation, by its name or what that was parsed to (`reference`).

    Args:
        device: `cpu`, `cuda`, ...; `auto` spreads the layers over all GPUs, and over the CPU if they do not fit;
            None takes the GPU if there is one, and all GPUs for a model that does not fit into one.
        digest: the model's digest, if it is known already.
        credentials: the server's credentials; default: those in the name. The loaded model's name never holds them.

    Returns:
        The model, in bfloat16 on a GPU, and on a CPU that multiplies in it (AVX-512 BF16, AMX) unless the model is
        small; else in float32.

    Raises:
        ModelError: the model cannot be found or loaded, is not a causal LM with a fast tokenizer, or does not fit
            into one GPU while accelerate is not installed.
    """
    import torch

    from toolformer_core.lm.hf.engine import TransformersLM

    named = ModelRef.of(model)
    folder, name = model_folder(named), named.name
    device = device or _device_for(folder)
    on_gpu = torch.cuda.is_available() if device == "auto" else torch.device(device).type != "cpu"
    dtype = torch.bfloat16 if on_gpu or faster_in_bfloat16(folder) else torch.float32
    network, tokenizer = load_parts(folder, name, dtype=dtype, spread=device == "auto")
    network.eval().requires_grad_(False)
    if device != "auto":
        network.to(device)
    lm = TransformersLM(network, tokenizer, name=name, digest=digest or model_digest(named))
    if not named.url:
        return lm
    from toolformer_core.lm.vllm import VllmLM
    from toolformer_core.lm.vllm_server import VllmServer

    server = VllmServer(named.url, named.model, credentials=credentials or named.credentials)
    return VllmLM(lm, server, name=name, digest=lm.digest)


def _device_for(folder: Path) -> str:
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    free, _ = torch.cuda.mem_get_info(0)
    return "auto" if torch.cuda.device_count() > 1 and _weights_size(folder) > 0.8 * free else "cuda"


def faster_in_bfloat16(folder: Path) -> bool:
    """Return whether the CPU multiplies in bfloat16 and the model's products are large enough to gain by it."""
    return cpu_has_bfloat16() and _weights_size(folder) >= _LARGE


def cpu_has_bfloat16() -> bool:
    """Return whether the CPU has instructions that multiply in bfloat16: AVX-512 BF16, with or without Intel's AMX."""
    import torch

    return bool(torch.cpu.get_capabilities().get("avx512_bf16"))


def _weights_size(folder: Path) -> int:
    files = list(folder.glob("*.safetensors")) or list(folder.glob("*.bin"))
    return sum(file.stat().st_size for file in files)


def load_parts(folder: Path, name: str, *, dtype: Any, spread: bool = False) -> tuple[Any, Any]:
    """Load model and tokenizer from a folder, on the CPU and trainable, or spread over all devices by accelerate.

    A ModelError if it is no causal LM, has no tokenizer, or weights are missing, NaN or infinite; `name` is the user's.
    """
    if spread and not is_installed("accelerate"):
        raise ModelError(
            f"spreading model {name!r} over devices needs accelerate: pip install accelerate, or name one device that "
            "holds the model"
        )
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    from toolformer_core.lm.hf.probe import check_weights

    disable_progress_bar()  # type: ignore[no-untyped-call]
    errors = (*_UNREADABLE, SafetensorError)
    with _buffer_logs(logging.getLogger("transformers")):
        try:
            AutoConfig.from_pretrained(folder, local_files_only=True)  # the tokenizer would read it too, and be blamed
            try:
                tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            except errors as exc:
                raise ModelError(_no_tokenizer(folder, name, exc)) from exc
            options = {"local_files_only": True, **({"device_map": "auto"} if spread else {})}
            loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True, **options)
        except (EOFError, pickle.UnpicklingError) as exc:  # torch's own message tells how to run a file's code
            damage = "its .bin file is truncated or holds no weights"
            raise ModelError(f"model {name!r}: {damage}; download it again") from exc
        except errors as exc:
            raise ModelError(f"model {name!r} cannot be loaded as a causal LM: {first_line(exc)}") from exc
        model, info = loaded
        if missing := sorted({*info["missing_keys"], *(str(key[0]) for key in info["mismatched_keys"])}):
            raise ModelError(
                f"model {name!r} lacks {len(missing)} of its weights (e.g. {missing[0]}), which would be random; check "
                "that the download is complete and that config.json belongs to these weights"
            )
        check_weights(model, name)
    return model, tokenizer


@contextmanager
def _buffer_logs(logger: logging.Logger) -> Iterator[None]:
    """Delay this thread's records at a logger's handlers until the block ends; drop them if it raises."""
    thread, handlers = threading.get_ident(), logger.handlers[:]
    held: dict[logging.LogRecord, None] = {}  # each once, however many handlers there are

    def passes(record: logging.LogRecord) -> bool:
        if record.thread == thread:
            held[record] = None
        return record.thread != thread

    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)
    for record, handler in product(held, handlers):
        if record.levelno >= handler.level:
            handler.handle(record)


def _no_tokenizer(folder: Path, name: str, exc: BaseException) -> str:
    exists = any(is_tokenizers(file.name) for file in folder.iterdir())
    reason = f" ({first_line(exc)})" if exists else ""  # for missing files, transformers' own message misleads
    return f"model {name!r} has no readable tokenizer{reason}; save it beside the model (tokenizer.save_pretrained)"
