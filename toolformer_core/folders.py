"""Walks folders by their real places: links are followed, and each real folder is entered once, so that loops end.

A folder that several links reach stands where no link is needed; else under the first link, in order of names.
"""

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path


def walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each folder below `root` with the names of its folders and of everything else, as `os.walk` does.

    The caller may remove names from the list of folders; those are not entered. An OSError if one cannot be listed.
    """
    entered = set()
    roots = deque([os.fspath(root)])
    while roots:
        for here, folders, names in os.walk(roots.popleft(), onerror=_raise):
            place = identity(here)
            if place in entered:
                folders.clear()
                continue
            entered.add(place)
            folders.sort()
            yield Path(here), folders, names
            roots.extend(path for name in folders if os.path.islink(path := os.path.join(here, name)))


def _raise(error: OSError) -> None:
    raise error


def identity(path: str | Path) -> tuple[int, int]:
    """Return device and inode of what a path leads to: the same for all links to it."""
    state = os.stat(path)
    return state.st_dev, state.st_ino


def regular_files(root: Path) -> list[Path]:
    """Return the files below a folder, sorted; a file under several names is listed under each."""
    return sorted(path for here, _, names in walk(root) for name in names if (path := here / name).is_file())


def file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def not_a_file(path: Path) -> str:
    """Return what stands at a path that is neither file nor folder; "" if nothing does, or one of them."""
    if path.is_file() or path.is_dir():
        return ""
    if path.exists():
        return "a pipe, device or socket"
    return "a link that leads nowhere" if path.is_symlink() else ""
