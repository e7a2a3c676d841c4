"""Writes the responses to routed requests: an answer with the call that led to it, or a call for the client."""

import uuid
from collections.abc import Iterator
from typing import Any

from serving.openai_format import ResponseForm, ResponseWriter
from toolformer_core.decode.records import CallFinished, CallStarted, Finished, Generation, TextDelta
from toolformer_core.records import Call
from toolformer_core.syntax import ARROW, CLOSE, linearize


class AnswerWriter(ResponseWriter):
    """Writes answers that are a tool's response, complete before anything is sent; all choices are the same."""

    def __init__(self, form: ResponseForm, answer: Generation) -> None:
        super().__init__(form)
        self._answer = answer

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield all chunks: the role, the call, the text, and the finish reason."""
        yield from super().begin()
        (call,) = self._answer.calls
        begun = linearize(Call(call.tool, call.input)).removesuffix(CLOSE) + f" {ARROW}"
        for i in range(self._form.choices):
            yield from self.write(CallStarted(i, call.tool, call.input, begun))
            yield from self.write(CallFinished(i, call, self._answer.text[len(begun) : call.end]))
            yield from self.write(TextDelta(i, self._answer.clean))
            yield from self.write(Finished(i, self._answer))


class ClientCallWriter(ResponseWriter):
    """Writes the call of a client's tool; every choice has the same one, with an id of its own."""

    def __init__(self, form: ResponseForm, function: str, arguments: str, prompt_tokens: int, call_tokens: int) -> None:
        super().__init__(form)
        self._function = function
        self._arguments = arguments
        self._ids = [f"call_{uuid.uuid4().hex}" for _ in range(form.choices)]
        for choice in self._choices:  # the call is written once, and counts for each choice
            choice.generation = Generation("", "", (), "stop", prompt_tokens, 0, call_tokens, 0, ())

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield all chunks: the role, the call, its arguments, and the finish reason."""
        for i in range(self._form.choices):
            begun, rest = self._call_of(i, ""), {"arguments": self._arguments}
            yield self._chunk(i, {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **begun}]})
            yield self._chunk(i, {"tool_calls": [{"index": 0, "function": rest}]})
            yield self._chunk(i, {}, "tool_calls", self._calls_and_counts(self._choices[i]))

    def _call_of(self, i: int, arguments: str) -> dict[str, Any]:
        function = {"name": self._function, "arguments": arguments}
        return {"id": self._ids[i], "type": "function", "function": function}

    def _complete_choice(self, i: int) -> dict[str, Any]:
        calls = [self._call_of(i, self._arguments)]
        message = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": calls}
        return {**super()._complete_choice(i), "message": message, "finish_reason": "tool_calls"}
