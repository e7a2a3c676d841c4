"""What a sequence has said so far: its text with calls, the calls' spans in it, and the events that tell of both.

It knows neither what the model may write next nor where tokens lie; see `row`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolformer_core.decode.records import (
    CallFinished,
    CallStarted,
    Event,
    Finished,
    Generation,
    TextDelta,
    ToolCall,
)
from toolformer_core.decode.text import TextStream
from toolformer_core.records import ToolFailure
from toolformer_core.syntax import CLOSE, strip

__all__ = ["Transcript"]


class Transcript:
    """The text and calls of one sequence.

    Args:
        tokenizer: a fast one.
        prompt: token ids in front of all text.
        stop: strings that end the text.
        emit: told of every event, at once.
        index: of the sequence, for the events.
    """

    def __init__(
        self, tokenizer: Any, prompt: Sequence[int], stop: Sequence[str], emit: Callable[[Event], None], index: int
    ) -> None:
        self._emit = emit
        self._index = index
        self._pieces: list[str] = []
        self._length = 0  # characters of them
        self._calls: list[ToolCall] = []
        self._stream = TextStream(tokenizer, stop)
        self._stream.follow(prompt)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has come."""
        return self._stream.stopped

    def push(self, token: int) -> None:
        """Add a token of ordinary text."""
        self._show(self._stream.push(token))

    def flush(self) -> None:
        """Show what was held back: a call or the end comes next."""
        self._show(self._stream.flush())

    def start_call(self, tool: str, input_: str, shown: str) -> None:
        """A call has come to its arrow; `shown` is how it stands in the text."""
        self._emit(CallStarted(self._index, tool, input_, shown))

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
            tool, input_: what was called.
            parts: its text up to the arrow, and its response with the bracket that closes it.
            failure: why the response is empty, if the tool failed.
            seconds: it took.
            repeated: it was known from an earlier call.
            ids: all tokens so far, those of the response included.
        """
        shown, closing = parts
        start, self._length = self._length, self._length + len(shown) + len(closing)
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

    def finish(self, why: str, *, ids: Sequence[int], **tokens: int) -> None:
        """Tell that the sequence has ended; `tokens` are the counts of `Generation`."""
        self.flush()
        text = "".join(self._pieces)
        generation = Generation(
            text=text,
            clean=strip(text, [(c.start, c.end) for c in self._calls]),
            calls=tuple(self._calls),
            finish="stop" if self.stopped else why,
            ids=tuple(ids),
            **tokens,
        )
        self._emit(Finished(self._index, generation))

    def _show(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._length += len(text)
            self._emit(TextDelta(self._index, text))
