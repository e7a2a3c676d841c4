"""Varies the wording of frames in pretraining, so that neither a call nor a value depends on a frame's exact words.

A small model that reads only the frames themselves memorises them. In pretraining some frames are therefore spliced
from two, and some have words replaced by others of all frames, including the held-out ones: worlds share their
vocabulary, but not their sentences.
"""

import itertools
import random
import re
from collections.abc import Callable, Sequence

from smallworld.frames import ARITHMETIC, DATES, FACTS, TRANSLATIONS
from smallworld.registers import FILLER, REGISTER_FILLER

_WORD = re.compile(r"(?<![\w{<])[A-Za-z]{2,}(?![\w}>])")

_FACTS = (fact.frames for fact in FACTS.values())
_TEMPLATES = (*ARITHMETIC.values(), DATES, *_FACTS, TRANSLATIONS, FILLER, *REGISTER_FILLER.values())
_WORDS = {word.lower() for frame in itertools.chain(*_TEMPLATES) for word in _WORD.findall(frame)}
# Ordinary words, in lower case; "Calendar" would be the name of a real tool.
VOCABULARY = tuple(sorted(_WORDS - {"calendar"}))


def splice(beginning: str, end: str, parts: Sequence[str]) -> str:
    """Return a frame that begins like one frame and ends like another; the beginning unchanged if one lacks a part.

    `parts` are those that both contain, in order, the value's `<...>` last. The frames are joined after the parts on
    which the value depends, or, if there are none, after the value.
    """
    cuts = [_seam(frame, parts[:-1]) for frame in (beginning, end)]
    if min(cuts) < 0:
        return beginning
    return beginning[: cuts[0]] + end[cuts[1] :]


def _seam(frame: str, needed: Sequence[str]) -> int:
    """Return the offset after the last needed part, or after the value if none is needed; -1 if one is missing."""
    starts = [frame.find(part) for part in needed]
    if -1 in starts:
        return -1
    return max((start + len(part) for start, part in zip(starts, needed, strict=True)), default=frame.find(">") + 1)


def replace_words(frame: str, share: float, r: random.Random, unknown: Callable[[], str]) -> str:
    """Return the frame with a share of its words replaced, every third by an invented one; parts stay."""

    def other(match: re.Match[str]) -> str:
        if r.random() >= share:
            return match.group()
        word = unknown() if r.random() < 1 / 3 else r.choice(VOCABULARY)
        return word[:1].upper() + word[1:] if match.start() == 0 else word

    return _WORD.sub(other, frame)
