"""The text of a sequence so far: the text with its calls, the calls' spans, and the events that report both.

It does not know what the model may write next, nor token positions; see `sequence`.
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
from toolformer_core.decode.text import TextStream
from toolformer_core.records import ToolFailure
from toolformer_core.syntax import CLOSE, strip


class Transcript:
    """The text and calls of one sequence.

    Args:
        tokenizer: a fast tokenizer.
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
