"""One sequence while it is being decoded: what it has written, what it may write next, and the call it is in.

    text --" [" is likely enough--> opening --all of " [" is there--> call --arrow--> waiting --response--> text
                                       |                                |
                                       +------- it was no call ---------+--> text

A call is opened though the model would rather have gone on, so it must be possible to take it back: the sequence is cut
to where it stood, and goes on with the token it would have had. That happens to a call that never comes to its arrow
(closed, ended or grown too long before), and it counts as one of the calls allowed. Where " [" was the model's own
choice and no tool's name follows, it is ordinary text with a bracket in it, and stays: "[Note(see above) -> below]".

A row knows token ids and text, and no model: the engine tells it the model's choice, and reads `pending` for what the
model is to be fed next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolformer_core.annotate.execute import one_line
from toolformer_core.config import TOOL_NAMES, ExecuteConfig
from toolformer_core.decode.calls import (
    arrow_end,
    begins_with_a_tool,
    is_closed,
    may_be_call,
    may_name_a_tool,
    names_a_tool,
    response_tokens,
)
from toolformer_core.decode.records import Event, Settings
from toolformer_core.decode.transcript import Transcript
from toolformer_core.errors import CallSyntaxError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult
from toolformer_core.syntax import OPEN, parse

__all__ = ["Asked", "Row", "Vocabulary"]

_MAX_RESPONSE_CHARS = ExecuteConfig().max_response_chars
_PAPER_NAMES = frozenset(TOOL_NAMES.values())  # a call to one that was not given is a call in vain, and no text
_SAME_CALLS = 3  # the same call so often in a row is a loop: no more calls then


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a row must know of the model and its tools."""

    tokenizer: Any
    trigger: tuple[int, ...]  # " ["
    ends: frozenset[int]
    context_length: int  # tokens
    tools: dict[str, str]  # name in calls -> key


@dataclass(frozen=True, slots=True)
class Asked:
    """What a tool is to be asked."""

    tool: str  # its name in calls
    input: str


@dataclass(slots=True)
class _Opened:
    """A bracket opened by " [" whose call has not come to its arrow."""

    at: int  # index in `ids` of its first token
    other: int  # what the model would have chosen there, were there no calls
    own: bool  # " [" itself was its choice
    matched: int = 1  # tokens of the trigger written


@dataclass(slots=True)
class _Waiting:
    """A call at its arrow."""

    tool: str
    input: str
    shown: str  # " [Calculator(1 + 1) ->"
    again: str  # text of the last token that is to be tokenised anew with the response
    failure: str = ""  # why no tool is asked


@dataclass(slots=True)
class _Answers:
    """What this sequence has asked, and how often in a row it asked the same."""

    known: dict[tuple[str, str], ToolResult] = field(default_factory=dict)
    last: tuple[str, str] | None = None
    times: int = 0

    def loops(self, asked: tuple[str, str]) -> bool:
        self.times = self.times + 1 if asked == self.last else 1
        self.last = asked
        return self.times >= _SAME_CALLS


class Row:
    """One sequence.

    Args:
        vocabulary: what it must know of the model.
        prompt: token ids, at least one.
        settings: how it is decoded.
        emit: told of every event, at once.
        index: of the sequence, for the events.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompt: list[int],
        settings: Settings,
        emit: Callable[[Event], None],
        index: int,
    ) -> None:
        self.settings = settings
        self.ids = list(prompt)
        self.fed = 0  # of them, those whose keys and values are there
        self.finished = False
        self.calls_left = settings.max_calls if settings.top_k else 0
        self._v = vocabulary
        self._names = vocabulary.tools.keys() | _PAPER_NAMES
        self._prompt = len(prompt)
        self._new = self._call_tokens = self._taken_back = 0
        self._open: _Opened | None = None
        self._waits: _Waiting | None = None
        self._answers = _Answers()
        self._said = Transcript(vocabulary.tokenizer, self.ids, settings.stop, emit, index)

    @property
    def needs(self) -> int:
        """The most tokens it can ever hold."""
        s = self.settings
        a_call = len(self._v.trigger) + s.max_call_tokens + s.max_response_tokens
        calls = (s.max_calls + 1) * a_call if s.top_k else 0  # one more: an opened bracket that becomes text
        return min(self._prompt + s.max_new_tokens + calls, self._v.context_length)

    @property
    def pending(self) -> list[int]:
        """Tokens the model is to be fed next; none while it waits for a tool."""
        return [] if self._waits is not None or self.finished else self.ids[self.fed :]

    @property
    def waits(self) -> bool:
        return self._waits is not None

    @property
    def trigger(self) -> int | None:
        """The token that would open a call here (or go on opening it), if one may be opened."""
        if self._open is None:
            return self._v.trigger[0] if self.calls_left else None
        return self._v.trigger[self._open.matched] if self._open.matched < len(self._v.trigger) else None

    @property
    def forbidden(self) -> int | None:
        """The token that would complete " [" here, where no call may be opened."""
        if self._open is not None or self.calls_left:
            return None
        *before, last = self._v.trigger
        return last if not before or self.ids[-len(before) :] == before else None

    @property
    def draws(self) -> bool:
        """Whether the next token is drawn; the most likely one is taken otherwise."""
        return self.settings.temperature > 0 and (self._open is None or self.trigger is not None)

    def take(self, own: int, rank: int, other: Callable[[], int]) -> Asked | None:
        """Go on with the model's choice.

        Args:
            own: the token it chose (drawn, or the most likely).
            rank: how many tokens are more likely than `trigger`; of no meaning if that is None.
            other: what it would choose if `trigger` were impossible.

        Returns:
            What a tool is to be asked now; the row waits until `answer`.
        """
        opens = self.trigger is not None and (own == self.trigger or rank < self.settings.top_k)
        if self._open is None:
            if opens:
                self._open = _Opened(len(self.ids), other() if own == self.trigger else own, own == self.trigger)
                self.ids.append(self._v.trigger[0])
            else:
                self._write(own)
        elif self.trigger is not None:
            self._go_on_opening(self._open, opens, own)
        else:
            return self._in_call(self._open, own)
        return None

    def _go_on_opening(self, open_: _Opened, opens: bool, own: int) -> None:
        if opens:
            open_.own = open_.own and own == self.trigger
            open_.matched += 1
            self.ids.append(self._v.trigger[open_.matched - 1])
        elif open_.own:  # " " and something else
            self._stand(open_)
            if not self.finished:
                self._write(own)
        else:
            self._cut(open_)

    def _in_call(self, open_: _Opened, token: int) -> Asked | None:
        ended = token in self._v.ends
        if not ended:
            self.ids.append(token)
        body = self._body(open_)
        end = None if ended else arrow_end(body)
        room = self._v.context_length - len(self.ids)
        if end is not None and room > self._closing() and begins_with_a_tool(body, self._names):
            return self._at_arrow(open_, body, end)
        written = len(self.ids) - open_.at - len(self._v.trigger)
        no_call = ended or is_closed(body) or (open_.own and self._is_text(open_, body))
        if end is not None or no_call or written >= self.settings.max_call_tokens or room <= 1:
            if open_.own and not names_a_tool(body, self._v.tools):
                self._stand(open_)
                if ended and not self.finished:
                    self._finish("stop")
            else:
                self.calls_left -= 1
                self._taken_back += 1
                self._cut(open_)
        return None

    def _is_text(self, open_: _Opened, body: str) -> bool:
        """Whether a bracket of the model's own choice can be no call, or only one of no tool of ours and too late."""
        full = self._new + len(self.ids) - open_.at >= self.settings.max_new_tokens
        return not (may_name_a_tool if full else may_be_call)(body, self._v.tools)

    def _body(self, open_: _Opened) -> str:
        """What stands behind " ["."""
        return str(self._decode(self.ids[open_.at :])).partition(OPEN.strip())[2]

    def _decode(self, ids: list[int]) -> str:
        return str(self._v.tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False))

    def _closing(self) -> int:
        """Tokens an empty response takes, with some to spare for tokens that are written anew."""
        return len(response_tokens(self._v.tokenizer, "", "", 0)[0]) + 3

    def _stand(self, open_: _Opened) -> None:
        """What was opened is ordinary text."""
        held = self.ids[open_.at :]
        del self.ids[open_.at :]
        self._open = None
        for token in held:
            if not self.finished:
                self._write(token)

    def _cut(self, open_: _Opened) -> None:
        """Take back what was opened."""
        del self.ids[open_.at :]
        self.fed = open_.at
        self._open = None
        self._write(open_.other)

    def _at_arrow(self, open_: _Opened, body: str, end: int) -> Asked | None:
        again = ""
        if end < len(body):  # the token with the arrow holds more: write it anew, as far as the arrow
            before = self._decode(self.ids[open_.at : -1]).partition(OPEN.strip())[2]
            if body.startswith(before) and len(before) < end:
                again = body[len(before) : end]
                self.ids.pop()
        self._said.flush()
        if self._said.stopped:
            self.end("stop")
            return None
        shown = f"{OPEN}{body[:end]}"
        try:
            call, _ = parse(body[:end])
        except CallSyntaxError:
            self._waits = _Waiting("", body[:end], shown, again, "bad_syntax")
        else:
            self._waits = _Waiting(call.tool, call.input, shown, again, self._refusal(call.tool))
        self._said.start_call(self._waits.tool, self._waits.input, shown)
        asked = (self._waits.tool, self._waits.input)
        if self._answers.loops(asked):
            self.calls_left = 1
        if self._waits.failure:
            self._insert(ToolFailure(self._waits.failure), 0.0)
        elif asked in self._answers.known:
            self._insert(self._answers.known[asked], 0.0, repeated=True)
        else:
            return Asked(*asked)
        return None

    def _refusal(self, name: str) -> str:
        """Return why a tool is not asked, "" if it is."""
        key, allowed = self._v.tools.get(name), self.settings.tools
        return "" if key is not None and (allowed is None or key in allowed) else "not_enabled"

    def answer(self, result: ToolResult, seconds: float) -> None:
        """Put the tool's answer into the text; it is ignored if the row has ended meanwhile."""
        if self._waits is not None and not self.finished:
            self._answers.known[self._waits.tool, self._waits.input] = result
            self._insert(result, seconds)

    def _insert(self, result: ToolResult, seconds: float, repeated: bool = False) -> None:
        open_, waits = self._open, self._waits
        if open_ is None or waits is None:
            return
        response = one_line(result.text, _MAX_RESPONSE_CHARS) if isinstance(result, ToolResponse) else ""
        if isinstance(result, ToolResponse) and not response:
            result = ToolFailure("empty", "the tool answered with nothing")
        limit = min(self.settings.max_response_tokens, self._v.context_length - len(self.ids))
        ids, closing = response_tokens(self._v.tokenizer, waits.again, response, limit)
        self.ids += ids
        self._call_tokens += len(self.ids) - open_.at
        self._open = self._waits = None
        self.calls_left -= 1
        failure = result if isinstance(result, ToolFailure) else None
        said = (waits.shown, closing)
        self._said.finish_call(waits.tool, waits.input, said, failure, seconds, repeated, self.ids)
        if len(self.ids) >= self._v.context_length:
            self._finish("length")

    def _write(self, token: int) -> None:
        """A token of ordinary text."""
        if token in self._v.ends:
            self._finish("stop")
            return
        self.ids.append(token)
        self._new += 1
        self._said.push(token)
        if self._said.stopped:
            self._finish("stop")
        elif self._new >= self.settings.max_new_tokens or len(self.ids) >= self._v.context_length:
            self._finish("length")

    def _finish(self, why: str) -> None:
        self.finished = True
        self._said.finish(
            why,
            ids=self.ids[self._prompt :],
            prompt_tokens=self._prompt,
            new_tokens=self._new,
            call_tokens=self._call_tokens,
            taken_back=self._taken_back,
        )

    def end(self, why: str) -> None:
        """End it from outside; what is written stays, a call that is not answered does not."""
        if self.finished:
            return
        if self._open is not None:
            del self.ids[self._open.at :]
            self._open = self._waits = None
        self._finish(why)
