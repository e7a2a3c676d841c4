"""A language model that answers from a script, for tests of pipelines.

A token is a word with the whitespace in front of it. What breaks the contract of `LanguageModel`, or is not in the
script, raises a `ScriptError` that names the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from toolformer_core.errors import ToolformerError
from toolformer_core.lm.base import Draw, DrawRequest, Insertion, ScoreRequest
from toolformer_core.records import Prompt, digest_of
from toolformer_core.syntax import find_close

_TOKEN = re.compile(r"\s*\S+|\s+\Z")

LogProbs = Mapping[tuple[str, str, int], Sequence[float]] | Callable[[ScoreRequest], Sequence[float]]


def token_starts(text: str) -> list[int]:
    """Return the character offsets at which a token starts, the first being 0; empty for the empty text."""
    return [m.start() for m in _TOKEN.finditer(text)]


class ScriptError(ToolformerError):
    """A request that the script of a `ScriptedLM` does not hold."""


class ScriptedLM:
    """Answers `scan`, `draw` and `log_probs` from plain data.

    Args:
        scans: per (tool of the prompt, text), log p(" [") at character offsets, elsewhere -inf; after an insertion 0.
        samples: per (tool of the prompt, text, offset), the texts that follow " [", for the n-th request of a `draw`
            the n-th; after an insertion the text is what is written, and the offset its length.
        log_probs: per (prefix, text, offset), the log-probabilities from there on; or a function of a `ScoreRequest`.
        batch_size: texts per scan.
        reverse: scan the last texts first, as a backend that sorts by length may.
    """

    name = "scripted"

    def __init__(
        self,
        scans: Mapping[tuple[str, str], Mapping[int, float]] | None = None,
        samples: Mapping[tuple[str, str, int], Sequence[str]] | None = None,
        log_probs: LogProbs | None = None,
        *,
        batch_size: int = 8,
        reverse: bool = False,
    ) -> None:
        self._scans = dict(scans or {})
        self._samples = dict(samples or {})
        self._log_probs: LogProbs = log_probs if log_probs is not None else {}
        self._batch_size = batch_size
        self._reverse = reverse
        self._current: _ScriptedScan | None = None
        for (tool, text), places in self._scans.items():
            for position in places:
                _check_start(text, position, f"the scan script of {tool!r}")
        for tool, text, position in self._samples:
            if position != len(text):
                _check_start(text, position, f"the draw script of {tool!r}")

    @property
    def digest(self) -> str:
        """Digest of the script; a function counts by its qualified name only."""
        given = self._log_probs
        scores = [given.__qualname__] if callable(given) else [[list(k), list(v)] for k, v in sorted(given.items())]
        scans = [[list(k), sorted(v.items())] for k, v in sorted(self._scans.items())]
        samples = [[list(k), list(v)] for k, v in sorted(self._samples.items())]
        return digest_of("scripted", json.dumps([self.name, scans, samples, scores]))

    def scan(self, prompt: Prompt, texts: Sequence[str | Insertion]) -> Iterator[_ScriptedScan]:
        """Scan texts, `batch_size` at a time. A scan expires when the next one is requested."""
        order = range(len(texts))[:: -1 if self._reverse else 1]
        for at in range(0, len(order), self._batch_size):
            self._current = self._scan_batch(prompt, texts, order[at : at + self._batch_size])
            yield self._current
        self._current = None

    def _scan_batch(self, prompt: Prompt, texts: Sequence[str | Insertion], batch: Sequence[int]) -> _ScriptedScan:
        positions, log_probs = [], []
        for index in batch:
            text = texts[index]
            if isinstance(text, Insertion):
                positions.append(np.array([text.position], dtype=np.int64))
                log_probs.append(np.zeros(1, dtype=np.float32))
                continue
            places = self._scans.get((prompt.tool, text))
            if places is None:
                raise ScriptError(f"no scan is scripted for tool {prompt.tool!r} and text {text[:80]!r}")
            starts = token_starts(text)
            positions.append(np.array(starts, dtype=np.int64))
            log_probs.append(np.array([places.get(s, -np.inf) for s in starts], dtype=np.float32))
        return _ScriptedScan(self, prompt.tool, {i: texts[i] for i in batch}, positions, log_probs)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """Return the scripted log-probabilities, at most `tokens` of them per request."""
        out = []
        for request in requests:
            if callable(self._log_probs):
                log_probs: Sequence[float] | None = self._log_probs(request)
            else:
                log_probs = self._log_probs.get((request.prefix, request.text, request.position))
            if log_probs is None:
                raise ScriptError(
                    f"no log-probabilities are scripted for prefix {request.prefix[:80]!r}, "
                    f"position {request.position} of text {request.text[:80]!r}"
                )
            out.append(np.array(log_probs[: request.tokens], dtype=np.float32))
        return out

    def _draw(
        self, scan: _ScriptedScan, requests: Sequence[DrawRequest], max_tokens: int, begin: str = ""
    ) -> list[Draw]:
        if scan is not self._current:
            raise ScriptError("this scan is no longer valid, because the next one has been requested; draw before that")
        counts: dict[tuple[int, int], int] = {}  # samples so far at each (text, position)
        out = []
        for request in requests:
            if request.text not in scan.text_by_index:
                raise ScriptError(f"text {request.text} is not in this scan, which holds {sorted(scan.text_by_index)}")
            given = scan.text_by_index[request.text]
            inserted = isinstance(given, Insertion)
            text = given.written if isinstance(given, Insertion) else given
            scripted = self._samples.get((scan.tool, text, len(text) if inserted else request.position), ())
            nth = counts.get((request.text, request.position), 0)
            counts[request.text, request.position] = nth + 1
            if nth >= len(scripted):
                raise ScriptError(
                    f"draw {nth + 1} for tool {scan.tool!r} at position {request.position} of text {text[:80]!r}: "
                    f"the script has {len(scripted)}"
                )
            if not scripted[nth].startswith(begin):
                raise ScriptError(f"the draw {scripted[nth][:80]!r} does not begin with {begin!r}")
            draw = _cut(scripted[nth], max_tokens)
            out.append(draw._replace(log_p_begin=0.0) if begin else draw)
        return out


@dataclass(eq=False)
class _ScriptedScan:
    lm: ScriptedLM
    tool: str
    text_by_index: Mapping[int, str | Insertion]
    positions: list[NDArray[np.int64]]
    log_probs: list[NDArray[np.float32]]
    bounds: None = None

    @property
    def texts(self) -> Sequence[int]:
        return list(self.text_by_index)

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        """Return the scripted texts; the temperature and the seeds have no effect."""
        return self.lm._draw(self, requests, max_tokens, begin)


def _check_start(text: str, position: int, where: str) -> None:
    if position not in token_starts(text):
        raise ScriptError(f"{where} names position {position}, where no token of {text[:80]!r} starts")


def _cut(text: str, max_tokens: int) -> Draw:
    starts = token_starts(text)
    text = text[: starts[max_tokens]] if len(starts) > max_tokens else text
    close = find_close(text)
    return Draw(text, False) if close is None else Draw(text[:close], True)


def use_model(patch: pytest.MonkeyPatch, model: ScriptedLM) -> None:
    """Have builds in this process ask a model."""
    for stage in ("sample", "extend", "score"):
        patch.setattr(f"tasks.stages.{stage}.model_of", lambda spec: model)
