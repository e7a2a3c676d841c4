"""Relevance: of the documents that the prefilter kept, the share that is nearest to the tool's description.

It runs only where a build is given a share (`--relevant-share`, or `--tools auto`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks import arrow
from tasks.build_spec import BuildSpec, NotInOverlayError, RelevanceSpec, model_of
from tasks.model_thread import in_model_thread, tokens_of_resident
from tasks.run_shard import ShardWriter, StageOutput
from tasks.stage import LM_TOKENS, Inputs, Stage, count_rows
from toolformer_core.errors import UsageError
from toolformer_core.grounding.encoders import Encoder, HiddenStateEncoder, encoder_named
from toolformer_core.grounding.relevance import most_relevant, relevance
from toolformer_core.records import Document, digest_of
from warehouse.schema import stage_facts

__all__ = ["RELEVANCE"]

_DROPPED = "irrelevant"


@dataclass(frozen=True, slots=True)
class _Config:
    """What of the settings decides which documents are kept."""

    share: float


_SHARDS_AT_MOST = 8  # whose embeddings are kept

_embeddings: OrderedDict[tuple[str, str], dict[str, NDArray[np.float32]]] = OrderedDict()  # encoder, shard's documents
_CHANGING = threading.Lock()


def _embeddings_of(encoder: str, documents: str) -> dict[str, NDArray[np.float32]]:
    """Return the embeddings of a shard's documents as far as they are known: tools of one shard share them.

    Args:
        encoder: digest of the encoder.
        documents: digest of the shard's file.
    """
    with _CHANGING:
        found = _embeddings.setdefault((encoder, documents), {})
        _embeddings.move_to_end((encoder, documents))
        while len(_embeddings) > _SHARDS_AT_MOST:
            _embeddings.popitem(last=False)
        return found


def _wanted(spec: BuildSpec) -> RelevanceSpec:
    if spec.relevance is None:
        raise UsageError("a build without a share of relevant documents leaves none out")
    return spec.relevance


def _encoder(spec: BuildSpec) -> Encoder:
    wanted = _wanted(spec)
    if spec.overlay is not None:
        raise NotInOverlayError("the encoder")
    if wanted.encoder:
        return encoder_named(wanted.encoder, wanted.encoder_digest)
    lm: Any = model_of(spec)
    if not hasattr(lm, "hf_model"):
        raise UsageError(f"the model {spec.model} gives no hidden states to embed documents: name one with --encoder")
    return HiddenStateEncoder(lm.hf_model, spec.model_digest)


def _run(inputs: Inputs[BuildSpec], writer: ShardWriter) -> StageOutput:
    wanted = _wanted(inputs.spec)
    kept = {v.doc_id for v in inputs.records("prefilter", arrow.verdicts_of) if v.kept}
    documents = [d for d in inputs.records("ingest", arrow.documents_of) if d.doc_id in kept]
    scores, tokens = _scores(inputs, documents, writer) if documents else ([], 0)
    flags = most_relevant(scores, wanted.share)
    counts = count_rows("documents", ("kept" if flag else _DROPPED for flag in flags), "kept")
    columns = ([d.doc_id for d in documents], [inputs.tool] * len(documents), scores, flags)
    table = pa.table(
        list(map(pa.array, columns, stage_facts("relevance").schema.types)), stage_facts("relevance").schema
    )
    return StageOutput((counts,), table, {LM_TOKENS: tokens})


def _scores(inputs: Inputs[BuildSpec], documents: Sequence[Document], writer: ShardWriter) -> tuple[list[float], int]:
    """Return the documents' scores, and the tokens that passed through the model for them."""
    spec, description = inputs.spec, _wanted(inputs.spec).descriptions[inputs.tool]
    encoder = _encoder(spec)
    [file] = inputs.files["ingest"]

    def embed() -> tuple[list[float], int]:
        before = tokens_of_resident()
        found = relevance(documents, description, encoder, _embeddings_of(encoder.digest, file.digest))
        return found, tokens_of_resident() - before

    return in_model_thread(embed, waited=writer.add_wait)


def _digests(inputs: Inputs[BuildSpec]) -> Mapping[str, str]:
    spec, wanted = inputs.spec, _wanted(inputs.spec)
    encoder = {"encoder": wanted.encoder_digest} if wanted.encoder else spec.model_digests()
    return {**encoder, "description": digest_of("description", wanted.descriptions[inputs.tool])}


RELEVANCE: Stage[BuildSpec] = Stage(
    name="relevance",
    version="1",
    unit="documents",
    per="tool",
    needs="model",
    reads=("ingest", "prefilter"),
    run=_run,
    config=lambda inputs: _Config(_wanted(inputs.spec).share),
    digests=_digests,
    wanted=lambda spec: spec.relevance is not None,
)
