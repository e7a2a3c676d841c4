"""The text of a sequence so far: the text with its calls, the calls' spans, and the events that report both.

Tokens are decoded with a few preceding ones, as a decoder may drop the space in front of its first token; text that
ends in an incomplete character, or may start a stop string, is withheld.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolformer_core.decode.records import CallFinished, CallStarted, Emit, Finished, Generation, TextDelta, ToolCall
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
        if stops := [at for s in self._stop if (at := text.find(s)) >= 0]:
            self.stopped, self._withheld = True, ""
            return text[: min(stops)]
        # the longest end of the text with which a stop string begins; "" is one
        starts = (at for at in range(len(text) + 1) if any(s.startswith(text[at:]) for s in self._stop))
        certain = next(starts)
        self._withheld = text[certain:]
        return text[:certain]


@dataclass(slots=True)
class PendingCall:
    """A call at its arrow, without a response."""

    tool: str
    input: str
    text: str  # " [Calculator(1 + 1) ->"
    retokenize: str  # text of the last token, which is tokenised again together with the response
    failure: str  # why no tool is called; "" if one is


class Transcript:
    """The text and calls of one sequence that continues a prompt; `emit` is called with every event, immediately."""

    def __init__(self, tokenizer: Any, prompt: Sequence[int], stop: Sequence[str], emit: Emit, index: int) -> None:
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

    def start_call(self, call: PendingCall) -> None:
        """Report that a call has reached its arrow."""
        self._emit(CallStarted(self._index, call.tool, call.input, call.text))

    def finish_call(
        self,
        pending: PendingCall,
        closing: str,
        failure: ToolFailure | None,
        seconds: float,
        repeated: bool,
        ids: Sequence[int],
    ) -> None:
        """Add a call with its response and the closing bracket; `ids` are all tokens so far, theirs included."""
        start, self._length = self._length, self._length + len(pending.text) + len(closing)
        response = closing.removesuffix(CLOSE).strip()
        reason, detail = (failure.reason, failure.detail) if failure else (None, "")
        call = ToolCall(pending.tool, pending.input, response, reason, detail, start, self._length, seconds, repeated)
        self._calls.append(call)
        self._pieces += (pending.text, closing)
        self._stream.follow(ids)
        self._emit(CallFinished(self._index, call, closing))

    def finish(self, reason: str, *, ids: Sequence[int], **tokens: int) -> None:
        """Report that the sequence has ended; `tokens` are the token counts of `Generation`."""
        self.flush()
        text, finish = "".join(self._pieces), "stop" if self.stopped else reason
        clean = strip(text, [(c.start, c.end) for c in self._calls])
        generation = Generation(text, clean, tuple(self._calls), finish, ids=tuple(ids), **tokens)
        self._emit(Finished(self._index, generation))

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._length += len(text)
            self._emit(TextDelta(self._index, text))
