"""Embeds queries and tool descriptions for the semantic score (GEAR §3.1), as float32 rows of length 1.

By default by the small LM's last hidden states; or by a model of sentence-transformers or model2vec, by its folder or
its name on the hub (package extra `encoders`).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import ModelError, UsageError
from toolformer_core.extras import how_to_install
from toolformer_core.folders import file_digest, regular_files
from toolformer_core.records import digest_of

if TYPE_CHECKING:
    from toolformer_core.lm.hf.model import HFModel

Embeddings = NDArray[np.float32]  # (N, D), rows of length 1


class Encoder(Protocol):
    """Turns texts into vectors whose angles tell how alike they are."""

    @property
    def digest(self) -> str:
        """Digest of all that an embedding depends on."""
        ...

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Return one row of length 1 per text.  (N, D)"""
        ...


def normalised(vectors: Any) -> Embeddings:
    """Return rows of length 1; a row of zeros stays as it is."""
    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths == 0, 1, lengths), dtype=np.float32)


def cosines(queries: Embeddings, descriptions: Embeddings) -> NDArray[np.float32]:
    """Return the cosine of every query with every description.  (N, D), (T, D) -> (N, T)"""
    return np.asarray(np.clip(queries @ descriptions.T, -1.0, 1.0), dtype=np.float32)


class HiddenStateEncoder:
    """The mean of a causal LM's last hidden states over a text's tokens without bos; a longer text is cut."""

    def __init__(self, hf_model: HFModel, digest: str) -> None:
        self._hf_model = hf_model
        self.digest = digest_of("hidden states", "1", digest)

    def encode(self, texts: Sequence[str]) -> Embeddings:
        import torch

        from toolformer_core.lm.hf.batches import hidden_states

        hf_model = self._hf_model
        lead = [] if hf_model.bos is None else [hf_model.bos]
        rows = [np.asarray([*lead, *hf_model.encode(text or " ")][: hf_model.context_length]) for text in texts]
        out: list[Any] = [None] * len(rows)
        with hf_model.lock, torch.inference_mode():
            for chosen, hidden in hidden_states(hf_model, rows):
                for i, states in zip(chosen, hidden.float(), strict=True):
                    first = min(len(lead), len(rows[i]) - 1)
                    out[i] = states[first : len(rows[i])].mean(dim=0).cpu().numpy()
        return normalised(np.stack(out)) if out else np.zeros((0, 0), dtype=np.float32)


class _PackagedEncoder:
    def __init__(self, model: Any, digest: str) -> None:
        self._model = model
        self.digest = digest

    def encode(self, texts: Sequence[str]) -> Embeddings:
        return normalised(self._model.encode(list(texts), show_progress_bar=False))


def encoder_digest(name: str) -> str:
    """Return the digest of an encoder in a folder (of its files), or of a hub's name (of the name alone)."""
    folder = Path(name)
    if not folder.is_dir():
        return digest_of("encoder", name)
    files = regular_files(folder)
    return digest_of("encoder", *(p for f in files for p in (f.relative_to(folder).as_posix(), file_digest(f))))


@lru_cache(maxsize=2)
def encoder_named(name: str, digest: str) -> Encoder:
    """Return `load_encoder(name)`, loaded once a process as long as at most two (name, `encoder_digest`) are in use."""
    return load_encoder(name)


def load_encoder(name: str) -> Encoder:
    """Load an encoder, from a folder or the hub, on the CPU; a `UsageError` without its package, or a `ModelError`."""
    kind = "model2vec" if _is_static(name) else "sentence_transformers"
    try:
        package: Any = importlib.import_module(kind)
    except ImportError as exc:
        raise UsageError(f"the encoder {name} needs {kind.replace('_', '-')}: {how_to_install('encoders')}") from exc
    try:
        static = kind == "model2vec"
        model = package.StaticModel.from_pretrained(name) if static else package.SentenceTransformer(name, device="cpu")
    except Exception as exc:  # the packages raise whatever their own loading raises
        raise ModelError(f"the encoder {name} cannot be loaded with {kind}: {exc}") from exc
    return _PackagedEncoder(model, encoder_digest(name))


def _is_static(name: str) -> bool:
    """Return whether a model is one of model2vec: its config says so, or its name on the hub does."""
    config = Path(name) / "config.json"
    if not config.is_file():
        return "potion" in name.lower() or "model2vec" in name.lower()
    try:
        return bool(json.loads(config.read_text("utf-8")).get("model_type") == "model2vec")
    except (OSError, ValueError) as exc:
        raise UsageError(f"{config} is no configuration of a model: {exc}") from exc
