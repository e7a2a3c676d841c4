"""Local folders whose entries survive a power cut, and files in them that others may not read; nothing heavy."""

import contextlib
import os
import stat
from pathlib import Path


def private_mode(folder: Path) -> int:
    """Return the mode of databases, logs and records of runs in a folder: 0600, or 0660 if it has `chmod g+s`."""
    return 0o660 if folder.stat().st_mode & stat.S_ISGID else 0o600


def make_private(*files: Path, create: bool = True) -> None:
    """Give files the mode of `private_mode`; files of other users stay as they are."""
    for file in files:
        mode = private_mode(file.parent)
        if create:
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode))
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if stat.S_IMODE(file.stat().st_mode) != mode:
                file.chmod(mode)


def fsync_folder(folder: str | Path) -> None:
    """Make renames within a local folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a local folder and its parents, so that they survive a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)
