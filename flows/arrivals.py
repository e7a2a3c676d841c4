"""A folder that is watched for corpora: which files are new in it, and wholly there.

A file counts as arrived when two looks in a row find it alike, so one that is still being written is left alone until
it is done. What was there at the first look of all is known already; what is known is written down, so that what
arrives while nobody looks is found by the next who does. It knows no Prefect: who looks decides what to do.
"""

from __future__ import annotations

import json
from pathlib import Path

from toolformer_core.annotate.ingest import corpus_files
from toolformer_core.errors import CorpusError, UsageError

__all__ = ["Arrivals"]

_Look = tuple[int, int]  # bytes, time of the last change in ns


class Arrivals:
    """What arrives in a folder.

    Args:
        folder: what is looked into, and below.
        note: the file in which what is known is written down, of every folder that was ever watched.

    Raises:
        UsageError: there is no such folder.
    """

    def __init__(self, folder: Path, note: Path) -> None:
        self._folder = folder.absolute()
        self._note = note
        if not self._folder.is_dir():
            raise UsageError(f"--watch: there is no folder {folder}")
        self._seen: dict[str, _Look] = {}
        try:
            self._told: dict[str, list[str]] = dict(json.loads(note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            self._told = {}
        first = str(self._folder) not in self._told
        self._known = set(self._files() if first else self._told[str(self._folder)])
        self._write()

    def look(self) -> list[Path]:
        """Return the files that have arrived since the last look, by name."""
        now = self._files()
        arrived = [path for path, look in now.items() if path not in self._known and self._seen.get(path) == look]
        self._seen = now
        if arrived:
            self._known.update(arrived)
            self._write()
        return [Path(path) for path in sorted(arrived)]

    def _files(self) -> dict[str, _Look]:
        try:
            files = corpus_files(str(self._folder))
        except (CorpusError, OSError):  # none yet, or taken away just now
            return {}
        out = {}
        for file in files:
            try:
                found = file.stat()
            except FileNotFoundError:  # taken away since
                continue
            if found.st_size:  # an empty one has not begun to arrive
                out[str(file)] = (found.st_size, found.st_mtime_ns)
        return out

    def _write(self) -> None:
        self._told[str(self._folder)] = sorted(self._known)
        self._note.parent.mkdir(parents=True, exist_ok=True)
        self._note.write_text(json.dumps(self._told), encoding="utf-8")
