"""One sequence while it is decoded: what it has written, what it may write next, and the call it is in.

    text --" [" is likely enough--> opening --all of " [" written--> call --arrow--> pending --response--> text
                                       |                               |
                                       +-------- it is no call --------+--> text

A call that does not reach its arrow is taken back: the sequence continues where it started with the token that it would
have had, and one call fewer is allowed. With thresholds (`GenerationSettings.trigger`, beyond the paper) a bracket that
the model did not choose opens only if p(" ["), the product over the tokens of " [" at temperature 1, is at least the
smallest threshold of all tools that may be called; at "Name(" a call is taken back if it is below that tool's own,
which uses up no call, and the same place is not opened again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolformer_core.config import TOOL_NAMES, ExecuteConfig
from toolformer_core.decode.calls import arrow_end, first_word, may_be_call, may_name_a_tool, response_tokens
from toolformer_core.decode.records import Emit, GenerationSettings
from toolformer_core.decode.transcript import PendingCall, Transcript
from toolformer_core.errors import CallSyntaxError, ToolformerError
from toolformer_core.records import Call, ToolFailure, ToolResult
from toolformer_core.syntax import OPEN, find_close, name_begun, parse
from toolformer_core.tools.responses import response_or_failure

_MAX_RESPONSE_CHARS = ExecuteConfig().max_response_chars
_PAPER_KEYS = {name: key for key, name in TOOL_NAMES.items()}
_PAPER_NAMES = _PAPER_KEYS.keys()  # a bracket that names one of these is a call even if the tool is absent
_SAME_CALLS = 3  # the same call this often in a row is a loop: no further calls are allowed


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a sequence needs to know of the model and its tools."""

    tokenizer: Any
    trigger: tuple[int, ...]  # " ["
    ends: frozenset[int]
    context_length: int  # tokens
    tools: dict[str, str]  # name in calls -> key


@dataclass(slots=True)
class _OpenedCall:
    """A bracket opened by " [" whose call has not reached its arrow."""

    start: int  # index in `ids` of its first token
    alternative: int  # the token the model would have chosen there without calls
    by_model: bool  # " [" itself was the model's choice
    probability: float  # of the trigger's tokens written so far; 1 if there are no thresholds
    matched: int = 1  # tokens of the trigger written


class DecodeSequence:
    """One sequence that continues at least one token; `emit` is called with every event, immediately."""

    def __init__(
        self, model: ModelInfo, prompt: list[int], settings: GenerationSettings, emit: Emit, index: int
    ) -> None:
        self.settings = settings
        self.ids = list(prompt)
        self.cached = 0  # how many of them, from the front, have keys and values in the cache
        self.finished = False
        self.calls_left = settings.max_calls if settings.top_k else 0
        self._model = model
        self._names = model.tools.keys() | _PAPER_NAMES
        keys = {**_PAPER_KEYS, **model.tools}
        self._thresholds = {name: settings.trigger[key] for name, key in keys.items() if key in settings.trigger}
        callable_names = [name for name in model.tools if not self._refusal(name)]
        self._least = min((self._thresholds.get(name, 0.0) for name in callable_names), default=0.0)
        self._prompt = len(prompt)
        self._new = self._call_tokens = self._taken_back = 0
        self._opened: _OpenedCall | None = None
        self._pending_call: PendingCall | None = None
        self._made: list[Call] = []  # calls that reached their arrow
        self._results: dict[Call, ToolResult] = {}
        self._transcript = Transcript(model.tokenizer, self.ids, settings.stop, emit, index)

    @property
    def max_tokens(self) -> int:
        """The most tokens that the sequence can ever hold."""
        s = self.settings
        per_call = len(self._model.trigger) + s.max_call_tokens + s.max_response_tokens
        calls = (s.max_calls + 1) * per_call if s.top_k else 0  # one more for an opened bracket that becomes text
        return min(self._prompt + s.max_new_tokens + calls, self._model.context_length)

    @property
    def pending(self) -> list[int]:
        """The tokens to feed to the model next; none while the sequence waits for a tool."""
        return [] if self._pending_call is not None or self.finished else self.ids[self.cached :]

    @property
    def trigger(self) -> int | None:
        """The token that would open a call here (or continue to open it); None if no call may be opened."""
        if self._opened is None:
            return self._model.trigger[0] if self.calls_left else None
        matched = self._opened.matched
        return self._model.trigger[matched] if matched < len(self._model.trigger) else None

    @property
    def needs_probability(self) -> bool:
        """Whether `advance` needs the probability of `trigger`."""
        return bool(self._thresholds) and self.trigger is not None

    @property
    def forbidden(self) -> int | None:
        """The token that would complete " [" here, if no call may be opened; else None."""
        if self._opened is not None or self.calls_left:
            return None
        *before, last = self._model.trigger
        return last if not before or self.ids[-len(before) :] == before else None

    @property
    def draws(self) -> bool:
        """Whether the next token is sampled; otherwise the most likely one is taken."""
        return self.settings.temperature > 0 and (self._opened is None or self.trigger is not None)

    def advance(self, token: int, rank: int, alternative: Callable[[], int], probability: float = 1.0) -> Call | None:
        """Continue with the model's choice; return the question to ask a tool, if any, whose `answer` is waited for.

        Of `trigger` there are `rank`, how many tokens are more likely, its `probability` at temperature 1, and the
        `alternative`, the choice that the model would make if it were impossible.
        """
        opened = self._opened
        probability *= 1.0 if opened is None else opened.probability
        likely = rank < self.settings.top_k and probability >= self._least
        opens = self.trigger is not None and (token == self.trigger or likely)
        if opened is None:
            if opens:
                by_model = token == self.trigger
                other = alternative() if by_model else token
                self._opened = _OpenedCall(len(self.ids), other, by_model, probability)
                self.ids.append(self._model.trigger[0])
            else:
                self._write(token)
        elif self.trigger is not None:
            self._continue_opening(opened, opens, token, probability)
        else:
            return self._continue_call(opened, token)
        return None

    def _continue_opening(self, opened: _OpenedCall, opens: bool, token: int, probability: float) -> None:
        if opens:
            opened.probability = probability
            opened.by_model = opened.by_model and token == self.trigger
            opened.matched += 1
            self.ids.append(self._model.trigger[opened.matched - 1])
        elif opened.by_model:  # the first token(s) of " [", then something else
            self._keep_as_text(opened)
            if not self.finished:
                self._write(token)
        else:
            self._take_back(opened)

    def _continue_call(self, opened: _OpenedCall, token: int) -> Call | None:
        ended = token in self._model.ends
        if not ended:
            self.ids.append(token)
        body = self._after_bracket(self.ids[opened.start :])
        end = None if ended else arrow_end(body)
        room = self._model.context_length - len(self.ids)
        if opened.probability < self._threshold(body, end):
            self._taken_back += 1
            self._take_back(opened)
            return None
        if end is not None and first_word(body) in self._names:
            closing = len(response_tokens(self._model.tokenizer, "", "", 0)[0]) + 3  # of an empty response; to spare
            if room > closing:
                return self._reach_arrow(opened, body, end)
        written = len(self.ids) - opened.start - len(self._model.trigger)
        no_call = ended or find_close(body) is not None or (opened.by_model and self._cannot_become_call(opened, body))
        if end is not None or no_call or written >= self.settings.max_call_tokens or room <= 1:
            if opened.by_model and name_begun(body) not in self._model.tools:
                self._keep_as_text(opened)
                if ended and not self.finished:
                    self._finish("stop")
            else:
                self.calls_left -= 1
                self._taken_back += 1
                self._take_back(opened)
        return None

    def _threshold(self, body: str, end: int | None) -> float:
        """Return the threshold of the tool that this bracket names; 0 if it has none, or no tool is named so far."""
        named = name_begun(body) if end is None else first_word(body)
        return self._thresholds.get(named or "", 0.0)

    def _cannot_become_call(self, opened: _OpenedCall, body: str) -> bool:
        """Return True if this bracket cannot become a call, or, at the token limit, not one of a known tool."""
        full = self._new + len(self.ids) - opened.start >= self.settings.max_new_tokens
        return not (may_name_a_tool if full else may_be_call)(body, self._model.tools)

    def _after_bracket(self, ids: list[int]) -> str:
        text = str(self._model.tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False))
        return text.partition(OPEN.strip())[2]

    def _keep_as_text(self, opened: _OpenedCall) -> None:
        tokens = self.ids[opened.start :]
        del self.ids[opened.start :]
        self._opened = None
        for token in tokens:
            if not self.finished:
                self._write(token)

    def _take_back(self, opened: _OpenedCall) -> None:
        del self.ids[opened.start :]
        self.cached = opened.start
        self._opened = None
        self._write(opened.alternative)

    def _reach_arrow(self, opened: _OpenedCall, body: str, end: int) -> Call | None:
        retokenize = ""
        if end < len(body):  # the arrow's token holds more text: write only its part up to the arrow
            before = self._after_bracket(self.ids[opened.start : -1])
            if body.startswith(before) and len(before) < end:
                retokenize = body[len(before) : end]
                self.ids.pop()
        self._transcript.flush()
        if self._transcript.stopped:
            self.end("stop")
            return None
        try:
            call, _ = parse(body[:end])
            failure = self._refusal(call.tool)
        except CallSyntaxError:
            call, failure = Call("", body[:end]), "bad_syntax"
        self._pending_call = PendingCall(call.tool, call.input, f"{OPEN}{body[:end]}", retokenize, failure)
        self._transcript.start_call(self._pending_call)
        self._made.append(call)
        if self._made[-_SAME_CALLS:] == [call] * _SAME_CALLS:
            self.calls_left = 1
        if failure:
            self._insert(ToolFailure(failure), 0.0)
        elif call in self._results:
            self._insert(self._results[call], 0.0, repeated=True)
        else:
            return call
        return None

    def _refusal(self, name: str) -> str:
        """Return why a tool is not called; "" if it is."""
        key, allowed = self._model.tools.get(name), self.settings.tools
        return "" if key is not None and (allowed is None or key in allowed) else "not_enabled"

    def answer(self, result: ToolResult | ToolformerError, seconds: float) -> None:
        """Insert the tool's result into the text; it is ignored if the sequence has ended meanwhile."""
        if isinstance(result, ToolformerError):
            result = ToolFailure("unavailable", str(result))
        if self._pending_call is not None and not self.finished:
            self._results[self._made[-1]] = result
            self._insert(result, seconds)

    def _insert(self, result: ToolResult, seconds: float, repeated: bool = False) -> None:
        opened, pending = self._opened, self._pending_call
        if opened is None or pending is None:
            return
        response, failure = response_or_failure(result, _MAX_RESPONSE_CHARS)
        limit = min(self.settings.max_response_tokens, self._model.context_length - len(self.ids))
        ids, closing = response_tokens(self._model.tokenizer, pending.retokenize, response, limit)
        self.ids += ids
        self._call_tokens += len(self.ids) - opened.start
        self._opened = self._pending_call = None
        self.calls_left -= 1
        self._transcript.finish_call(pending, closing, failure, seconds, repeated, self.ids)
        if len(self.ids) >= self._model.context_length:
            self._finish("length")

    def _write(self, token: int) -> None:
        if token in self._model.ends:
            self._finish("stop")
            return
        self.ids.append(token)
        self._new += 1
        self._transcript.push(token)
        if self._transcript.stopped:
            self._finish("stop")
        elif self._new >= self.settings.max_new_tokens or len(self.ids) >= self._model.context_length:
            self._finish("length")

    def _finish(self, reason: str) -> None:
        self.finished = True
        counts = {"new_tokens": self._new, "call_tokens": self._call_tokens, "taken_back": self._taken_back}
        self._transcript.finish(reason, ids=self.ids[self._prompt :], prompt_tokens=self._prompt, **counts)

    def end(self, reason: str) -> None:
        """End the sequence from outside: text that is written stays, a call without a response is removed."""
        if self.finished:
            return
        if self._opened is not None:
            del self.ids[self._opened.start :]
            self._opened = self._pending_call = None
        self._finish(reason)
