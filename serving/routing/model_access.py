"""What the router asks of a model and its tools, all of it through the thread that drives the model.

So nothing blocks the event loop, and no thread competes with the engine for the model's lock.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from serving.engine_thread import EngineThread, PendingRequest
from serving.errors import unavailable
from toolformer_core.decode.records import Finished, GenerationSettings, TextDelta, ToolCall
from toolformer_core.errors import ToolformerError
from toolformer_core.grounding.encoders import Encoder, HiddenStateEncoder, cosines
from toolformer_core.grounding.ground import input_of
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.lm.base import Draw
from toolformer_core.records import ToolFailure, ToolResult, digest_of, storable
from toolformer_core.syntax import OPEN, find_close
from toolformer_core.tools.responses import response_or_failure

_MAX_QUERY_CHARS = 20_000  # of a query, for its embedding; an encoder reads less
_MAX_TOKEN_CHARS = 128  # a text of more characters for each token of the context is not tokenised to see if it fits
_DETAIL_CHARS = 500  # of a failed call
_TEXTS_PER_PASS = 16  # embedded between two rounds of the engine


@dataclass(frozen=True, slots=True)
class Writing:
    """A text to be continued greedily, without calls."""

    prompt: str
    max_tokens: int  # tokens of the continuation
    complete: Callable[[str], bool]  # whether what is written so far is all that is needed


@dataclass(frozen=True, slots=True)
class Written:
    """A complete continuation; it may end with a few more tokens, written before the model was stopped."""

    text: str
    prompt_tokens: int


def call_writing(one: LibraryTool, query: str, max_tokens: int, begun: str = "") -> Writing:
    """Return the text after which a model writes a call, of which the beginning may stand there already."""
    shown = one.demonstrations
    return Writing(
        f"{shown.prompt.head}{shown.after_head(query)}{OPEN}{begun}",
        max_tokens,
        lambda text: find_close(begun + text) is not None,
    )


def input_written(name: str, text: str) -> str | None:
    """Return the input of a call that stands after " ["; None if it is no closed call of this tool."""
    close = find_close(text)
    return input_of(Draw(text[:close], close is not None), name)


def tool_call(name: str, input_: str, result: ToolResult | ToolformerError, seconds: float, max_chars: int) -> ToolCall:
    """Return a call that has run, and what came of it, without a span in a text."""
    if isinstance(result, ToolformerError):
        result = ToolFailure("unavailable", str(result))
    response, failure = response_or_failure(result, max_chars)
    reason, detail = (failure.reason, storable(failure.detail[:_DETAIL_CHARS])) if failure else (None, "")
    return ToolCall(name, input_, response, reason, detail, 0, 0, seconds)


async def write(thread: EngineThread, writings: Sequence[Writing]) -> list[Written | None]:
    """Have texts continued, as many at a time as there are places; None for one that does not fit the context."""
    fits = await asyncio.to_thread(lambda: [_fits(thread, writing) for writing in writings])
    fitting = [i for i, fit in enumerate(fits) if fit]
    out: list[Written | None] = [None] * len(writings)
    for at in range(0, len(fitting), thread.places):
        part = fitting[at : at + thread.places]
        together = [writings[i] for i in part]
        settings = [GenerationSettings(max_new_tokens=w.max_tokens, top_k=0, max_calls=0) for w in together]
        pending = await thread.submit([w.prompt for w in together], settings)
        try:
            for i, written in zip(part, await _collect(pending, together), strict=True):
                out[i] = written
        finally:
            thread.release(pending)
    return out


def _fits(thread: EngineThread, writing: Writing) -> bool:
    hf_model = thread.loaded.lm.hf_model
    if len(writing.prompt) > _MAX_TOKEN_CHARS * hf_model.context_length:
        return False
    tokens = len(hf_model.encode(writing.prompt)) + (hf_model.bos is not None)
    return 0 < tokens <= hf_model.context_length - writing.max_tokens


async def _collect(pending: PendingRequest, writings: Sequence[Writing]) -> list[Written]:
    texts = [""] * len(writings)
    enough = [False] * len(writings)
    out: dict[int, Written] = {}
    while len(out) < len(writings):
        event = await pending.events.get()
        i = event.index
        if isinstance(event, TextDelta) and not enough[i]:
            texts[i] += event.text
            enough[i] = writings[i].complete(texts[i])
            if enough[i]:
                engine, handle = pending.handles[i]
                engine.cancel(handle)
        elif isinstance(event, Finished):
            if event.generation.finish == "stopped":
                raise unavailable("the server ended this answer; try again", "stopped")
            out[i] = Written(texts[i], event.generation.prompt_tokens)
    return [out[i] for i in range(len(writings))]


class Embedder:
    """Cosines of queries with descriptions, of which the last `capacity` are kept; `encoder` None is the model."""

    def __init__(self, engine_thread: EngineThread, encoder: Encoder | None = None, capacity: int = 4_096) -> None:
        self._thread = engine_thread
        self._encoder = encoder
        self._capacity = capacity  # an embedding of 1,024 numbers is 4 KiB
        self._rows: dict[str, NDArray[np.float32]] = {}  # by digest of encoder and text
        self._one_at_a_time = asyncio.Lock()  # of the other model

    async def similarities(self, query: str, descriptions: Sequence[str]) -> list[float]:
        """Return the cosine of the query with each description; a `RequestError` (503) if there is no model."""
        if not descriptions:
            return []
        if (encoder := self._encoder) is None:
            lm = self._thread.loaded.lm
            encoder = HiddenStateEncoder(lm.hf_model, lm.digest)
        digests = [digest_of("embedding", encoder.digest, text) for text in descriptions]
        rows = {digest: self._rows[digest] for digest in digests if digest in self._rows}
        missing = {d: text for d, text in zip(digests, descriptions, strict=True) if d not in rows}
        embedded = await self._encode(encoder, [query[:_MAX_QUERY_CHARS], *missing.values()])
        rows |= dict(zip(missing, embedded[1:], strict=True))
        kept = {digest: row for digest, row in self._rows.items() if digest not in rows} | rows  # in order of last use
        self._rows = dict(list(kept.items())[-self._capacity :])
        return [float(s) for s in cosines(embedded[:1], np.stack([rows[digest] for digest in digests]))[0]]

    async def _encode(self, encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._encoder is None:
            parts = [texts[at : at + _TEXTS_PER_PASS] for at in range(0, len(texts), _TEXTS_PER_PASS)]
            rows = [await self._thread.between_rounds(partial(encoder.encode, part)) for part in parts]
            return np.concatenate(rows)
        async with self._one_at_a_time:
            return await asyncio.to_thread(encoder.encode, texts)
