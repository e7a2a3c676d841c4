"""The documents for which a tool can matter, by GEAR's semantic score alone: the cosine of a text and a description.

Cosines of different tools, or of different encoders, cannot be compared, so no threshold is set on them: of some
documents a tool gets the share whose texts are nearest to its description. Nothing is sampled or asked here.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence

import numpy as np
from numpy.typing import NDArray

from toolformer_core.errors import UsageError
from toolformer_core.grounding.encoders import Encoder, cosines
from toolformer_core.records import Document

__all__ = ["most_relevant", "relevance"]


def relevance(
    documents: Sequence[Document],
    description: str,
    encoder: Encoder,
    embeddings: MutableMapping[str, NDArray[np.float32]],
) -> list[float]:
    """Return the cosine of each document's text with a tool's description, in order.

    Args:
        documents: the documents.
        description: what the tool does.
        encoder: embeds both.
        embeddings: of documents by their ids, by this encoder; the missing ones are computed and added.
    """
    missing = [document for document in documents if document.doc_id not in embeddings]
    if missing:
        rows = encoder.encode([document.text for document in missing])
        embeddings.update({document.doc_id: row for document, row in zip(missing, rows, strict=True)})
    if not documents:
        return []
    texts = np.stack([embeddings[document.doc_id] for document in documents])  # (N, D)
    return [float(cosine) for cosine in cosines(texts, encoder.encode([description]))[:, 0]]


def most_relevant(scores: Sequence[float], share: float) -> list[bool]:
    """Return for each document whether it is among the share with the highest scores, rounded up to whole documents.

    Of equal scores the earlier document counts as higher.

    Args:
        scores: one per document.
        share: in (0, 1].

    Raises:
        UsageError: the share is outside (0, 1].
    """
    if not 0 < share <= 1:
        raise UsageError(f"the share of relevant documents must lie in (0, 1], got {share:g}")
    # The share of a decimal fraction is meant exactly: 0.7 of 10 are 7, though 0.7 * 10 may be a little more than 7.
    count = math.ceil(round(share * len(scores), 9))
    highest = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]
    kept = set(highest)
    return [i in kept for i in range(len(scores))]
