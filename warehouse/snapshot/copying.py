"""A snapshot begins as a copy of the last one: of its bytes, without reading them into this process.

Where the file system can (XFS, Btrfs), the copy shares the blocks of the original and costs nothing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb

from warehouse.files.folders import private_mode
from warehouse.snapshot.index import FORMAT

_MANY_BLOCKS = 256  # of 16 KiB; smaller files may be mostly empty


def begin_as_copy(last: Path, temporary: Path) -> bool:
    """Copy the last snapshot; return False, without a copy, if there is none that changes can be applied to.

    That is the case for a file of another version of this program, and for one of which more than half is unused.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
        duckdb.Error: the last snapshot cannot be read.
    """
    try:
        source = last.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        return False
    with source:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private_mode(temporary.parent))
        with os.fdopen(handle, "wb") as target:
            try:
                while os.copy_file_range(source.fileno(), target.fileno(), 1 << 30):
                    pass
            except OSError:  # not on this file system; what is there is overwritten
                source.seek(0)
                target.seek(0)
                shutil.copyfileobj(source, target, 1 << 20)
    if _can_be_changed(temporary):
        return True
    temporary.unlink()
    return False


def _can_be_changed(copy: Path) -> bool:
    with duckdb.connect(str(copy)) as connection:
        try:
            rows = connection.execute("SELECT value FROM facts.about WHERE name = 'index'").fetchall()
        except duckdb.CatalogException:  # an older one has no such table
            return False
        [(total, free)] = connection.execute("SELECT total_blocks, free_blocks FROM pragma_database_size()").fetchall()
    return rows == [(FORMAT,)] and (total <= _MANY_BLOCKS or 2 * free <= total)
