"""A fair queue: the next turn goes to the owner with the least in progress, and among those to the longest waiting."""

import collections
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Waiting items, each with an owner; items of one owner keep their order. It is not thread-safe."""

    def __init__(self) -> None:
        # the owner that has waited longest for a turn comes first
        self._queues: collections.OrderedDict[object, collections.deque[T]] = collections.OrderedDict()
        self._in_progress: collections.Counter[object] = collections.Counter()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[T]:
        for items in self._queues.values():
            yield from items

    def in_progress(self, owner: object) -> int:
        """Return how many of an owner's items have been taken and are not done."""
        return self._in_progress[owner]

    def put(self, owner: object, item: T) -> None:
        self._queues.setdefault(owner, collections.deque()).append(item)

    def put_back(self, owner: object, item: T) -> None:
        """Return a taken item to the queue, in front of the others of its owner."""
        self.done(owner)
        self._queues.setdefault(owner, collections.deque()).appendleft(item)

    def first(self) -> tuple[object, T]:
        """Return the next item and its owner, without taking it; a `ValueError` if the queue is empty."""
        idle = (owner for owner in self._queues if not self._in_progress.get(owner))  # usually the first one
        owner = next(idle, None) or min(self._queues, key=self._in_progress.__getitem__)
        return owner, self._queues[owner][0]

    def take(self) -> T:
        """Take the next item; `done` or `put_back` must follow."""
        owner, item = self.first()
        self._drop(owner, item)
        if owner in self._queues:
            self._queues.move_to_end(owner)
        self._in_progress[owner] += 1
        return item

    def done(self, owner: object) -> None:
        self._in_progress[owner] -= 1
        if not self._in_progress[owner]:
            del self._in_progress[owner]

    def discard(self, owner: object, item: T) -> None:
        if item in self._queues.get(owner, ()):
            self._drop(owner, item)

    def remove(self, owner: object, unwanted: Callable[[T], bool]) -> None:
        for item in [item for item in self._queues.get(owner, ()) if unwanted(item)]:
            self._drop(owner, item)

    def clear(self) -> list[T]:
        items = list(self)
        self._queues.clear()
        return items

    def _drop(self, owner: object, item: T) -> None:
        self._queues[owner].remove(item)
        if not self._queues[owner]:
            del self._queues[owner]
