"""The corpus of `million.py` and its language model: short texts with two sums each, and a model that finds both.

Every text is different, and so is every sum: nothing is answered from the cache of tools' answers.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.support.scripted_lm import token_starts
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScoreRequest
from toolformer_core.records import Prompt

_BATCH = 64  # texts a scan
_SUM = re.compile(r"(\d+) \w+ and (\d+) \w+, a total of (\d+)")
_RESPONSE = re.compile(r"-> \S+\]")  # in a call with one; without, the arrow stands alone
_GOODS = ("ropes", "nets", "lamps", "boats", "loaves", "barrels", "sails", "oars")


def write_corpus(path: Path, documents: int) -> None:
    """Write texts of about thirty words as JSON lines."""
    with path.open("w", encoding="utf-8") as stream:
        for n in range(documents):
            one, other, third = (_GOODS[(n * step + step) % len(_GOODS)] for step in (1, 3, 5))
            text = (
                f"On day {n} the inn sold {n + 2} {one} and {n % 97} {other}, a total of {n + 2 + n % 97} things. "
                f"Later {2 * n + 1} {third} and {n % 89} {one}, a total of {2 * n + 1 + n % 89} things, came by boat."
            )
            stream.write(json.dumps({"text": text}) + "\n")


class SumsLM:
    """A language model that wants a call in front of the result of every sum, and always draws the right one."""

    name = "sums"
    digest = "sums"

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for at in range(0, len(texts), _BATCH):
            some = texts[at : at + _BATCH]
            yield _SumsScan(range(at, at + len(some)), some)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """A response makes what follows likely: L- - L+ is 1 nat."""
        return [_LIKELY if _RESPONSE.search(request.prefix) else _UNLIKELY for request in requests]


_LIKELY, _UNLIKELY = np.full(5, -1.0, dtype=np.float32), np.full(5, -2.0, dtype=np.float32)


class _SumsScan:
    def __init__(self, texts: Sequence[int], held: Sequence[str]) -> None:
        self.texts = texts
        self._calls: dict[tuple[int, int], Draw] = {}
        self.positions: list[NDArray[np.int64]] = []
        self.log_probs: list[NDArray[np.float32]] = []
        for index, text in zip(texts, held, strict=True):
            starts = token_starts(text)
            results = {}
            for match in _SUM.finditer(text):
                token = starts[bisect_right(starts, match.start(3)) - 1]  # a space in front belongs to it
                results[token] = Draw(f"Calculator({match[1]} + {match[2]})", True)
            self._calls |= {(index, at): draw for at, draw in results.items()}
            self.positions.append(np.array(starts, dtype=np.int64))
            self.log_probs.append(np.array([-1.0 if at in results else -20.0 for at in starts], dtype=np.float32))

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        return [self._calls[request.text, request.position] for request in requests]
