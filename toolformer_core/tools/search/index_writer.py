"""Writes a search index from a source of passages, in steps that a killed run does not lose.

Every so often the passages are committed to tantivy, then `progress.json` is replaced, which says how far the source
was read. tantivy's commit is the truth: of a run killed between the two, the next one reads some passages once more
without adding them. So a resumed index answers as one that was never interrupted. `index.json` is written last.

The digest is a chain: that of the passages so far and the next passage give the next one.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from toolformer_core.errors import UsageError
from toolformer_core.records import digest_of
from toolformer_core.tools.search.passage_sources import Position, Source, SourceIdentity
from toolformer_core.tools.search.passages import TOKENIZER, document_of, empty_index
from toolformer_core.tools.search.search_index import FORMAT_VERSION, INFO, PROGRESS, IndexInfo, read_info

_COMMIT_PASSAGES, _COMMIT_S = 125_000, 60.0  # eight segments of a size become one, so few of them are left
_THREADS = 4  # at most; they stem and sort the words
_HEAP_BYTES = 128_000_000  # per thread; tantivy writes a segment when it is full


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far a source is indexed, as it stands in `progress.json`."""

    identity: SourceIdentity
    limit: int | None
    position: Position
    passages: int
    digest: str
    read: int = 0  # bytes of the file on disk
    left_out: dict[str, int] = field(default_factory=dict)  # pages without passages, by the reason (`Record.left_out`)


def finished_index(source: Source, folder: Path, limit: int | None = None) -> IndexInfo | None:
    """Return what is known of the index in a folder if it is finished and of this source; None if it is not finished.

    A `UsageError` if the folder holds an index of something else, a damaged one, or other files.
    """
    if (folder / INFO).is_file():
        info = read_info(folder)
        _check_same(folder, info.identity, info.limit, source, limit)
        return info
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder by --out")
    if folder.is_dir() and not (folder / PROGRESS).is_file() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no index; name another folder by --out")
    return None


def build_index(
    source: Source,
    folder: Path,
    *,
    limit: int | None = None,
    on_progress: Callable[[IndexProgress], None] | None = None,
    commit_passages: int = _COMMIT_PASSAGES,
) -> IndexInfo:
    """Index a source, from where an earlier run of the same source stopped, and return what `index.json` says.

    Args:
        folder: where the index is or will be; nothing else may be in it.
        on_progress: called after every record of the source.
        commit_passages: the most passages that a killed run loses; 60 s of work at most, as far as records allow.

    Raises:
        UsageError: the folder is not fit for it, another process writes it, or the source has no passage or is damaged.
    """
    if (info := finished_index(source, folder, limit)) is not None:
        (folder / PROGRESS).unlink(missing_ok=True)
        return info
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / PROGRESS).is_file():
        start = digest_of("passages", str(FORMAT_VERSION), TOKENIZER)
        _put_json(folder / PROGRESS, asdict(IndexProgress(source.identity, limit, Position(), 0, start)))
    writer = _Writer(folder)
    try:
        progress = _read_progress(folder)  # once the writer has the lock
        _check_same(folder, asdict(progress.identity), progress.limit, source, limit)
        progress = _index(source, writer, progress, on_progress, commit_passages)
        if not progress.passages:
            raise UsageError(f"{source.path} holds no passages")
    except BaseException:
        with contextlib.suppress(ValueError):  # of a merge, after the error that counts
            writer.close()
        raise
    writer.close()
    return _finish(source, folder, progress)


def _index(
    source: Source,
    writer: _Writer,
    progress: IndexProgress,
    on_progress: Callable[[IndexProgress], None] | None,
    commit_passages: int,
) -> IndexProgress:
    """Add all passages after a committed position; return the progress at the end, committed."""
    limit = progress.limit
    held = writer.passages  # maybe more than `progress` knows of
    count, digest, left_out = progress.passages, progress.digest, dict(progress.left_out)
    committed, committed_at = count, time.monotonic()
    for record in source.records(progress.position):
        if limit is not None and count >= limit:
            break
        for passage in record.passages[: None if limit is None else limit - count]:
            digest = digest_of(digest, *passage)
            if count >= held:
                writer.add(count, passage)
            count += 1
        if record.left_out:
            left_out[record.left_out] = left_out.get(record.left_out, 0) + 1
        progress = replace(
            progress, position=record.end, passages=count, digest=digest, read=record.read, left_out=left_out
        )
        if count - committed >= commit_passages or time.monotonic() - committed_at >= _COMMIT_S:
            writer.commit(progress)
            committed, committed_at = count, time.monotonic()
        if on_progress is not None:
            on_progress(progress)
    if count < held:
        raise UsageError(f"the index in {writer.folder} holds more passages than {source.path}; remove it, start again")
    writer.commit(progress)
    return progress


class _Writer:
    """tantivy's writer in a folder, which holds the folder's lock until `close`."""

    def __init__(self, folder: Path) -> None:
        threads = max(1, min(_THREADS, os.cpu_count() or 1))
        self.folder = folder
        try:
            index = empty_index(folder)
            self._writer: Any = index.writer(heap_size=_HEAP_BYTES * threads, num_threads=threads)
        except (ValueError, OSError) as exc:
            raise UsageError(
                f"the index in {folder} cannot be written ({exc}): another process writes it, or it is damaged; wait, "
                "or remove the folder and start again"
            ) from exc
        index.reload()
        self.passages = int(index.searcher().num_docs)

    def add(self, row: int, passage: tuple[str, str, str]) -> None:
        self._writer.add_document(document_of(row, passage))

    def commit(self, progress: IndexProgress) -> None:
        self._writer.commit()
        _put_json(self.folder / PROGRESS, asdict(progress))

    def close(self) -> None:
        """Wait until the segments are merged, and give up the lock; what is not committed is lost.

        A merge that went on after it would take away files of the next writer, or of a reader.
        """
        writer, self._writer = self._writer, None
        writer.wait_merging_threads()


def _check_same(
    folder: Path, identity: dict[str, Any], known_limit: int | None, source: Source, limit: int | None
) -> None:
    if identity != asdict(source.identity):
        raise UsageError(
            f"{folder} holds the index of another file than {source.path}, or of one that has changed since; name "
            "another folder by --out, or remove this one"
        )
    if known_limit != limit:
        said = "no --limit" if known_limit is None else f"--limit {known_limit}"
        raise UsageError(f"the index in {folder} was begun with {said}; give the same, or name another folder by --out")


def _read_progress(folder: Path) -> IndexProgress:
    path = folder / PROGRESS
    try:
        value = json.loads(path.read_bytes())
        identity, position = SourceIdentity(**value.pop("identity")), Position(**value.pop("position"))
        return IndexProgress(identity=identity, position=position, **value)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise UsageError(f"{path} is damaged ({exc}); remove {folder} and start again") from exc


def _finish(source: Source, folder: Path, progress: IndexProgress) -> IndexInfo:
    files = sorted(file for file in folder.iterdir() if not file.name.startswith(".") and file.name != PROGRESS)
    info = IndexInfo(
        version=FORMAT_VERSION,
        source=source.path.name,
        identity=asdict(source.identity),
        limit=progress.limit,
        passages=progress.passages,
        digest=progress.digest,
        tokenizer=TOKENIZER,
        left_out=progress.left_out,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        files={file.name: file.stat().st_size for file in files},
    )
    _put_json(folder / INFO, asdict(info))
    (folder / PROGRESS).unlink()
    for file in folder.iterdir():  # tantivy keeps some to their owner, but an index is there to be shared
        file.chmod((folder / INFO).stat().st_mode)
    return info


def _put_json(path: Path, value: dict[str, Any]) -> None:
    """Write a file whole or not at all, also in a power cut."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
