"""Chooses which items of a benchmark are asked: a seeded sample, in an order that the items' ids and the seed decide.

Items are put in the order of a digest of seed and id. The first of that order are asked, so that a larger sample begins
with the smaller one; the last are held out, never asked, and may be shown as examples. Which items are held out
depends on the benchmark and the seed, not on how many are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolformer_core.errors import UsageError
from toolformer_core.evaluate.items import Item
from toolformer_core.records import digest_of


@dataclass(frozen=True, slots=True)
class Selection:
    """The items that are asked, those that are held out, and how many are neither."""

    asked: tuple[Item, ...]
    held_out: tuple[Item, ...]
    left: int


def select_items(items: Iterable[Item], *, seed: int, limit: int | None = None, held_out: int = 0) -> Selection:
    """Choose items by the digest of seed and id.

    Args:
        items: with different ids.
        seed: another seed gives another sample.
        limit: the most items to ask; None: all that are not held out.
        held_out: how many to hold out; fewer if the benchmark would have no item left to ask.

    Raises:
        UsageError: the limit is not positive, or held_out is negative.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit must be at least 1, got {limit}")
    if held_out < 0:
        raise UsageError(f"held_out must be at least 0, got {held_out}")
    ordered: Sequence[Item] = sorted(items, key=lambda item: digest_of("selection", str(seed), item.item_id))
    end = len(ordered) - min(held_out, max(0, len(ordered) - 1))
    asked = tuple(ordered[:end] if limit is None else ordered[: min(limit, end)])
    return Selection(asked, tuple(ordered[end:]), end - len(asked))
