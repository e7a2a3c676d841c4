"""The text of a sequence so far: the text with its calls, the calls' spans, and the events that report both.

A token may hold a part of a character, and a decoder may drop the space in front of its first token. So tokens are
decoded together with a few preceding ones, and withheld while the text ends in an incomplete character. Text that may
be the start of a stop string is withheld too.

This module does not know what the model may write next, nor token positions; see `sequence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolformer_core.decode.records import (
    CallFinished,
    CallStarted,
    DecodeEvent,
    Finished,
    Generation,
    TextDelta,
    ToolCall,
)
from toolformer_core.records import ToolFailure
from toolformer_core.syntax import CLOSE, strip

_BEFORE = 6  # preceding tokens that are decoded too, so that the decoder does not see the start of a text
_INCOMPLETE = "\ufffd"
_MAX_WITHHELD = 16  # tokens withheld for an incomplete character; after that the bytes are invalid and shown as such


class TextStream:
    """The text of one run of tokens after another: whole characters only, and no text that may be taken back."""

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


class Transcript:
    """The text and calls of one sequence.

    Args:
        prompt: the token ids that precede the text.
        emit: called with every event, immediately.
    """

    def __init__(
        self,
        tokenizer: Any,
        prompt: Sequence[int],
        stop: Sequence[str],
        emit: Callable[[DecodeEvent], None],
        index: int,
    ) -> None:
        self._emit = emit
        self._index = index
        self._pieces: list[str] = []
        self._length = 0  # characters in the pieces
        self._calls: list[ToolCall] = []
        self._stream = TextStream(tokenizer, stop)
        self._stream.follow(prompt)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has occurred."""
        return self._stream.stopped

    def push(self, token: int) -> None:
        """Add a token of ordinary text."""
        self._add(self._stream.push(token))

    def flush(self) -> None:
        """Add the text that was withheld, because a call or the end follows."""
        self._add(self._stream.flush())

    def start_call(self, tool: str, input_: str, text: str) -> None:
        """Report that a call has reached its arrow; `text` is the call as written so far."""
        self._emit(CallStarted(self._index, tool, input_, text))

    def finish_call(
        self,
        tool: str,
        input_: str,
        parts: tuple[str, str],
        failure: ToolFailure | None,
        seconds: float,
        repeated: bool,
        ids: Sequence[int],
    ) -> None:
        """Add a call.

        Args:
            parts: the call's text up to the arrow, and its response with the closing bracket.
            failure: why the response is empty, if the tool failed.
            repeated: whether the response comes from an earlier call.
            ids: all tokens so far, including those of the response.
        """
        opening, closing = parts
        start, self._length = self._length, self._length + len(opening) + len(closing)
        call = ToolCall(
            tool=tool,
            input=input_,
            response=closing.removesuffix(CLOSE).strip(),
            failure=failure.reason or "failed" if failure else None,
            detail=failure.detail if failure else "",
            start=start,
            end=self._length,
            seconds=seconds,
            repeated=repeated,
        )
        self._calls.append(call)
        self._pieces += parts
        self._stream.follow(ids)
        self._emit(CallFinished(self._index, call, closing))

    def finish(self, reason: str, *, ids: Sequence[int], **tokens: int) -> None:
        """Report that the sequence has ended; `tokens` are the token counts of `Generation`."""
        self.flush()
        text = "".join(self._pieces)
        generation = Generation(
            text=text,
            clean=strip(text, [(c.start, c.end) for c in self._calls]),
            calls=tuple(self._calls),
            finish="stop" if self.stopped else reason,
            ids=tuple(ids),
            **tokens,
        )
        self._emit(Finished(self._index, generation))

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._length += len(text)
            self._emit(TextDelta(self._index, text))
