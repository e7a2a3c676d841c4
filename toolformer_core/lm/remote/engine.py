"""A language model behind a vLLM server, of which only the tokenizer is here.

    scan     one request a window: the N most likely tokens at every place
    draw     one request a draw, with its own seed
    score    one request a sequence: the log-probability of each of its tokens, which the server always reports

p(" [") is seen where " [" is among the N tokens, or in the text itself; elsewhere the N-th of them is its bound. A " ["
of several tokens, and samples after a given beginning, take one further request a position; of those samples the first
token is drawn here among the allowed ones reported. Before any result is given away the probe is repeated.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from toolformer_core.endpoints import NO_CREDENTIALS, Credentials
from toolformer_core.errors import ModelError
from toolformer_core.lm.base import Draw, DrawRequest, Insertion, Scan, ScoreRequest, uniform
from toolformer_core.lm.load import LoadedTokenizer, load_tokenizer
from toolformer_core.lm.prompt_tokenizer import PromptTokenizer
from toolformer_core.lm.reference import ModelRef
from toolformer_core.lm.remote.identity import TOLERANCE, RemoteModel, describe, difference, probe_of, tokenizer_for
from toolformer_core.lm.tokens import encode_opened
from toolformer_core.lm.vllm_server import AT_ONCE, VllmServer, draw_on
from toolformer_core.lm.windowing import ScoreSequence, Window, draw_places, score_requests, windows_of
from toolformer_core.records import Prompt, digest_of
from toolformer_core.syntax import find_close

__all__ = ["RemoteLM", "describe_remote", "load_remote_model"]

_TRIES = 8  # of a request while the server is busy or away: over 90 seconds
_ENTRIES_AT_ONCE = 2_000_000  # log-probabilities in responses that are read at a time, some hundreds of bytes each
_WINDOWS_PER_SCAN = 2 * AT_ONCE

# log p(" [") at positions, -inf where it is not seen, and what it is at most.  (n,), (n,)
_Seen = tuple[NDArray[np.float32], NDArray[np.float32]]


class RemoteLM:
    """A causal LM that annotates and scores on a server, which is to serve `model`."""

    def __init__(self, server: VllmServer, model: RemoteModel, tokenizer: LoadedTokenizer, *, name: str) -> None:
        self.server = server
        self.model = model
        self.tokenizer: PromptTokenizer = tokenizer_for(tokenizer, name, model.context)
        self.name = name
        self.tokens = 0  # of all sequences and samples, but not of samples' prompts, which the server caches
        self._lock = threading.Lock()

    @property
    def digest(self) -> str:
        """See `LanguageModel.digest`. How many tokens the server tells is part of it."""
        return digest_of(self.model.digest, self.model.tokenizer_digest, str(self.model.logprobs))

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[Scan]:
        """See `LanguageModel.scan`; the scans have `bounds`. A ModelError if the server serves another model by now."""
        head = self.tokenizer.head_ids(prompt)
        batch: dict[int, list[Window]] = {}
        for text, windows in enumerate(windows_of(self.tokenizer, prompt, texts)):
            if windows:
                batch[text] = windows
            if sum(map(len, batch.values())) >= _WINDOWS_PER_SCAN:
                yield self._scan_batch(head, batch)
                batch = {}
        if batch:
            yield self._scan_batch(head, batch)

    def _scan_batch(self, head: list[int], by_text: Mapping[int, list[Window]]) -> RemoteScan:
        windows = [window for of_text in by_text.values() for window in of_text]
        with self.pool(len(head) + max(len(window.ids) for window in windows)) as pool:
            seen = pool.map(lambda window: self._scan_window(head, window), windows)
            of_texts = [list(islice(seen, len(of_text))) for of_text in by_text.values()]
        self.verify()
        positions = [np.concatenate([window.positions for window in of_text]) for of_text in by_text.values()]
        log_probs, bounds = ([np.concatenate([one[i] for one in of_text]) for of_text in of_texts] for i in (0, 1))
        return RemoteScan(list(by_text), positions, log_probs, bounds, self, head, windows)

    def _scan_window(self, head: list[int], window: Window) -> _Seen:
        first, *rest = self.tokenizer.trigger
        ids = [*head, *window.ids.tolist()]
        at_end = len(window.before) > 0 and int(window.before[-1]) == len(window.ids) - 1
        # the server reports token j at j - 1, so the last one needs one more after it: a token of " ["
        places = self.likely_tokens([*ids, first] if at_end else ids, self.model.logprobs)
        log_probs = np.full(len(window.positions), -np.inf, dtype=np.float32)
        bounds = np.zeros(len(window.positions), dtype=np.float32)
        for i, before in enumerate(window.before.tolist()):
            place = places[len(head) + before]
            if first not in place:
                bounds[i] = _bound(place, self.model.logprobs)
                continue
            log_p = place[first]
            if rest:
                following = [*ids[: len(head) + before + 1], first, *rest]
                likely = self.likely_tokens(following, 0)[-len(rest) :]
                log_p += sum(one[token] for one, token in zip(likely, rest, strict=True))
            log_probs[i] = bounds[i] = log_p
        return log_probs, bounds

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """See `LanguageModel.log_probs`. A prefix too long for the context gives NaN; a ModelError as in `verify`."""
        # a request writes a token after its sequence
        return score_requests(self.tokenizer, requests, self._score, self.tokenizer.context_length - 1)

    def verify(self) -> None:
        """Ask the server for the probe again; a ModelError if it does not answer, or serves another model by now."""
        now = probe_of(self.server, self.tokenizer)
        if not (differs := difference(now, self.model.probe)) < TOLERANCE:
            raise ModelError(
                f"{self.server.url} serves another model under the name {self.server.model!r} than when this run began "
                f"(a fixed text's log-probabilities differ by {differs:.2g} nats per token); nothing of it is stored: "
                "start the server with the first one and run the same command again, or begin anew with the other"
            )

    def _score(self, sequences: list[ScoreSequence]) -> list[tuple[int, NDArray[np.float32]]]:
        def read(sequence: ScoreSequence) -> NDArray[np.float32]:
            ids = sequence.ids.tolist()
            self.count(len(ids))
            # without a start token x_1 has no probability: NaN, which makes the gain NaN too
            log_probs = self.server.log_probs(ids) if len(ids) > 1 else []
            return np.array([np.nan, *log_probs], dtype=np.float32)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            log_probs = list(pool.map(read, sequences))
        self.verify()
        return [
            (i, of_tokens[first + sequence.shift : last + sequence.shift])
            for sequence, of_tokens in zip(sequences, log_probs, strict=True)
            for i, first, last in sequence.answers
        ]

    def likely_tokens(self, ids: Sequence[int], n: int) -> list[dict[int, float]]:
        """See `VllmServer.likely_tokens`; the tokens are counted."""
        self.count(len(ids))
        return self.server.likely_tokens(ids, n)

    def count(self, tokens: int) -> None:
        with self._lock:
            self.tokens += tokens

    def pool(self, tokens: int) -> ThreadPoolExecutor:
        """Return threads for as many responses on this many tokens each as may be read at a time."""
        at_once = _ENTRIES_AT_ONCE // max(1, self.model.logprobs * tokens)
        return ThreadPoolExecutor(max(1, min(AT_ONCE, at_once)))


@dataclass(slots=True, eq=False)
class RemoteScan:
    """p(" [") at the positions of a batch of documents, as far as the server tells it; see `base.Scan`."""

    texts: Sequence[int]
    positions: Sequence[NDArray[np.int64]]
    log_probs: Sequence[NDArray[np.float32]]
    bounds: Sequence[NDArray[np.float32]]
    _lm: RemoteLM
    _head: list[int]  # tokens in front of every window
    _windows: Sequence[Window]

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        """See `Scan.draw`. Every draw is finished, whatever `name` is; a ModelError as in `RemoteLM.verify`."""
        lm, tokenizer = self._lm, self._lm.tokenizer
        prompts = [
            [*self._head, *self._windows[at].ids[: before + 1].tolist(), *tokenizer.trigger]
            for at, before in draw_places(self._windows, requests)
        ]
        begun = [(Draw("", False), list[int]())] * len(requests)
        if begin and requests:
            begun = self._begin(requests, prompts, begin, temperature)
        # seeds of 64 bits as servers take them, between -2^63 and 2^63 - 1
        seeds = [request.seed - (request.seed >> 63 << 64) for request in requests]
        samples = draw_on(lm.server, prompts, seeds, begun, max_tokens, temperature, tokenizer.context_length)
        lm.count(sum(len(tokenizer.encode(draw.text)) for draw in samples))
        lm.verify()
        return samples

    def _begin(
        self, requests: Sequence[DrawRequest], prompts: Sequence[list[int]], begin: str, temperature: float
    ) -> list[tuple[Draw, list[int]]]:
        """Return each draw's given tokens with the first one after them, which is drawn here."""
        lm, tokenizer = self._lm, self._lm.tokenizer
        given, allowed = tokenizer.beginning(begin)
        last = encode_opened(tokenizer.tokenizer, begin)[-1]
        prompt_at = {(r.text, r.position): prompt for r, prompt in zip(requests, prompts, strict=True)}

        def likely_after(prompt: list[int]) -> tuple[float, dict[int, float]]:
            """Return log p of the given tokens, and of the allowed ones that the server tells."""
            places = lm.likely_tokens([*prompt, *given, last], lm.model.logprobs)[len(prompt) - 1 :]
            log_p = sum(place[token] for place, token in zip(places, given, strict=False))
            return log_p, {token: places[-1][token] for token in allowed if token in places[-1]}

        with lm.pool(max(map(len, prompts))) as pool:
            likely = dict(zip(prompt_at, pool.map(likely_after, prompt_at.values()), strict=True))
        out = []
        for request in requests:
            log_p_given, among = likely[request.text, request.position]
            token = _drawn(among, request.seed, temperature)
            text = tokenizer.text([*given, token])
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


def _bound(place: Mapping[int, float], n: int) -> float:
    """Return what log p is at most of a token that is not among a place's n most likely ones."""
    if len(place) < n:  # the server reports the whole vocabulary
        return -math.inf
    return min(sorted(place.values(), reverse=True)[n - 1], -math.log(n + 1))


def _server_of(named: ModelRef, credentials: Credentials | None, tries: int) -> VllmServer:
    if named.kind != "remote":
        raise ModelError(f"model {named.name!r} does not live behind a server; write remote+http://host:port/v1#model")
    known = credentials or named.credentials or NO_CREDENTIALS
    return VllmServer(named.url, named.model, credentials=known, tries=tries)


def describe_remote(model: str | ModelRef, credentials: Credentials | None = None) -> RemoteModel:
    """Ask a server which model it serves, with these credentials or those in the name; see `describe`."""
    named = ModelRef.of(model)
    return describe(_server_of(named, credentials, 1), named)


def load_remote_model(
    model: str | ModelRef, *, served: RemoteModel | None = None, credentials: Credentials | None = None
) -> RemoteLM:
    """Return a model that lives behind a server, which is to serve `served` (default: what it serves now), for
    annotation.

    Credentials are by default those in the name; the model's name never holds them. A ModelError as of `describe`, or
    if the server serves a different model.
    """
    named = ModelRef.of(model)
    found = served or describe_remote(named, credentials)
    lm = RemoteLM(_server_of(named, credentials, _TRIES), found, load_tokenizer(found.tokenizer), name=named.name)
    lm.verify()
    return lm
