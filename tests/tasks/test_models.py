"""One model for all shards of a process: who holds it when, and that nobody keeps it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks import models
from tasks.models import InTurn, model_turn
from tests.fakes import a_prompt
from toolformer_core.lm.base import Scan, ScoreRequest
from toolformer_core.lm.scripted import ScriptedLM
from toolformer_core.records import Prompt

TEXTS = ["one two", "three four"]
REQUEST = ScoreRequest("", "one two", 0, 1)


def scripted() -> ScriptedLM:
    """Two texts in two scans, one log-probability."""
    scans = {("calculator", text): {0: -1.0} for text in TEXTS}
    return ScriptedLM(scans, {}, {("", "one two", 0): [-0.5]}, batch_size=1)


def free() -> bool:
    return not models._TURNS._held


def test_the_model_is_held_from_the_first_scan_to_the_last_and_no_longer() -> None:
    with InTurn(scripted(), lambda lock: lock) as lm:
        scans = lm.scan(a_prompt(), TEXTS)
        assert free()  # nothing was asked yet
        seen = []
        for scan in scans:
            seen += list(scan.texts)
            assert not free()
        assert seen == [0, 1]
        assert free()  # what is made of the answers is nobody else's loss
        assert lm.log_probs([REQUEST])[0].tolist() == [-0.5]
        assert free()


def test_an_error_amid_the_scans_gives_the_model_back() -> None:
    def half_way(lm: InTurn) -> None:
        for _ in lm.scan(a_prompt(), TEXTS):
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full") as kept, InTurn(scripted(), lambda lock: lock) as lm:
        half_way(lm)
    assert free()
    assert kept.value is not None  # who keeps the error keeps its frames, and yet not the model


def test_who_finishes_something_comes_before_those_who_begin() -> None:
    came: list[str] = []

    def take(name: str, finishing: bool) -> None:
        with model_turn(finishing):
            came.append(name)

    turns = models._TURNS
    threads = [
        threading.Thread(target=take, args=asked) for asked in (("begins", False), ("begins", False), ("ends", True))
    ]
    with model_turn():
        for n, thread in enumerate(threads, 1):
            thread.start()
            while len(turns._beginning._waiters) + len(turns._finishing._waiters) < n:  # type: ignore[attr-defined]
                os.sched_yield()
    for thread in threads:
        thread.join(60)
    assert came == ["ends", "begins", "begins"]
    assert free()


class Watched(ScriptedLM):
    """Notes how many are at work with it."""

    def __init__(self) -> None:
        super().__init__(scripted()._scans, {}, {("", "one two", 0): [-0.5]}, batch_size=1)
        self.at_work = self.most = 0

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        out = super().log_probs(requests)
        self.at_work -= 1
        return out


class Threads(ScriptedLM):
    """Notes in which threads it is at work."""

    def __init__(self) -> None:
        super().__init__(scripted()._scans, {}, {("", "one two", 0): [-0.5]}, batch_size=1)
        self.seen: set[str] = set()

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for scan in super().scan(prompt, texts):
            self.seen.add(threading.current_thread().name)
            yield scan
        self.seen.add(threading.current_thread().name)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        self.seen.add(threading.current_thread().name)
        return super().log_probs(requests)


def test_all_of_the_models_work_is_done_in_one_thread() -> None:
    model = Threads()

    def shard() -> None:
        with InTurn(model, lambda lock: lock) as lm:
            lm.log_probs([REQUEST])
            for _ in lm.scan(a_prompt(), TEXTS):
                pass

    threads = [threading.Thread(target=shard) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert model.seen == {"model_0"}


def test_two_shards_never_ask_at_once() -> None:
    model, ready = Watched(), threading.Barrier(4, timeout=60)

    def shard() -> None:
        ready.wait()
        with InTurn(model, lambda lock: lock) as lm:
            for _ in range(50):
                lm.log_probs([REQUEST])

    def scanning() -> Iterator[None]:
        with InTurn(model, lambda lock: lock) as lm:
            for _ in lm.scan(a_prompt(), TEXTS):
                model.at_work += 1
                model.most = max(model.most, model.at_work)
                yield
                model.at_work -= 1

    def scanner() -> None:
        ready.wait()
        for _ in range(20):
            list(scanning())

    threads = [threading.Thread(target=shard) for _ in range(3)] + [threading.Thread(target=scanner)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert model.most == 1
