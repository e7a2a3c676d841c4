"""From tokens to text while they come: whole characters only, and nothing that might still have to be taken back.

A token may hold half a character, and a decoder may drop the space in front of the first token it sees. So tokens are
decoded behind a few that stand before them, and held back while the text ends in an unfinished character. Text that may
be the beginning of a stop string is held back too. It does not know calls: whoever does, pushes no tokens of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["TextStream"]

_BEFORE = 6  # tokens decoded in front of a stretch, so that it reads as in the middle of a text
_UNFINISHED = "\ufffd"
_HELD = 16  # tokens held for an unfinished character; bytes that are none after so many are shown as they are


class TextStream:
    """The text of one stretch of tokens after another.

    Args:
        tokenizer: a fast one.
        stop: strings that end the text.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._decode = tokenizer.backend_tokenizer.decode
        self._stop = tuple(stop)
        self._longest = max((len(s) for s in self._stop), default=0)
        self.stopped = False  # a stop string has come; nothing more is given out
        self.follow([])

    def follow(self, ids: Sequence[int]) -> None:
        """Begin a stretch behind these tokens."""
        start = max(0, len(ids) - _BEFORE)
        while start > max(0, len(ids) - _BEFORE - 3) and self._text(list(ids[start:])).startswith(_UNFINISHED):
            start -= 1  # not in the middle of a character
        self._ids = list(ids[start:])
        self._known = len(self._ids)  # tokens whose text has been seen
        self._shown = self._text(self._ids)  # what they read as
        self._back = ""  # text held back for the stop strings

    def push(self, token: int) -> str:
        """Add a token; return the text that is now certain."""
        self._ids.append(token)
        text = self._text(self._ids)
        held = len(self._ids) - self._known
        if (text.endswith(_UNFINISHED) or len(text) <= len(self._shown)) and held < _HELD:
            return ""
        return self._certain(self._take(text))

    def flush(self) -> str:
        """Return what is still held back: the stretch has ended."""
        if self.stopped:
            return ""
        new = self._take(self._text(self._ids)) if len(self._ids) > self._known else ""
        out = self._certain(new) + self._back
        self._back = ""
        return out

    def _text(self, ids: list[int]) -> str:
        return str(self._decode(ids, skip_special_tokens=True)) if ids else ""

    def _take(self, text: str) -> str:
        new = text[len(self._shown) :]
        self._ids = self._ids[self._known :]
        self._known = len(self._ids)
        self._shown = self._text(self._ids)
        return new

    def _certain(self, new: str) -> str:
        if not self._stop:
            return new
        text = self._back + new
        found = [at for s in self._stop if (at := text.find(s)) >= 0]
        if found:
            self.stopped = True
            self._back = ""
            return text[: min(found)]
        for n in range(min(self._longest - 1, len(text)), 0, -1):
            if any(s.startswith(text[-n:]) for s in self._stop):
                self._back = text[-n:]
                return text[:-n]
        self._back = ""
        return text
