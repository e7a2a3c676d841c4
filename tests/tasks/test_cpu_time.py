"""CPU seconds of a shard: its own thread's and the model's, each counted for whoever asked."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.shards.cpu_time import CPU_SECONDS, MODEL_CPU_SECONDS, CpuTime
from tasks.shards.model_thread import in_model_thread, resident_model
from tests.support.scripted_lm import ScriptedLM


def compute(seconds: float) -> None:
    """Compute until this thread has used that much CPU, however long that takes."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_models_cpu_time_is_the_shards_that_asked_and_nobody_elses() -> None:
    asked, done = threading.Event(), threading.Event()

    def other_shard() -> dict[str, float]:
        cpu = CpuTime()
        asked.set()
        done.wait()
        return cpu.counters()

    with ThreadPoolExecutor(1) as other:
        beside = other.submit(other_shard)
        asked.wait()
        cpu = CpuTime()
        compute(0.02)
        in_model_thread(lambda: compute(0.05))
        in_model_thread(lambda: compute(0.05))
        counters = cpu.counters()
        done.set()
    assert counters[CPU_SECONDS] >= 0.02  # its own; it only waited for the model
    assert counters[CPU_SECONDS] < counters[MODEL_CPU_SECONDS]
    assert counters[MODEL_CPU_SECONDS] >= 0.1  # both jobs
    assert beside.result().keys() == {CPU_SECONDS}  # the other shard asked for nothing
    assert beside.result()[CPU_SECONDS] < 0.02


def test_loading_a_model_is_no_shards_work() -> None:
    cpu = CpuTime()
    model = resident_model("slow", "slow", lambda: (compute(0.05), ScriptedLM({}))[1])
    assert model is resident_model("slow", "slow", lambda: ScriptedLM({}))
    assert MODEL_CPU_SECONDS not in cpu.counters()


def test_a_job_that_fails_has_taken_its_time_too() -> None:
    cpu = CpuTime()
    with pytest.raises(TypeError):
        in_model_thread(lambda: int(compute(0.03)))
    assert cpu.counters()[MODEL_CPU_SECONDS] >= 0.03
