"""Which documents are kept from training to measure perplexity on, and what an arm learns of the others.

Both arms learn from the same documents and are measured on the same others, without calls. Nothing here knows where
documents are stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolformer_core.records import Example, digest_of
from toolformer_core.syntax import strip

__all__ = ["ARMS", "arm_text", "held_out"]

ARMS = ("toolformer", "cc")  # C*, and M + CC: the same documents with their calls removed (Toolformer, section 4.1)
_SHARE = 10  # at most every tenth document is held out


def held_out(doc_ids: Iterable[str], most: int, seed: int) -> frozenset[str]:
    """Choose the development documents: `most` of them (paper: 1,000), but at most a tenth of all, by a seeded digest.

    Whether a document is chosen before another depends on the two and the seed alone.
    """
    order = sorted((digest_of("dev", str(seed), doc_id), doc_id) for doc_id in doc_ids)
    return frozenset(doc_id for _, doc_id in order[: min(most, len(order) // _SHARE)])


def arm_text(example: Example, arm: str) -> str:
    """Return what an arm learns of a document of C*: x*, or x."""
    return example.text if arm == "toolformer" else strip(example.text, [(c.start, c.end) for c in example.calls])
