"""What the workers of `gpu_wait.py` run: a model that waits and logs when it works, and a tool that waits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_wait import LOG, MODEL_MS, TOOL_MS
from tests.support.scripted_lm import token_starts
from toolformer_core.lm.base import Draw, DrawRequest, Scan, ScoreRequest
from toolformer_core.records import Prompt, ToolResponse, ToolResult

_BATCH = 16  # texts a scan


@contextmanager
def _logged() -> Iterator[None]:
    start = time.time()
    yield
    with open(os.environ[LOG], "a", encoding="utf-8") as stream:
        stream.write(f"{start} {time.time()}\n")


class WaitingLM:
    """A model that takes its time for every document it scans, and draws another sum at every position."""

    name = digest = "stub"

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for first in range(0, len(texts), _BATCH):
            batch = texts[first : first + _BATCH]
            with _logged():
                time.sleep(float(os.environ[MODEL_MS]) / 1000 * len(batch))
                scan = WaitingScan(range(first, first + len(batch)), batch)
            yield scan

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        """A response makes what follows likely: L- - L+ is 1 nat."""
        with _logged():
            return [np.full(5, -1.0 if "->" in r.prefix else -2.0, dtype=np.float32) for r in requests]


class WaitingScan:
    """One likely position a text."""

    def __init__(self, numbers: Sequence[int], texts: Sequence[str]) -> None:
        self.texts = numbers
        self.positions = [np.array(token_starts(text), dtype=np.int64) for text in texts]
        self.log_probs = [np.where(np.arange(len(p)) == 7, -1.0, -20.0).astype(np.float32) for p in self.positions]

    def draw(
        self, requests: Sequence[DrawRequest], *, max_tokens: int, temperature: float, name: str = "", begin: str = ""
    ) -> list[Draw]:
        with _logged():
            return [Draw(f"Calculator({r.seed} + 1)", True) for r in requests]


class WaitingTool:
    """A tool that takes its time."""

    key, name, description, fingerprint = "calculator", "Calculator", "Waits.", "waits"

    def load(self) -> None:
        return None

    def run(self, input: str, context: str = "") -> ToolResult:
        time.sleep(float(os.environ[TOOL_MS]) / 1000)
        return ToolResponse("1")


def dask_setup(worker: Any) -> None:
    """Put the stubs in the place of model and tool; Dask calls this when a worker starts."""
    from tasks.stages import execute, sample, score

    lm, tool = WaitingLM(), WaitingTool()
    sampling: Any = sample
    scoring: Any = score
    executing: Any = execute
    sampling.model_of = scoring.model_of = lambda spec: lm
    executing.tool_of = lambda spec, key: tool
