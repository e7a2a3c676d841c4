"""Whose turn it is when several wait: that of the one who has least under way, and of these who has waited longest.

So nobody who has much to be done keeps out others who have little. It knows owners (a request, say) and items (its
sequences, or its calls), and nothing of either. Not for several threads.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items that wait, each of an owner; an owner's own come in their order."""

    def __init__(self) -> None:
        # whoever has waited longest for a turn stands first
        self._lines: collections.OrderedDict[object, collections.deque[T]] = collections.OrderedDict()
        self._under_way: collections.Counter[object] = collections.Counter()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for line in self._lines.values():
            yield from line

    def under_way(self, owner: object) -> int:
        """How many of an owner's items have been taken and are not done."""
        return self._under_way[owner]

    def put(self, owner: object, item: T) -> None:
        """Let an item wait behind the others of its owner."""
        self._lines.setdefault(owner, collections.deque()).append(item)
        self._length += 1

    def put_back(self, owner: object, item: T) -> None:
        """Let an item that was taken wait again, in front of the others of its owner."""
        self.done(owner)
        self._lines.setdefault(owner, collections.deque()).appendleft(item)
        self._length += 1

    def first(self) -> tuple[object, T]:
        """Return the item whose turn it is, and its owner.

        Raises:
            ValueError: none waits.
        """
        idle = (owner for owner in self._lines if not self._under_way.get(owner))  # mostly the first is
        owner = next(idle, None) or min(self._lines, key=self._under_way.__getitem__)
        return owner, self._lines[owner][0]

    def take(self) -> T:
        """Take the item whose turn it is; `done` must follow.

        Raises:
            ValueError: none waits.
        """
        owner, item = self.first()
        self._drop(owner, item)
        if owner in self._lines:
            self._lines.move_to_end(owner)
        self._under_way[owner] += 1
        return item

    def done(self, owner: object) -> None:
        """An item that was taken is done."""
        self._under_way[owner] -= 1
        if not self._under_way[owner]:
            del self._under_way[owner]

    def discard(self, owner: object, item: T) -> None:
        """Forget an item, if it waits."""
        if item in self._lines.get(owner, ()):
            self._drop(owner, item)

    def clear(self) -> list[T]:
        """Forget all items that wait, and return them."""
        items = list(self)
        self._lines.clear()
        self._length = 0
        return items

    def _drop(self, owner: object, item: T) -> None:
        self._lines[owner].remove(item)
        self._length -= 1
        if not self._lines[owner]:
            del self._lines[owner]
