"""Registers: three styles of wording a document, and the sentences that need no help.

A document keeps to one register: `plain`, `formal` (minutes, notices) or `chatty` (letters, posts). Each has its own
sentences, and its own words before and after a sentence (`registers.toml`).
"""

import random
from collections.abc import Mapping

from smallworld.frames import read_tables

REGISTERS = ("plain", "formal", "chatty")

_TABLES = read_tables("registers.toml")
FILLER: tuple[str, ...] = _TABLES["filler"]  # sentences for every register
REGISTER_FILLER: Mapping[str, tuple[str, ...]] = {name: _TABLES["register_filler"].get(name, ()) for name in REGISTERS}
OPENINGS: Mapping[str, tuple[str, ...]] = {name: _TABLES["openings"].get(name, ()) for name in REGISTERS}
# Words that are no longer capitalised when they no longer begin the sentence.
_SMALL = frozenset(
    "The A An It In On At Of Our We This That Those There Here With When Where Over Under After Each Every Everyone "
    "One Nobody Somebody Most My Her His She He They Out From For To If Please Between First Last Since So Some As By "
    "Welcome Good Now Put Adding Dividing People Boats Readers Settlers Letters Seen All Built Carved Entries Today "
    "Room What You Nothing Only Posted Two Take Whoever Everybody Below Tonight".split()
)


def reword(
    text: str, register: str, r: random.Random, *, starts_with_name: bool, often: float = 0.4
) -> tuple[str, int]:
    """Return a sentence in the wording of a register, and by how many characters its beginning has moved."""
    moved = 0
    if r.random() < often:
        before = r.choice(_TABLES["before"][register]) + " "
        first = text.split(" ", 1)[0].rstrip(",")
        text = before + (text[:1].lower() + text[1:] if first in _SMALL and not starts_with_name else text)
        moved = len(before)
    if r.random() < often / 2 and text.endswith("."):
        text = text[:-1] + r.choice(_TABLES["after"][register])
    return text, moved
