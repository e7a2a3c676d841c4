"""Optional packages: whether one is installed, and the command that installs it. Nothing is imported to find out."""

import importlib.util
import sys
from pathlib import Path

_CLONE = Path(__file__).resolve().parents[1]


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # sys.modules holds None in its place
        return False


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this package; in a clone, with the tested versions."""
    pip = f"{sys.executable} -m pip install"
    if (_CLONE / "constraints.txt").is_file():
        return f"{pip} --constraint {_CLONE}/constraints.txt --editable '{_CLONE}[{extra}]'"
    return f"{pip} 'toolformer-platform[{extra}]'"
