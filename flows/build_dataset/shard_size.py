"""`--shard-documents auto`: how many documents a shard takes, so that every stage works on it for some tens of seconds.

The number follows from the corpus and its settings alone, as a shard's documents are part of every fingerprint.
"""

import math
from dataclasses import replace
from functools import lru_cache

from toolformer_core.annotate.ingest import corpus_files, read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.records import Document

_SAMPLED = 500  # documents
_SHARD_S = 30.0  # of work, in a stage
_DOCUMENT_S, _CHARACTER_S = 0.05, 50e-6  # assumed of a stage: scanned once, drawn from and scored a few times
_LEAST, _MOST = 16, 4096  # documents in a shard
_SHARDS = 64  # at least, as far as there are documents


@lru_cache(maxsize=64)
def auto_shard_documents(corpus: str, corpus_digest: str, config: IngestConfig) -> int:
    """Return the number of documents for the shards of a corpus; its digest has it looked into once a process."""
    rows = read_corpus(corpus, replace(config, limit=min(_SAMPLED, config.limit or _SAMPLED)))
    texts = [row.text for row in rows if isinstance(row, Document)]
    if not texts:
        return config.shard_documents  # the build will say why there is nothing to cut
    documents = len(texts)
    if documents == _SAMPLED:
        mean_bytes = sum(len(text.encode()) for text in texts) / documents
        documents = math.ceil(sum(file.stat().st_size for file in corpus_files(corpus)) / mean_bytes)
    return documents_per_shard(sum(map(len, texts)) / len(texts), min(documents, config.limit or documents))


def documents_per_shard(mean_characters: float, documents: int) -> int:
    """Return the power of two that is nearest to some tens of seconds of work, or less if there are few documents."""
    wanted = _SHARD_S / (_DOCUMENT_S + _CHARACTER_S * mean_characters)
    chosen: int = 2 ** round(math.log2(min(max(wanted, _LEAST), _MOST)))
    while chosen > _LEAST and documents / chosen < _SHARDS:
        chosen //= 2
    return chosen
