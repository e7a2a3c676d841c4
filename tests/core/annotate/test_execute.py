import subprocess
import sys
import threading
import unicodedata
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import FakeTool, StuckTool
from tests.strategies import any_texts
from tests.support.simulated_calls import HANGS, Simulation
from toolformer_core.annotate.execute import execute, is_transient
from toolformer_core.config import ExecuteConfig
from toolformer_core.errors import ToolError, UsageError
from toolformer_core.records import Execution, ToolFailure
from toolformer_core.syntax import escape
from toolformer_core.tools.execution.pool import AnnotationPool
from toolformer_core.tools.execution.tally import CallTally
from toolformer_core.tools.responses import response_line, run_guarded
from toolformer_core.tools.search.passages import PassageIndex
from toolformer_core.tools.wikisearch import WikiSearch


def at_once(tries: int) -> float:
    """A try follows the last one at once."""
    return 0.0


@pytest.mark.parametrize(
    ("answer", "failure", "detail"),
    [
        (ToolFailure("invalid_expression", "1 +"), "invalid_expression", "1 +"),
        (ZeroDivisionError("by zero"), "crashed", "ZeroDivisionError: by zero"),
        (SystemExit(3), "crashed", "SystemExit: 3"),
        (None, "crashed", "the tool returned NoneType, not a response or a failure"),
        (" \n\x00\t ", "empty", "the tool answered with nothing"),
        (ValueError("\ud800"), "crashed", "ValueError: \\ud800"),
    ],
)
def test_a_failure_is_a_record_with_its_reason(answer, failure, detail):
    (done,) = execute(FakeTool(lambda *_: answer), [("x", "")], ExecuteConfig())
    assert (done.response, done.failure, done.detail, done.transient) == ("", failure, detail, failure == "crashed")


def test_a_tool_that_hangs_is_left_behind_and_the_rest_goes_on():
    tool = StuckTool()
    with closing(AnnotationPool(tool, timeout_s=0.05, at_once=1, backoff=at_once)) as pool:
        done = execute(tool, [("a", ""), ("stuck", ""), ("b", "")], ExecuteConfig(), pool=pool)
    tool.let_go.set()
    assert [(e.response, e.failure) for e in done] == [("A", ""), ("", "timeout"), ("B", "")]
    assert [e.transient for e in done] == [None, True, None]


@pytest.mark.parametrize("requests", [[], [("a", ""), ("b", "")]])
def test_a_tool_is_loaded_before_its_first_call_and_only_if_there_is_one(requests):
    loads, threads = [], []

    class WhereLoaded(FakeTool):
        def load(self):
            super().load()
            threads.append(threading.current_thread())

    tool = WhereLoaded(lambda *_: loads.append(tool.loads) or "answer")
    execute(tool, requests, ExecuteConfig())
    assert (tool.loads, loads) == (min(1, len(requests)), [1] * len(requests))
    assert threads in ([], [threading.current_thread()])  # calls, and their clock, are another thread's


def test_an_error_of_our_own_is_no_failed_call(tmp_path):
    with pytest.raises(UsageError, match=r"^broken$"):
        execute(FakeTool(lambda *_: UsageError("broken")), [("x", "")], ExecuteConfig())
    (tmp_path / "p.jsonl").write_text('{"title": "t", "text": "x"}\nno JSON\n')
    with pytest.raises(UsageError, match="line 2 is not a passage"):
        execute(WikiSearch(PassageIndex(tmp_path / "p.jsonl")), [("x", "")], ExecuteConfig())


def test_a_retryable_failure_is_tried_once_more_and_is_transient():
    busy = ToolFailure("busy", retryable=True)
    answers = {"a": [busy, "A"], "b": [ToolFailure("no_result")], "c": [busy, busy]}  # one after the other
    tool = FakeTool(lambda input, _: answers[input].pop(0))
    tally = CallTally()
    with closing(AnnotationPool(tool, timeout_s=60, at_once=1, backoff=at_once)) as pool:
        done = execute(tool, [("a", ""), ("b", ""), ("c", "")], ExecuteConfig(), pool=pool, tally=tally)
    wanted = [("A", "", None), ("", "no_result", False), ("", "busy", True)]
    assert [(e.response, e.failure, e.transient) for e in done] == wanted
    assert sorted(input for input, _ in tool.asked) == ["a", "a", "b", "c", "c"]
    assert (tally.requested, tally.calls, tally.durations.total()) == (3, 5, 5)


def test_a_tool_that_is_dead_ends_the_stage():
    tool = FakeTool(lambda *_: ToolFailure("unreachable", "refused", retryable=True))
    told = r"tool fake does not answer: \d+ questions in a row got no answer, .* being unreachable \(refused\)"
    with closing(AnnotationPool(tool, timeout_s=60, backoff=at_once)) as pool, pytest.raises(ToolError, match=told):
        execute(tool, [(str(n), "") for n in range(100)], ExecuteConfig(), pool=pool)


HANGING = """
from tests.fakes import StuckTool
from toolformer_core.annotate.execute import execute
from toolformer_core.config import ExecuteConfig
from toolformer_core.tools.execution.pool import AnnotationPool
pool = AnnotationPool(tool := StuckTool(), timeout_s=0.01, backoff=lambda tries: 0)
print(execute(tool, [('stuck', '')], ExecuteConfig(), pool=pool)[0].failure)
"""


def test_a_tool_that_hangs_does_not_keep_the_process_alive():
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "timeout\n"


def whole_text_line(text: str, most: int) -> str:
    """The same as `response_line`, with every character looked at, one by one."""
    line = "".join(c for c in " ".join(text.split()) if unicodedata.category(c) not in ("Cc", "Cs"))
    line = " ".join(line.split())
    if len(line) > most:
        cut = line[:most]
        if line[most] != " " and " " in cut:
            cut = cut[: cut.rindex(" ")]
        line = cut.rstrip()
    return escape(line)


@given(any_texts, st.integers(1, 20), st.integers(1, 50))
def test_only_the_beginning_of_a_long_response_matters(text, times, most):
    """At most 40 * 20 = 800 characters, of which 100 * (most + 1) are looked at: not all of them for most < 7."""
    text *= times
    line = response_line(text, most)
    assert line == whole_text_line(text[: 100 * (most + 1)], most)
    assert len(line) <= most
    assert line == line.strip()
    assert "\n" not in line
    assert response_line(line, most) == line  # a second pass leaves it alone


@pytest.mark.parametrize(("text", "line"), [("two words " * 10**6, "two"), (" " * 10**7, "")])
def test_of_ten_megabytes_no_more_is_looked_at_than_may_be_kept(text, line):
    stops = []  # 100 * (5 + 1) characters

    class Watched(str):
        def __getitem__(self, part):
            stops.append(part.stop)
            return super().__getitem__(part)

    assert response_line(Watched(text), 5) == line
    assert max(stops) == 600


KNOWN = {("a", ""): Execution("fake", "a", "", "known", ""), ("c", ""): Execution("fake", "c", "", "", "no_result")}


def test_what_is_known_is_not_asked_again():
    tool = FakeTool(lambda input, context: input.upper())
    done = execute(tool, [("b", ""), ("a", ""), ("c", ""), ("b", "x")], ExecuteConfig(), KNOWN)
    assert [e.response or e.failure for e in done] == ["B", "known", "no_result", "B"]
    assert tool.asked == [("b", ""), ("b", "x")]


def test_a_tool_whose_answers_are_all_known_or_that_may_not_be_asked_is_not_even_loaded():
    tool = FakeTool({})
    for offline in (True, False):
        done = execute(tool, [("c", ""), ("a", "")], ExecuteConfig(), KNOWN, offline=offline)
        assert done == [KNOWN["c", ""], KNOWN["a", ""]]
    asked = [("a", ""), ("b" * 90, "2024-01-02"), ("d", "")]
    with pytest.raises(ToolError) as caught:
        execute(tool, asked, ExecuteConfig(), KNOWN, offline=True)
    # the first eighty characters of the input, and one more question without an answer
    assert str(caught.value) == (
        f"offline: no answer is kept of fake to {'b' * 80 + '...'!r} (context '2024-01-02'), "
        "and to 1 more of this shard; run once without --answers stored"
    )
    assert (tool.asked, tool.loads) == ([], 0)


def test_where_a_record_does_not_say_it_timeouts_and_crashes_are_transient():
    failures = ("", "no_result", "empty", "timeout", "crashed")
    assert [is_transient(failure) for failure in failures] == [False, False, False, True, True]
    assert [is_transient("unreachable", said) for said in (True, False, None)] == [True, False, False]


FAILURES = [None, ToolFailure("bad"), ToolFailure("", retryable=True), ValueError("no"), "hangs"]
OUTCOMES = st.sampled_from(["yes", " \x00", "[A(1) -> 2]", *FAILURES])


@given(
    st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.sampled_from(["", "2024-01-01"])), max_size=40),
    st.fixed_dictionaries(dict.fromkeys("abcdefghijkl", st.lists(OUTCOMES, min_size=1, max_size=2))),
    st.integers(1, 4),
)
def test_whatever_a_tool_gives_every_question_has_one_record_in_order(asked, outcomes, places):
    """A tool's outcomes for an input come one after the other, the last again and again; a call takes a second."""
    calls = Counter()

    def script(questions):
        ((input_, context),) = questions
        said = outcomes[input_][min(calls[input_, context], len(outcomes[input_]) - 1)]
        calls[input_, context] += 1
        if said == "hangs":
            return HANGS, "never"
        return 1.0, [run_guarded(FakeTool({input_: said}), input_, context)]

    tally = CallTally()
    pool = Simulation(script).pool(FakeTool({}), at_once=places)
    try:
        done = execute(FakeTool({}), asked, ExecuteConfig(), pool=pool, tally=tally)
    except ToolError:
        assert pool.breaker.in_a_row >= 10 or pool.breaker.timeouts >= 3
        return
    distinct = list(dict.fromkeys(asked))
    assert [(e.input, e.context) for e in done] == distinct
    assert all(bool(e.response) != bool(e.failure) for e in done)
    assert all((e.transient is None) == (not e.failure) for e in done)
    assert tally.requested == len(distinct)
    assert tally.calls == tally.durations.total() == calls.total()
