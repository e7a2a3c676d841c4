"""Turns a stream of tokens into text: whole characters only, and no text that might have to be taken back.

A token may hold a part of a character, and a decoder may drop the space in front of its first token. So tokens are
decoded together with a few preceding ones, and withheld while the text ends in an incomplete character. Text that may
be the start of a stop string is withheld too. This module knows no calls; the caller pushes no tokens of calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_BEFORE = 6  # preceding tokens that are decoded too, so that the decoder does not see the start of a text
_INCOMPLETE = "\ufffd"
_MAX_WITHHELD = 16  # tokens withheld for an incomplete character; after that the bytes are invalid and shown as such


class TextStream:
    """The text of one run of tokens after another.

    Args:
        tokenizer: a fast tokenizer.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._decode = tokenizer.backend_tokenizer.decode
        self._stop = tuple(stop)
        self._longest = max((len(s) for s in self._stop), default=0)
        self.stopped = False  # a stop string has occurred; no more text is returned
        self.follow([])

    def follow(self, ids: Sequence[int]) -> None:
        """Start a run that follows these tokens."""
        start = max(0, len(ids) - _BEFORE)
        while start > max(0, len(ids) - _BEFORE - 3) and self._text(list(ids[start:])).startswith(_INCOMPLETE):
            start -= 1  # do not start inside a character
        self._ids = list(ids[start:])
        self._decoded = len(self._ids)  # how many of them have been returned as text
        self._decoded_text = self._text(self._ids)
        self._withheld = ""  # text that may be the start of a stop string

    def push(self, token: int) -> str:
        """Add a token; return the text that is now certain."""
        self._ids.append(token)
        text = self._text(self._ids)
        waiting = len(self._ids) - self._decoded
        if (text.endswith(_INCOMPLETE) or len(text) <= len(self._decoded_text)) and waiting < _MAX_WITHHELD:
            return ""
        return self._certain(self._take(text))

    def flush(self) -> str:
        """End the run; return the text that was withheld."""
        if self.stopped:
            return ""
        new = self._take(self._text(self._ids)) if len(self._ids) > self._decoded else ""
        out = self._certain(new) + self._withheld
        self._withheld = ""
        return out

    def _text(self, ids: list[int]) -> str:
        return str(self._decode(ids, skip_special_tokens=True)) if ids else ""

    def _take(self, text: str) -> str:
        new = text[len(self._decoded_text) :]
        self._ids = self._ids[self._decoded :]
        self._decoded = len(self._ids)
        self._decoded_text = self._text(self._ids)
        return new

    def _certain(self, new: str) -> str:
        if not self._stop:
            return new
        text = self._withheld + new
        stops = [at for s in self._stop if (at := text.find(s)) >= 0]
        if stops:
            self.stopped = True
            self._withheld = ""
            return text[: min(stops)]
        for n in range(min(self._longest - 1, len(text)), 0, -1):
            if any(s.startswith(text[-n:]) for s in self._stop):
                self._withheld = text[-n:]
                return text[:-n]
        self._withheld = ""
        return text
