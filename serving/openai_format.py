"""Writes responses in the format of OpenAI's API, complete or in chunks, with the tool calls as an addition.

A choice's `toolformer` field (docs/using.md) holds its calls, with their spans in the text as it was sent; in a stream
it comes when a call begins, when the call's response is there, and together with the finish reason.
"""

import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from toolformer_core.decode.records import CallFinished, CallStarted, DecodeEvent, Generation, TextDelta, ToolCall

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": waiting\n\n"  # a comment, which every reader of such streams skips


def sse(body: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


@dataclass(frozen=True, slots=True)
class ResponseForm:
    chat: bool
    model: str
    fingerprint: str
    choices: int
    per_prompt: int = 1  # choices per prompt, `n`
    show_calls: bool = False
    leading_space: bool = False  # drop the text's first space, which belongs to the prompt's format
    include_usage: bool = False
    echo: tuple[str, ...] = ()  # the prompts, to be written in front of each choice's text


@dataclass(slots=True)
class _Choice:
    offset: int = 0  # characters sent
    begun: bool = False  # whether the first character has been sent
    text: list[str] = field(default_factory=list)  # what was sent
    starts: list[int] = field(default_factory=list)  # where its calls start in the text sent
    generation: Generation | None = None


class ResponseWriter:
    """Writes one response from its events, in the order in which they arrive."""

    def __init__(self, form: ResponseForm) -> None:
        self._form = form
        self._id = ("chatcmpl-" if form.chat else "cmpl-") + uuid.uuid4().hex
        self._created = int(time.time())
        self._choices = [_Choice() for _ in range(form.choices)]

    @property
    def done(self) -> bool:
        return all(c.generation is not None for c in self._choices)

    @property
    def cut(self) -> bool:
        """Whether the server ended a choice early."""
        return any(c.generation is not None and c.generation.finish not in ("stop", "length") for c in self._choices)

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks that precede all text: the role, or the prompt if it is echoed."""
        for i in range(self._form.choices):
            if self._form.chat:
                yield self._chunk(i, {"role": "assistant", "content": ""})
            elif self._form.echo:
                self._choices[i].offset = len(self._form.echo[i])
                yield self._chunk(i, self._text_delta(i, self._form.echo[i]))

    def write(self, event: DecodeEvent) -> Iterator[dict[str, Any]]:
        """Take an event and yield its chunk."""
        i, show_calls = event.index, self._form.show_calls
        choice = self._choices[i]
        if isinstance(event, TextDelta):
            if text := self._advance(choice, event.text):
                yield self._chunk(i, self._text_delta(i, text))
        elif isinstance(event, CallStarted | CallFinished):
            text = self._advance(choice, event.text) if show_calls else ""
            if isinstance(event, CallStarted):
                choice.starts.append(choice.offset - len(text))
                extra: dict[str, Any] = {"event": "call_started", "tool": event.tool, "input": event.input}
            else:
                extra = {"event": "call_finished", "call": self._call(choice, event.call, len(choice.starts) - 1)}
            yield self._chunk(i, self._text_delta(i, text), toolformer=extra)
        else:
            choice.generation = event.generation
            finish = event.generation.finish
            if finish in ("stop", "length"):
                yield self._chunk(i, {} if self._form.chat else {"text": ""}, finish, self._calls_and_counts(choice))

    def end(self) -> Iterator[dict[str, Any]]:
        if self._form.include_usage:
            yield {**self._head(chunk=True), "choices": [], "usage": self.usage}

    def complete(self) -> dict[str, Any]:
        """Return the complete response, after all events."""
        return {
            **self._head(chunk=False),
            "choices": [self._complete_choice(i) for i in range(self._form.choices)],
            "usage": self.usage,
        }

    @property
    def usage(self) -> dict[str, int]:
        """Token counts. Calls and their responses count as completion; a prompt counts once for all its choices."""
        generations = [c.generation for c in self._choices if c.generation is not None]
        prompt = sum(g.prompt_tokens for g in generations[:: self._form.per_prompt])
        completion = sum(g.new_tokens + g.call_tokens for g in generations)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def _advance(self, choice: _Choice, text: str) -> str:
        """Return the part of a text that is sent, and count its characters."""
        if text and not choice.begun:
            choice.begun = True
            if self._form.leading_space and text.startswith(" "):
                text = text[1:]
        choice.offset += len(text)
        return text

    def _text_delta(self, i: int, text: str) -> dict[str, Any]:
        self._choices[i].text.append(text)
        return {"content": text} if self._form.chat else {"text": text}

    def _call(self, choice: _Choice, call: ToolCall, at: int) -> dict[str, Any]:
        start = choice.starts[at]
        length = call.end - call.start if self._form.show_calls else 0
        if start == 0 and length and self._form.leading_space:
            length -= 1
        return {**asdict(call), "seconds": round(call.seconds, 6), "start": start, "end": start + length}

    def _calls_and_counts(self, choice: _Choice) -> dict[str, Any]:
        g = choice.generation
        if g is None:
            return {}
        calls = [self._call(choice, call, at) for at, call in enumerate(g.calls)]
        counts = {"text_tokens": g.new_tokens, "call_tokens": g.call_tokens, "taken_back": g.taken_back}
        return {"calls": calls, **counts}

    def _head(self, chunk: bool) -> dict[str, Any]:
        kind = "chat.completion" if self._form.chat else "text_completion"
        return {
            "id": self._id,
            "object": f"{kind}.chunk" if chunk and self._form.chat else kind,
            "created": self._created,
            "model": self._form.model,
            "system_fingerprint": self._form.fingerprint,
        }

    def _chunk(
        self, i: int, delta: dict[str, Any], finish: str | None = None, toolformer: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": i, "logprobs": None, "finish_reason": finish}
        choice.update({"delta": delta} if self._form.chat else delta)
        if toolformer is not None:
            choice["toolformer"] = toolformer
        usage = {"usage": None} if self._form.include_usage else {}
        return {**self._head(chunk=True), "choices": [choice], **usage}

    def _complete_choice(self, i: int) -> dict[str, Any]:
        choice, text = self._choices[i], "".join(self._choices[i].text)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        content: dict[str, Any] = {"message": message} if self._form.chat else {"text": text}
        finish = choice.generation.finish if choice.generation else None
        calls = self._calls_and_counts(choice)
        return {"index": i, **content, "logprobs": None, "finish_reason": finish, "toolformer": calls}
