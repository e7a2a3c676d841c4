"""A data folder on which work is tried out: everything is read as it is, and what is written goes elsewhere.

A plan runs the stages' own code over it, as far as that costs no model, and asks which commits would be found. Nothing
of the data changes, not even what is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warehouse.files import Files, LocalFiles

__all__ = ["Rehearsal"]


class Rehearsal:
    """File operations (`Files`) before those of the data.

    Args:
        data: the data's own; only read.
        folder: an empty local folder for what is written; whoever made it removes it.
    """

    def __init__(self, data: Files, folder: Path) -> None:
        self.root = data.root
        self._data = data
        self._own = LocalFiles(folder)
        self._gone: set[str] = set()

    def put(self, path: str, data: bytes) -> None:
        """See `Files`; the data's own file stays."""
        self._own.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        """See `Files`."""
        return self.look(path) is None and self._own.create(path, data)

    def get(self, path: str) -> bytes | None:
        """See `Files`."""
        found = self._own.get(path)
        return found if found is not None or path in self._gone else self._data.get(path)

    def look(self, path: str) -> tuple[int, float] | None:
        """See `Files`."""
        found = self._own.look(path)
        return found if found is not None or path in self._gone else self._data.look(path)

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        """See `Files`."""
        theirs = set(self._data.walk(folder, suffix)) - self._gone
        yield from sorted(theirs | set(self._own.walk(folder, suffix)))

    def move(self, path: str, target: str) -> None:
        """See `Files`; the data's own file stays."""
        data = self.get(path)
        if data is not None:
            self.put(target, data)
            self.delete(path)

    def delete(self, path: str) -> None:
        """See `Files`; the data's own file stays."""
        self._own.delete(path)
        self._gone.add(path)

    def abandoned(self, older_than_s: float) -> Iterator[str]:
        """See `Files`: what others left behind is not looked for here."""
        return iter(())
