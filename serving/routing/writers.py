"""Writes the responses to routed requests: an answer with the call that led to it, or a call for the client.

    | who runs the tool | the response                                                                             |
    |-------------------|------------------------------------------------------------------------------------------|
    | the server        | the call where calls are shown, and the tool's response, or what the model writes on     |
    | the client        | `tool_calls`, finish reason `tool_calls`; the content is null                            |
    | nobody            | the model's text                                                                         |

If the client asks for it, each choice's `toolformer` field has the ranking (`router`). This module knows events and
JSON, but no model.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from serving.openai_format import ResponseForm, ResponseWriter
from toolformer_core.decode.records import (
    CallFinished,
    CallStarted,
    DecodeEvent,
    Finished,
    Generation,
    TextDelta,
    ToolCall,
)
from toolformer_core.records import Call
from toolformer_core.syntax import ARROW, CLOSE, linearize


@dataclass(frozen=True, slots=True)
class OpeningCall:
    """A call with its response that has run, with which an answer begins.

    Args:
        call: the call; its span is not read.
        tokens: of the call and its response, which count as tokens of calls.
    """

    call: ToolCall
    tokens: int = 0

    @property
    def text(self) -> str:
        """The call as it stands in a text: " [Calculator(1 + 1) -> 2]"."""
        return linearize(Call(self.call.tool, self.call.input), self.call.response)

    @property
    def spanned(self) -> ToolCall:
        """The call with its span in a text that begins with it."""
        return replace(self.call, start=0, end=len(self.text))

    def events(self, index: int) -> Iterator[DecodeEvent]:
        """Yield the events that decoding would give."""
        begun = linearize(Call(self.call.tool, self.call.input)).removesuffix(CLOSE) + f" {ARROW}"
        yield CallStarted(index, self.call.tool, self.call.input, begun)
        yield CallFinished(index, self.spanned, self.text.removeprefix(begun))

    def put_before(self, generation: Generation, prompt_tokens: int) -> Generation:
        """Return what a model wrote behind the call, as if it had made the call itself."""
        return replace(
            generation,
            text=self.text + generation.text,
            calls=(self.spanned, *generation.calls),
            prompt_tokens=prompt_tokens,
            call_tokens=generation.call_tokens + self.tokens,
        )


class AnswerWriter(ResponseWriter):
    """Writes answers that begin with a call and, on request, the ranking.

    Args:
        form: of the response.
        opening: the call; None: there is none.
        router: the ranking; None: it is not told.
    """

    def __init__(self, form: ResponseForm, opening: OpeningCall | None, router: Mapping[str, Any] | None) -> None:
        super().__init__(form)
        self._opening = opening
        self._router = router

    def begin(self) -> Iterator[dict[str, Any]]:
        """See `ResponseWriter.begin`; the call follows."""
        yield from super().begin()
        if self._opening is not None:
            for i in range(self._form.choices):
                for event in self._opening.events(i):
                    yield from super().write(event)

    def write(self, event: DecodeEvent) -> Iterator[dict[str, Any]]:
        """See `ResponseWriter.write`."""
        if self._opening is not None and isinstance(event, Finished):
            before = event.generation.prompt_tokens - self._opening.tokens
            event = replace(event, generation=self._opening.put_before(event.generation, before))
        yield from super().write(event)

    def _calls_and_counts(self, choice: Any) -> dict[str, Any]:
        told = super()._calls_and_counts(choice)
        return told if self._router is None else {**told, "router": dict(self._router)}


class ResponseAnswerWriter(AnswerWriter):
    """Writes answers that are a tool's response, complete before anything is sent.

    Args:
        form: of the response; all choices are the same.
        opening: the call.
        router: the ranking; None: it is not told.
        text: the tool's response, as far as it is sent.
        finish: stop, or length if it was cut.
        prompt_tokens: of the text after which the call was written.
        text_tokens: of the text.
    """

    def __init__(
        self,
        form: ResponseForm,
        opening: OpeningCall,
        router: Mapping[str, Any] | None,
        *,
        text: str,
        finish: str,
        prompt_tokens: int,
        text_tokens: int,
    ) -> None:
        super().__init__(form, opening, router)
        generation = Generation(f" {text}", f" {text}", (), finish, prompt_tokens, text_tokens, 0, 0, ())
        self._answer = opening.put_before(generation, prompt_tokens)

    @property
    def done(self) -> bool:
        """See `ResponseWriter.done`; nothing is waited for."""
        return True

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield all chunks: the role, the call, the text, and the finish reason."""
        yield from super().begin()
        for i in range(self._form.choices):
            yield from ResponseWriter.write(self, TextDelta(i, self._answer.clean))
            yield from ResponseWriter.write(self, Finished(i, self._answer))


class ClientCallWriter(ResponseWriter):
    """Writes the call of a client's tool.

    Args:
        form: of the response; every choice has the same call, with an id of its own.
        function: the tool's name.
        arguments: JSON.
        prompt_tokens: of the text after which the call was written.
        call_tokens: of the call.
        router: the ranking; None: it is not told.
    """

    def __init__(
        self,
        form: ResponseForm,
        function: str,
        arguments: str,
        *,
        prompt_tokens: int,
        call_tokens: int,
        router: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(form)
        self._function = function
        self._arguments = arguments
        self._prompt_tokens = prompt_tokens
        self._call_tokens = call_tokens
        self._router = router
        self._ids = [f"call_{uuid.uuid4().hex}" for _ in range(form.choices)]

    @property
    def done(self) -> bool:
        """See `ResponseWriter.done`; nothing is waited for."""
        return True

    @property
    def usage(self) -> dict[str, int]:
        """Token counts: the call is written once, and counts for each choice."""
        completion = self._call_tokens * self._form.choices
        total = self._prompt_tokens + completion
        return {"prompt_tokens": self._prompt_tokens, "completion_tokens": completion, "total_tokens": total}

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield all chunks: the role, the call, its arguments, and the finish reason."""
        for i in range(self._form.choices):
            begun = {"index": 0, **self._call_of(i, "")}
            yield self._chunk(i, {"role": "assistant", "content": None, "tool_calls": [begun]})
            rest = {"index": 0, "function": {"arguments": self._arguments}}
            yield self._chunk(i, {"tool_calls": [rest]})
            yield self._chunk(i, {}, "tool_calls", self._told)

    def _call_of(self, i: int, arguments: str) -> dict[str, Any]:
        function = {"name": self._function, "arguments": arguments}
        return {"id": self._ids[i], "type": "function", "function": function}

    @property
    def _told(self) -> dict[str, Any]:
        told = {"calls": [], "text_tokens": 0, "call_tokens": self._call_tokens, "taken_back": 0}
        return told if self._router is None else {**told, "router": dict(self._router)}

    def _complete_choice(self, i: int) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "tool_calls": [self._call_of(i, self._arguments)],
        }
        return {
            "index": i,
            "message": message,
            "logprobs": None,
            "finish_reason": "tool_calls",
            "toolformer": self._told,
        }
