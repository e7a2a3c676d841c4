"""Scanning on a server: p(" [") where it is among the tokens that the server tells, and a bound where it is not.

    sequence of a scan       [bos] head | x tail | x                   positions are those of the second x

The server tells the N most likely tokens at every place. " [" is seen where it is among them, or where it stands in the
text itself. Elsewhere it is less likely than the N-th of them: that is the position's bound. Where " [" is several
tokens, a further request for each seen position gives the rest.

Draws after a given beginning (see `Scan.draw`) take one further request a position: it gives the log-probabilities of
the given tokens and of the tokens allowed after them, as far as they are among the N most likely; `Name(` itself
always is. The first token is drawn here among those, the rest by the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolformer_core.lm.base import Draw, DrawRequest, Insertion
from toolformer_core.lm.prompt_tokenizer import PromptTokenizer
from toolformer_core.lm.randomness import uniform
from toolformer_core.lm.tokens import encode_opened
from toolformer_core.lm.vllm_server import AT_ONCE, VllmServer, draw_on
from toolformer_core.lm.windowing import Window, windows_of
from toolformer_core.records import Prompt
from toolformer_core.syntax import find_close

# log p(" [") at positions, -inf where it is not seen, and what it is at most.  (n,), (n,)
_Seen = tuple[NDArray[np.float32], NDArray[np.float32]]

_ENTRIES_AT_ONCE = 2_000_000  # log-probabilities in responses that are read at a time, some hundreds of bytes each
_WINDOWS_PER_SCAN = 2 * AT_ONCE


@dataclass(frozen=True, slots=True)
class ScanReader:
    """What a scan reads with."""

    server: VllmServer
    model: PromptTokenizer
    logprobs: int  # N, the number of most likely tokens to request
    count: Callable[[int], None]  # called with the number of tokens of each sequence that is read
    verify: Callable[[], None]  # called before results are given away; raises if they may be those of another model

    def likely_tokens(self, ids: Sequence[int], n: int) -> list[dict[int, float]]:
        """See `VllmServer.likely_tokens`."""
        self.count(len(ids))
        return self.server.likely_tokens(ids, n)


@dataclass(frozen=True, slots=True, eq=False)
class RemoteScan:
    """p(" [") at the positions of a batch of documents, as far as the server tells it; see `base.Scan`."""

    _reader: ScanReader
    _head: list[int]  # tokens in front of every window
    _windows: Mapping[int, list[Window]]  # by text
    _seen: Mapping[int, _Seen]  # per text, what is seen of p(" [") at its positions

    @property
    def texts(self) -> Sequence[int]:
        """See `Scan`."""
        return list(self._windows)

    @property
    def positions(self) -> Sequence[NDArray[np.int64]]:
        """See `Scan`."""
        return [np.concatenate([window.positions for window in windows]) for windows in self._windows.values()]

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32]]:
        """See `PartialScan`."""
        return [self._seen[text][0] for text in self._windows]

    @property
    def bounds(self) -> Sequence[NDArray[np.float32]]:
        """See `PartialScan`."""
        return [self._seen[text][1] for text in self._windows]

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        """See `Scan.draw`. Every draw is finished, whatever `name` is.

        Raises:
            ModelError: the server does not answer, or serves a different model by now.
            TokenizerError: see `PromptTokenizer.beginning`.
            ContextError: see `PromptTokenizer.beginning`.
            ValueError: a request names a text or a position that is not in this scan.
        """
        model = self._reader.model
        prompts = self._prompts(requests)
        begun = [(Draw("", False), list[int]())] * len(requests)
        if begin and requests:
            begun = self._begin(requests, prompts, begin, temperature)
        draws = draw_on(
            self._reader.server,
            prompts,
            [_signed(request.seed) for request in requests],
            begun,
            max_tokens=max_tokens,
            temperature=temperature,
            context_length=model.context_length,
        )
        self._reader.count(sum(len(model.encode(draw.text)) for draw in draws))
        self._reader.verify()
        return draws

    def _prompts(self, requests: Sequence[DrawRequest]) -> list[list[int]]:
        """Return, per request, the tokens in front of the draw, " [" included."""
        places = {
            (window.text, position): (window, before)
            for windows in self._windows.values()
            for window in windows
            for position, before in zip(window.positions.tolist(), window.before.tolist(), strict=True)
        }
        out = []
        for request in requests:
            if (request.text, request.position) not in places:
                raise ValueError(f"text {request.text} has no position {request.position} in this scan")
            window, before = places[request.text, request.position]
            out.append([*self._head, *window.ids[: before + 1].tolist(), *self._reader.model.trigger])
        return out

    def _begin(
        self, requests: Sequence[DrawRequest], prompts: Sequence[list[int]], begin: str, temperature: float
    ) -> list[tuple[Draw, list[int]]]:
        """Return each draw's given tokens with the first one after them, which is drawn here."""
        model, reader = self._reader.model, self._reader
        given, allowed = model.beginning(begin)
        last = encode_opened(model.tokenizer, begin)[-1]
        prompt_at = {(r.text, r.position): prompt for r, prompt in zip(requests, prompts, strict=True)}

        def likely_after(prompt: list[int]) -> tuple[float, dict[int, float]]:
            """Return log p of the given tokens, and of the allowed ones that the server tells."""
            places = reader.likely_tokens([*prompt, *given, last], reader.logprobs)[len(prompt) - 1 :]
            log_p = sum(place[token] for place, token in zip(places, given, strict=False))
            return log_p, {token: places[-1][token] for token in allowed if token in places[-1]}

        with ThreadPoolExecutor(_at_once(reader.logprobs, max(map(len, prompts)))) as pool:
            likely = dict(zip(prompt_at, pool.map(likely_after, prompt_at.values()), strict=True))
        out = []
        for request in requests:
            log_p_given, among = likely[request.text, request.position]
            token = _drawn(among, request.seed, temperature)
            text = model.text([*given, token])
            close = find_close(text)
            log_p = log_p_given + float(np.logaddexp.reduce(list(among.values())))
            draw = Draw(text if close is None else text[:close], close is not None, log_p)
            out.append((draw, [*given, token]))
        return out


def _drawn(log_probs: Mapping[int, float], seed: int, temperature: float) -> int:
    """Draw one of some tokens at a seed's first number, as `hf.head.LMHead.draw_among` does."""
    tokens = sorted(log_probs)
    values = np.array([log_probs[token] for token in tokens])
    if temperature == 0:
        return tokens[int(values.argmax())]
    edges = np.exp((values - values.max()) / temperature).cumsum()
    u = float(uniform(np.array([seed], dtype=np.uint64), 0)[0])
    return tokens[min(int(np.searchsorted(edges, u * edges[-1], side="right")), len(tokens) - 1)]


def _signed(seed: int) -> int:
    """Return a seed of 64 bits as servers take them, between -2^63 and 2^63 - 1."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def _at_once(logprobs: int, tokens: int) -> int:
    """Return how many responses may be read at a time."""
    return max(1, min(AT_ONCE, _ENTRIES_AT_ONCE // max(1, logprobs * tokens)))


def scan_texts(reader: ScanReader, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[RemoteScan]:
    """Scan texts in the order given, many at a time; all windows of a text are in the same scan.

    Raises:
        ContextError: prompt and call leave too little of the context for a document.
        ModelError: the server does not answer, or serves a different model by now.
    """
    head = reader.model.head_ids(prompt)
    batch: dict[int, list[Window]] = {}
    for text, windows in enumerate(windows_of(reader.model, prompt, texts)):
        if windows:
            batch[text] = windows
        if sum(map(len, batch.values())) >= _WINDOWS_PER_SCAN:
            yield _scan_batch(reader, head, batch)
            batch = {}
    if batch:
        yield _scan_batch(reader, head, batch)


def _scan_batch(reader: ScanReader, head: list[int], batch: Mapping[int, list[Window]]) -> RemoteScan:
    windows = [window for of_text in batch.values() for window in of_text]
    longest = len(head) + max(len(window.ids) for window in windows)
    with ThreadPoolExecutor(_at_once(reader.logprobs, longest)) as pool:
        found = list(pool.map(lambda window: _scan_window(reader, head, window), windows))
    by_text: dict[int, list[_Seen]] = {}
    for window, seen in zip(windows, found, strict=True):
        by_text.setdefault(window.text, []).append(seen)
    joined = {
        text: (np.concatenate([log_probs for log_probs, _ in parts]), np.concatenate([bounds for _, bounds in parts]))
        for text, parts in by_text.items()
    }
    reader.verify()
    return RemoteScan(reader, head, batch, joined)


def _scan_window(reader: ScanReader, head: list[int], window: Window) -> _Seen:
    """Return what is seen of p(" [") at a window's positions."""
    first, *rest = reader.model.trigger
    ids = [*head, *window.ids.tolist()]
    at_end = len(window.before) > 0 and int(window.before[-1]) == len(window.ids) - 1
    # the server reports token j at j - 1, so the last one needs one more after it: a token of " ["
    places = reader.likely_tokens([*ids, first] if at_end else ids, reader.logprobs)
    log_probs = np.full(len(window.positions), -np.inf, dtype=np.float32)
    bounds = np.zeros(len(window.positions), dtype=np.float32)
    for i, before in enumerate(window.before.tolist()):
        place = places[len(head) + before]
        if first not in place:
            bounds[i] = _bound(place, reader.logprobs)
            continue
        log_p = place[first]
        if rest:
            following = [*ids[: len(head) + before + 1], first, *rest]
            likely = reader.likely_tokens(following, 0)[-len(rest) :]
            log_p += sum(one[token] for one, token in zip(likely, rest, strict=True))
        log_probs[i] = bounds[i] = log_p
    return log_probs, bounds


def _bound(place: Mapping[int, float], n: int) -> float:
    """Return what the log-probability of a token is at most that is not among the n most likely ones of a place.

    The place may hold one token more, the prompt's own, which is less likely than those.
    """
    if len(place) < n:  # the server reports the whole vocabulary
        return -math.inf
    return min(sorted(place.values(), reverse=True)[n - 1], -math.log(n + 1))
