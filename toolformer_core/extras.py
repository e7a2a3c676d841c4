"""Optional packages: whether one is here, and the command that brings it. Nothing is imported to find that out."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

__all__ = ["how_to_install", "is_installed"]

_CLONE = Path(__file__).resolve().parents[1]


def is_installed(module: str) -> bool:
    """Return whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # None stands in sys.modules in its place
        return False


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this package, in the versions that were tried if this is a clone."""
    pip = f"{sys.executable} -m pip install"
    if (_CLONE / "constraints.txt").is_file():
        return f"{pip} --constraint {_CLONE}/constraints.txt --editable '{_CLONE}[{extra}]'"
    return f"{pip} 'toolformer-platform[{extra}]'"
