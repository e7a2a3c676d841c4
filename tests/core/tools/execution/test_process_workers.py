"""Tools in processes: loaded there once, killed when a call is overdue, replaced when one dies."""

import os
import subprocess
import sys
import threading
from contextlib import closing, suppress

import psutil
import pytest

from tests.support.process_tools import Digits
from tests.support.simulated_calls import answers_of
from toolformer_core.errors import ToolError, UsageError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.base import Tool
from toolformer_core.tools.execution.asking import Answer
from toolformer_core.tools.execution.pool import AnnotationPool


def pool_of(tool: Tool, timeout_s: float = 60) -> closing[AnnotationPool]:
    return closing(AnnotationPool(tool, timeout_s=timeout_s, backoff=lambda tries: 0.0))


def text(answer: Answer) -> str:
    assert isinstance(answer.result, ToolResponse)
    return answer.result.text


def test_a_tool_is_loaded_once_in_a_process_of_its_own() -> None:
    tool = Digits()
    with pool_of(tool) as pool:
        pool.load()
        pids, loaded = answers_of(pool, ["pid", "pid"]), answers_of(pool, ["loaded", "loaded"])
    assert tool.loaded == 0  # here
    assert {text(answer) for answer in loaded} == {"1"}
    (pid,) = {text(answer) for answer in pids}
    assert int(pid) != os.getpid()


def test_no_more_processes_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with pool_of(Digits(at_once=32)) as pool:
        assert len({text(answer) for answer in answers_of(pool, ["pid"] * 40)}) <= 2


def test_a_call_that_computes_for_ever_has_its_process_killed_and_the_next_gets_a_new_one() -> None:
    with pool_of(Digits(), timeout_s=2) as pool:
        (first,) = answers_of(pool, ["pid"])
        killed = psutil.Process(int(text(first)))
        before, overdue, after = answers_of(pool, ["a", "spin", "pid"])
        killed.wait(60)  # in vain if it went on computing
    assert text(before) == "a"
    assert overdue.result == ToolFailure("timeout", "no answer within 2 s", retryable=True)
    assert text(after) != text(first)


def test_a_process_that_dies_fails_its_own_call_alone() -> None:
    with pool_of(Digits()) as pool:
        before, died, after = answers_of(pool, ["a", "die", "b"])
    assert (text(before), text(after)) == ("a", "b")
    assert died.result == ToolFailure("crashed", "the tool's process ended with exit code -9", retryable=True)


def test_errors_of_our_own_come_across() -> None:
    with pool_of(Digits()) as pool, pytest.raises(UsageError, match=r"^it cannot be$"):
        answers_of(pool, ["error"])
    with pool_of(Digits(broken=True)) as pool, pytest.raises(UsageError, match=r"^the digits are gone$"):
        answers_of(pool, ["a"])


def test_a_tool_that_cannot_be_pickled_says_so() -> None:
    with pytest.raises(ToolError, match=r"tool digits asks for processes .* but cannot be pickled: .*lock"):
        AnnotationPool(Digits(unpicklable=threading.Lock()), timeout_s=1)


_SCRIPT = """
import os, queue
from tests.support.process_tools import Digits
from tests.support.simulated_calls import answers_of
from toolformer_core.tools.execution.pool import AnnotationPool
pool = AnnotationPool(Digits(), timeout_s=60)
(answer,) = answers_of(pool, ["pid"])
answers_of(pool, ["print"])
print(answer.result.text, flush=True)
pool.ask([("spin", "")], lambda message: None, lambda *_: None, lambda _: None)
os.kill(os.getpid(), 9)
"""


def test_a_process_does_not_outlive_the_one_that_started_it_and_prints_nothing_to_its_output() -> None:
    ended = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -9, ended.stderr
    pid = int(ended.stdout)
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)
    assert "not for standard output" in ended.stderr
