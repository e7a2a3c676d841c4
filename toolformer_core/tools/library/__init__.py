"""The library: tools that come with the program besides the paper's five, by the names that users type.

A tool is a function in one of the modules beside this one, decorated with `tool` like a user's own; its annotation
prompt is the text file of its name. `distractors` are more tools to choose from, which make their answers up.
"""

import importlib
from collections.abc import Mapping

__all__ = ["DISTRACTOR_PREFIX", "LIBRARY", "is_library_name", "library_tool"]

DISTRACTOR_PREFIX = "distractor_"  # in front of every key, so that nobody asks a made-up tool by mistake

# The name that users type, which is the tool's key and that of its function -> the module beside this one.
LIBRARY: Mapping[str, str] = {
    "units": "units",
    "time_zone": "time_zones",
    "logarithm": "powers",
    "power": "powers",
    "date_arithmetic": "dates",
    "dictionary": "dictionary",
    "sleep": "actions",
    "robot_move": "actions",
}


def is_library_name(name: str) -> bool:
    """Return whether a name is one of the library's, or may be that of a distractor; nothing is imported."""
    return name in LIBRARY or name.startswith(DISTRACTOR_PREFIX)


def library_tool(name: str) -> object:
    """Import and return a tool of the library, or a distractor; an `UnknownNameError` if there is none of that name."""
    if name in LIBRARY:
        return getattr(importlib.import_module(f"{__name__}.{LIBRARY[name]}"), name)
    from toolformer_core.tools.library.distractors import distractor

    return distractor(name)
