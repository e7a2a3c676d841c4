"""Folders of this machine whose entries survive a power cut. Light: `lock` needs it before pyarrow may be imported."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["fsync_folder", "make_folder"]


def fsync_folder(folder: str | Path) -> None:
    """Make renames within a local folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a local folder and its parents, each entry flushed to disk.

    Raises:
        OSError: it cannot be made.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)
