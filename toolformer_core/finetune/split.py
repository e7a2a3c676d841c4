"""Splits documents into training and development sets, and makes the training text of each arm.

Both arms learn from the same documents, and their perplexity is measured on the same held-out documents, without calls.
Nothing here knows where documents are stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolformer_core.records import Example, digest_of
from toolformer_core.syntax import strip

ARMS = ("toolformer", "cc")  # C*, and M + CC: the same documents with their calls removed (Toolformer, section 4.1)
_SHARE = 10  # at most every tenth document is held out


def held_out(doc_ids: Iterable[str], most: int, seed: int) -> frozenset[str]:
    """Choose the development documents by a seeded digest: `most` of them (paper: 1,000), but at most a tenth of all.

    Which of two documents is chosen first depends only on the two and the seed.
    """
    order = _in_order(doc_ids, seed)
    return frozenset(order[: min(most, len(order) // _SHARE)])


def held_out_share(doc_ids: Iterable[str], share: float, seed: int) -> frozenset[str]:
    """Choose a share of the documents, rounded to whole ones but at least one, in the order of `held_out`."""
    order = _in_order(doc_ids, seed)
    return frozenset(order[: max(1, round(share * len(order)))])


def _in_order(doc_ids: Iterable[str], seed: int) -> list[str]:
    return [doc_id for _, doc_id in sorted((digest_of("dev", str(seed), doc_id), doc_id) for doc_id in doc_ids)]


def training_text(example: Example, arm: str) -> str:
    """Return the training text of an arm of `ARMS` for a document of C*: x*, or x."""
    return example.text if arm == "toolformer" else strip(example.text, [(c.start, c.end) for c in example.calls])
