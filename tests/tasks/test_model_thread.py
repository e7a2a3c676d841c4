"""One model for all shards of a process: who holds it when, and that nobody keeps it."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.shards import model_thread as models
from tasks.shards.model_thread import ModelLease, QueuedLM, in_model_thread
from tests.fakes import a_prompt
from tests.support.scripted_lm import ScriptedLM
from toolformer_core.lm.base import Scan, ScoreRequest
from toolformer_core.records import Prompt

TEXTS = ["one two", "three four"]
REQUEST = ScoreRequest("", "one two", 0, 1)


def scripted() -> ScriptedLM:
    """Two texts in two scans, one log-probability."""
    scans = {("calculator", text): {0: -1.0} for text in TEXTS}
    return ScriptedLM(scans, {}, {("", "one two", 0): [-0.5]}, batch_size=1)


def free() -> bool:
    return models._THREAD.holder is None


def test_the_model_is_held_from_the_first_scan_to_the_last_and_no_longer() -> None:
    with QueuedLM(scripted()) as lm:
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
    with pytest.raises(OSError, match="full"), QueuedLM(scripted()) as lm:
        raise OSError(f"the disk is full, at {next(lm.scan(a_prompt(), TEXTS))}")
    assert free()


@pytest.mark.parametrize("asks", ["log_probs", "another scan"])
def test_asking_the_holder_between_two_scans_is_an_error_and_no_wait_for_ever(asks: str) -> None:
    said: list[str] = []

    def shard() -> None:
        with QueuedLM(scripted()) as lm:
            scans = lm.scan(a_prompt(), TEXTS)
            next(scans)
            with pytest.raises(RuntimeError, match="a scan of this shard still holds the model"):
                lm.log_probs([REQUEST]) if asks == "log_probs" else next(lm.scan(a_prompt(), TEXTS))
            said.append("refused")
            list(scans)  # the scan is none the worse for it, and once it has ended the model may be asked
            assert lm.log_probs([REQUEST])[0].tolist() == [-0.5]
            said.append("scored")

    thread = threading.Thread(target=shard, daemon=True)
    thread.start()
    thread.join(60)
    assert (said, thread.is_alive(), free()) == (["refused", "scored"], False, True)


def waits(work: Callable[[], object]) -> threading.Thread:
    """Return a thread that wants the model, once it waits for it."""
    before = waiting()
    thread = threading.Thread(target=work)
    thread.start()
    while waiting() == before:
        os.sched_yield()
    return thread


def waiting() -> int:
    return len(models._THREAD._finishing) + len(models._THREAD._beginning)


def test_who_finishes_something_comes_before_those_who_begin() -> None:
    came: list[str] = []
    hold = ModelLease()
    hold.do(lambda: came.append("holds"))
    asked = {"begins": False, "begins too": False, "ends": True}
    threads = [waits(lambda n=n, f=f: in_model_thread(lambda: came.append(n), finishing=f)) for n, f in asked.items()]
    hold.do(lambda: came.append("holds on"))
    hold.release()
    for thread in threads:
        thread.join(60)
    assert came == ["holds", "holds on", "ends", "begins", "begins too"]
    assert free()


def test_what_others_take_is_told_and_what_one_asks_for_oneself_is_not() -> None:
    told: list[float] = []
    waited: list[float] = []
    hold = ModelLease(told.append)
    hold.do(lambda: None)
    hold.do(lambda: None)
    assert len(told) == 1  # the first had to wait for its turn, the second held the model
    thread = waits(lambda: in_model_thread(lambda: None, waited=waited.append))
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.01:  # another is at work for that long
        os.sched_yield()
    hold.release()
    thread.join(60)
    assert [seconds >= 0.01 for seconds in waited] == [True]


def test_whoever_gives_up_waiting_is_not_served() -> None:
    hold = ModelLease()
    hold.do(lambda: None)
    scan: list[str] = []

    def give_up() -> None:
        with pytest.raises(TimeoutError):
            ModelLease().do(lambda: scan.append("never"))

    thread = waits(give_up)
    (job,) = models._THREAD._beginning
    job.future.set_exception(TimeoutError())  # as an interruption comes to a thread that waits
    thread.join(60)
    assert waiting() == 0
    hold.release()
    in_model_thread(lambda: None)
    assert (scan, free()) == ([], True)


def test_an_error_comes_to_whoever_asked_and_the_thread_goes_on() -> None:
    with pytest.raises(ValueError, match="no such thing"):
        in_model_thread(lambda: int("no such thing"))
    assert in_model_thread(lambda: in_model_thread(lambda: 2)) == 2  # from within it is simply done


class Watched(ScriptedLM):
    """Notes in which threads it is at work, and how many are at work with it."""

    def __init__(self) -> None:
        super().__init__(scripted()._scans, {}, {("", "one two", 0): [-0.5]}, batch_size=1)
        self.seen: set[str] = set()
        self.at_work = self.most = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        yield
        self.at_work -= 1

    def scan(self, prompt: Prompt, texts: Sequence[str]) -> Iterator[Scan]:
        for scan in super().scan(prompt, texts):
            self.seen.add(threading.current_thread().name)
            yield scan
        self.seen.add(threading.current_thread().name)

    def log_probs(self, requests: Sequence[ScoreRequest]) -> list[NDArray[np.float32]]:
        self.seen.add(threading.current_thread().name)
        with self.watched():
            return super().log_probs(requests)


def test_shards_never_ask_at_once_and_all_of_the_models_work_is_done_in_one_thread() -> None:
    model, ready = Watched(), threading.Barrier(4, timeout=60)

    def shard() -> None:
        ready.wait()
        with QueuedLM(model) as lm:
            for _ in range(50):
                lm.log_probs([REQUEST])

    def scanner() -> None:
        ready.wait()
        for _ in range(20):
            with QueuedLM(model) as lm:
                for _ in lm.scan(a_prompt(), TEXTS):
                    with model.watched():
                        os.sched_yield()

    with ThreadPoolExecutor(4) as pool:
        for done in [*(pool.submit(shard) for _ in range(3)), pool.submit(scanner)]:
            done.result(60)
    assert model.most == 1
    assert model.seen == {"model"}
