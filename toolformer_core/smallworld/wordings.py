"""Wordings: what pretraining makes of a frame, so that neither a call nor a value hangs on the frame's own words.

A large model has read every ordinary word in many places, and the same thing said in many ways. A small one that reads
the frames as they stand learns them by heart: where a frame is new, or one word in it, it copies nothing any more. So
in pretraining a frame is now and then put together from two, and other words stand in place of some of its own. The
words are those of all frames, the held-out ones too: worlds share their vocabulary, not their sentences. This module
does not know what a frame means, or which of them may be used.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Sequence

from toolformer_core.smallworld.frames import ARITHMETIC, DATES, FACTS, TRANSLATIONS
from toolformer_core.smallworld.registers import FILLER, OWN_FILLER

__all__ = ["VOCABULARY", "blurred", "joined"]

_WORD = re.compile(r"(?<![\w{<])[A-Za-z]{2,}(?![\w}>])")


def _vocabulary() -> tuple[str, ...]:
    said = (
        *ARITHMETIC.values(),
        DATES,
        *(fact[4] for fact in FACTS.values()),
        TRANSLATIONS,
        FILLER,
        *OWN_FILLER.values(),
    )
    found = {word.lower() for frame in itertools.chain(*said) for word in _WORD.findall(frame)}
    return tuple(sorted(found - {"calendar"}))  # at a sentence's beginning it would be a real tool's name


VOCABULARY = _vocabulary()  # of ordinary words, small letters


def joined(beginning: str, end: str, parts: Sequence[str]) -> str:
    """Return a frame that begins as one and ends as another.

    Args:
        beginning, end: frames with the same parts.
        parts: what both hold, in their order, the value's `<...>` last. The seam is behind what the value hangs on, or
            where that is nothing, behind the value.

    Returns:
        The beginning alone where one of the two lacks a part.
    """
    cuts = [_seam(frame, parts[:-1]) for frame in (beginning, end)]
    if min(cuts) < 0:
        return beginning
    return beginning[: cuts[0]] + end[cuts[1] :]


def _seam(frame: str, needed: Sequence[str]) -> int:
    """Return the offset behind the last of the needed parts, or of the value if none is; -1 if one is not there."""
    places = [frame.find(part) for part in needed]
    if -1 in places:
        return -1
    return max((at + len(part) for at, part in zip(places, needed, strict=True)), default=frame.find(">") + 1)


def blurred(frame: str, share: float, r: random.Random, unknown: Callable[[], str]) -> str:
    """Return the frame with other words in place of some of its own; parts and punctuation stay.

    Args:
        share: how likely each word is to give way.
        unknown: makes a word that nobody knows; every third is one.
    """

    def other(match: re.Match[str]) -> str:
        if r.random() >= share:
            return match.group()
        word = unknown() if r.random() < 1 / 3 else r.choice(VOCABULARY)
        return word[:1].upper() + word[1:] if match.start() == 0 else word

    return _WORD.sub(other, frame)
