"""Answers as OpenAI's API writes them, whole and in chunks, with what our calls add to them.

A choice's `toolformer` holds its calls; OpenAI's clients carry fields they do not know along. A call's `start` and
`end` are its span in the choice's text as it was sent: where calls are not shown, both are the place where it stood.
In a stream the choice of a chunk carries `toolformer` when a call begins (it has come to its arrow), when its response
is there, and with the finish reason.

It knows events and JSON, no requests and no sockets.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from toolformer_core.decode.records import CallFinished, CallStarted, Event, Generation, TextDelta, ToolCall

__all__ = ["DONE", "KEEP_ALIVE", "Form", "Writer", "sse"]

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": waiting\n\n"  # a comment, which every reader of such streams passes over


def sse(body: dict[str, Any]) -> bytes:
    """Return one event of a stream."""
    return b"data: " + orjson.dumps(body) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Form:
    """How a request is answered."""

    chat: bool
    model: str
    fingerprint: str
    choices: int
    per_prompt: int = 1  # choices of one prompt, `n`
    show_calls: bool = False
    leading_space: bool = False  # the text's first space is not the answer's
    include_usage: bool = False
    echo: tuple[str, ...] = ()  # put in front of each choice's text


@dataclass(slots=True)
class _Choice:
    """What one choice has said."""

    offset: int = 0  # characters sent
    begun: bool = False  # the first character has been seen
    starts: list[int] = field(default_factory=list)  # of its calls, in the text sent
    generation: Generation | None = None


class Writer:
    """Writes one answer, from events in the order they come."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._id = ("chatcmpl-" if form.chat else "cmpl-") + uuid.uuid4().hex
        self._created = int(time.time())
        self._choices = [_Choice() for _ in range(form.choices)]
        self._texts: list[list[str]] = [[] for _ in range(form.choices)]

    @property
    def done(self) -> bool:
        """Whether every choice has ended."""
        return all(c.generation is not None for c in self._choices)

    @property
    def cut(self) -> bool:
        """Whether a choice was ended by the server."""
        return any(c.generation is not None and c.generation.finish not in ("stop", "length") for c in self._choices)

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks that come before all text: the role, or the prompt's echo."""
        for i in range(self._form.choices):
            if self._form.chat:
                yield self._chunk(i, {"role": "assistant", "content": ""})
            elif self._form.echo:
                self._choices[i].offset = len(self._form.echo[i])
                yield self._chunk(i, self._text(i, self._form.echo[i]))

    def write(self, event: Event) -> Iterator[dict[str, Any]]:
        """Take an event; yield its chunk."""
        i, shown = event.index, self._form.show_calls
        choice = self._choices[i]
        if isinstance(event, TextDelta):
            if text := self._sent(choice, event.text):
                yield self._chunk(i, self._text(i, text))
        elif isinstance(event, CallStarted):
            text = self._sent(choice, event.text) if shown else ""
            choice.starts.append(choice.offset - len(text))
            told: dict[str, Any] = {"event": "call_started", "tool": event.tool, "input": event.input}
            yield self._chunk(i, self._text(i, text), toolformer=told)
        elif isinstance(event, CallFinished):
            text = self._sent(choice, event.text) if shown else ""
            told = {"event": "call_finished", "call": self._call(choice, event.call, len(choice.starts) - 1)}
            yield self._chunk(i, self._text(i, text), toolformer=told)
        else:
            choice.generation = event.generation
            finish = event.generation.finish
            if finish in ("stop", "length"):
                yield self._chunk(i, {} if self._form.chat else {"text": ""}, finish, self._extra(choice))

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the chunk of the usage, if it was asked for."""
        if self._form.include_usage:
            yield {**self._head(chunk=True), "choices": [], "usage": self.usage}

    def whole(self) -> dict[str, Any]:
        """Return the answer as one, after all events."""
        return {
            **self._head(chunk=False),
            "choices": [self._whole(i) for i in range(self._form.choices)],
            "usage": self.usage,
        }

    @property
    def usage(self) -> dict[str, int]:
        """Tokens; those of calls and responses are completion tokens. A prompt counts once for all its choices."""
        made = [c.generation for c in self._choices if c.generation is not None]
        prompt = sum(g.prompt_tokens for g in made[:: self._form.per_prompt])
        completion = sum(g.new_tokens + g.call_tokens for g in made)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def _sent(self, choice: _Choice, text: str) -> str:
        """What of a piece of text is sent."""
        if text and not choice.begun:
            choice.begun = True
            if self._form.leading_space and text.startswith(" "):
                text = text[1:]
        choice.offset += len(text)
        return text

    def _text(self, i: int, text: str) -> dict[str, Any]:
        self._texts[i].append(text)
        return {"content": text} if self._form.chat else {"text": text}

    def _call(self, choice: _Choice, call: ToolCall, at: int) -> dict[str, Any]:
        start = choice.starts[at]
        length = call.end - call.start if self._form.show_calls else 0
        if start == 0 and length and self._form.leading_space:
            length -= 1
        return {**asdict(call), "seconds": round(call.seconds, 6), "start": start, "end": start + length}

    def _extra(self, choice: _Choice) -> dict[str, Any]:
        g = choice.generation
        if g is None:
            return {}
        calls = [self._call(choice, call, at) for at, call in enumerate(g.calls)]
        return {
            "calls": calls,
            "text_tokens": g.new_tokens,
            "call_tokens": g.call_tokens,
            "taken_back": g.taken_back,
        }

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

    def _whole(self, i: int) -> dict[str, Any]:
        choice, text = self._choices[i], "".join(self._texts[i])
        said: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text, "refusal": None, "annotations": []}}
            if self._form.chat
            else {"text": text}
        )
        finish = choice.generation.finish if choice.generation else None
        return {"index": i, **said, "logprobs": None, "finish_reason": finish, "toolformer": self._extra(choice)}
