"""Sentence frames: the small world's grammar, one frame per line of `frames.toml`.

A frame is a template with its value in `<...>`; the call belongs in front of the space before the value. Frames know no
tool; `worlds` fills them in. Every fourth frame of a kind is *held out* of pretraining, half of these for the corpus
alone and half for the evaluation (`home`).
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """A relation, and what is said and asked of it; {s} is the subject, {v} the value."""

    kind: str  # of subject
    question: str
    term: str  # for a search
    entry: str  # the sentence of the encyclopedia
    frames: tuple[str, ...]


def is_held_out(index: int) -> bool:
    """Return whether the frame at this index of its kind is kept out of pretraining (25 %)."""
    return index % 4 == 3


def home(index: int) -> str:
    """Return the only world that has the frame at this index of its kind, or `shared` (75 %)."""
    if not is_held_out(index):
        return "shared"
    return "corpus" if index % 8 == 3 else "evaluation"


def read_tables(name: str) -> dict[str, Any]:
    """Return the tables of a TOML file of this package; a text of several lines is the tuple of its lines."""

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: read(inner) for key, inner in value.items()}
        return tuple(value.splitlines()) if "\n" in value else value

    tables = tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))
    return {key: read(value) for key, value in tables.items()}


_TABLES = read_tables("frames.toml")
ARITHMETIC: Mapping[str, tuple[str, ...]] = _TABLES["arithmetic"]  # by operation
DATES: tuple[str, ...] = _TABLES["dates"]
FACTS: Mapping[str, Fact] = {relation: Fact(**table) for relation, table in _TABLES["facts"].items()}
TRANSLATIONS: tuple[str, ...] = _TABLES["translations"]
