"""Files over those of a data folder, which does not change: a dry run (`plan`) has the stages' own code work on it."""

from collections.abc import Iterator
from pathlib import Path

from warehouse.files.base import Files, LocalFiles


class OverlayFiles:
    """File operations (`Files`) that only read the data folder; what is written goes to an empty local folder."""

    def __init__(self, data: Files, folder: Path) -> None:
        self.root = data.root
        self._data = data
        self._written = LocalFiles(folder)
        self._deleted: set[str] = set()  # paths of the data folder that seem to be gone

    def put(self, path: str, data: bytes) -> None:
        self._written.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        return self.stat(path) is None and self._written.create(path, data)

    def get(self, path: str) -> bytes | None:
        data = self._written.get(path)
        return data if data is not None or path in self._deleted else self._data.get(path)

    def stat(self, path: str) -> tuple[int, float] | None:
        stat = self._written.stat(path)
        return stat if stat is not None or path in self._deleted else self._data.stat(path)

    def walk(self, folder: str, suffix: str = "") -> Iterator[str]:
        paths = set(self._data.walk(folder, suffix)) - self._deleted
        yield from sorted(paths | set(self._written.walk(folder, suffix)))

    def stats(self, folder: str) -> Iterator[tuple[str, tuple[int, float]]]:
        written = dict(self._written.stats(folder))
        hidden = self._deleted | written.keys()
        yield from ((path, stat) for path, stat in self._data.stats(folder) if path not in hidden)
        yield from written.items()

    def move(self, path: str, target: str) -> None:
        data = self.get(path)
        if data is not None:
            self.put(target, data)
            self.delete(path)

    def delete(self, path: str) -> None:
        self._written.delete(path)
        self._deleted.add(path)

    def stale_temporaries(self, older_than_s: float) -> Iterator[str]:
        """See `Files`; those of other processes are not looked for."""
        return iter(())
