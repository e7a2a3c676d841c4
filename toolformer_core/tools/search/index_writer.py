"""Writes a search index from a source of passages, in steps that a killed run does not lose.

Every so often the passages are committed to tantivy, then `progress.json` is replaced, which says how far the source
was read. tantivy's commit is the truth: of a run killed between the two, the next one reads some passages once more
without adding them. `index.json` is written last.
"""

import datetime
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
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

    `on_progress` is called after every record of the source. A killed run loses at most `commit_passages`, and 60 s of
    work, as far as records allow. A `UsageError` if the folder is not fit for it, another process writes it, or the
    source has no passage or is damaged.
    """
    if (info := finished_index(source, folder, limit)) is not None:
        (folder / PROGRESS).unlink(missing_ok=True)
        return info
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / PROGRESS).is_file():
        start = digest_of("passages", str(FORMAT_VERSION), TOKENIZER)
        _put_json(folder / PROGRESS, asdict(IndexProgress(source.identity, limit, Position(), 0, start)))
    with _writing(folder) as (writer, held):
        begun = progress = _read_progress(folder)  # once the writer has the lock
        _check_same(folder, asdict(begun.identity), begun.limit, source, limit)
        committed, committed_at = begun.passages, time.monotonic()
        for progress in _indexed(source, begun, writer, held):
            if progress.passages - committed >= commit_passages or time.monotonic() - committed_at >= _COMMIT_S:
                _commit(writer, folder, progress)
                committed, committed_at = progress.passages, time.monotonic()
            if on_progress is not None:
                on_progress(progress)
        if progress.passages < held:
            raise UsageError(f"the index in {folder} holds more passages than {source.path}; remove it, start again")
        if not progress.passages:
            raise UsageError(f"{source.path} holds no passages")
        _commit(writer, folder, progress)
    return _finish(source, folder, progress)


@contextmanager
def _writing(folder: Path) -> Iterator[tuple[Any, int]]:
    """Yield tantivy's writer, which holds the folder's lock, and the number of passages that are there.

    At the end the segments are merged: a merge that went on would take away files of the next writer, or of a reader.
    """
    threads = max(1, min(_THREADS, os.cpu_count() or 1))
    try:
        index = empty_index(folder)
        writer: Any = index.writer(heap_size=_HEAP_BYTES * threads, num_threads=threads)
    except (ValueError, OSError) as exc:
        raise UsageError(
            f"the index in {folder} cannot be written ({exc}): another process writes it, or it is damaged; wait, or "
            "remove the folder and start again"
        ) from exc
    index.reload()
    try:
        yield writer, int(index.searcher().num_docs)
    except BaseException:
        with suppress(ValueError):  # of a merge, after the error that counts
            writer.wait_merging_threads()
        raise
    writer.wait_merging_threads()


def _indexed(source: Source, begun: IndexProgress, writer: Any, held: int) -> Iterator[IndexProgress]:
    """Add all passages after a committed position but those that the index holds; yield how far each record led."""
    limit, count, digest, left_out = begun.limit, begun.passages, begun.digest, dict(begun.left_out)
    for record in source.records(begun.position):
        if limit is not None and count >= limit:
            return
        for passage in record.passages[: None if limit is None else limit - count]:
            digest = digest_of(digest, *passage)
            if count >= held:
                writer.add_document(document_of(count, passage))
            count += 1
        if record.left_out:
            left_out[record.left_out] = left_out.get(record.left_out, 0) + 1
        yield IndexProgress(begun.identity, limit, record.end, count, digest, record.read, left_out)


def _commit(writer: Any, folder: Path, progress: IndexProgress) -> None:
    writer.commit()
    _put_json(folder / PROGRESS, asdict(progress))


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
