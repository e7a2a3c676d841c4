"""A folder that is watched for corpora: which files are new in it and complete.

A file has arrived when two looks in a row find it with the same size and time. The files of the very first look count
as known; what is known is written down, so that files that arrive while nobody looks are found later.
"""

import contextlib
import json
from pathlib import Path

from toolformer_core.annotate.ingest import corpus_files
from toolformer_core.errors import CorpusError, UsageError

_State = tuple[int, int]  # bytes, time of the last change in ns


class Arrivals:
    """The files that arrive in a folder; the known ones, of any watched folder, stand in the file `note`."""

    def __init__(self, folder: Path, note: Path) -> None:
        self._folder = folder.absolute()
        self._note = note
        if not self._folder.is_dir():
            raise UsageError(f"--watch: there is no folder {folder}")
        self._last: dict[str, _State] = {}  # the files at the last look
        try:
            self._known_by_folder: dict[str, list[str]] = dict(json.loads(note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            self._known_by_folder = {}
        first = str(self._folder) not in self._known_by_folder
        self._known = set(self._files() if first else self._known_by_folder[str(self._folder)])
        self._write()

    def look(self) -> list[Path]:
        """Return the files that have arrived since the last look, sorted by name."""
        files = self._files()
        arrived = [path for path, state in files.items() if path not in self._known and self._last.get(path) == state]
        self._last = files
        if arrived:
            self._known.update(arrived)
            self._write()
        return [Path(path) for path in sorted(arrived)]

    def _files(self) -> dict[str, _State]:
        try:
            files = corpus_files(str(self._folder))
        except (CorpusError, OSError):  # there are none yet, or the folder has just been removed
            return {}
        states = {}
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                if (stat := file.stat()).st_size:  # an empty file has not begun to arrive
                    states[str(file)] = (stat.st_size, stat.st_mtime_ns)
        return states

    def _write(self) -> None:
        self._known_by_folder[str(self._folder)] = sorted(self._known)
        self._note.parent.mkdir(parents=True, exist_ok=True)
        self._note.write_text(json.dumps(self._known_by_folder), encoding="utf-8")
