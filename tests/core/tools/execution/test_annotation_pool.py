"""The pool in simulated time: how many at a time, tries, deadlines, batches, the rate limit, the breaker."""

import os
import queue
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import FakeTool
from tests.support.simulated_calls import HANGS, Simulation, answers_of
from toolformer_core.errors import ToolError, UsageError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.base import ToolLimits
from toolformer_core.tools.execution.asking import Answer, backoff_s
from toolformer_core.tools.execution.breaker import CircuitBreaker
from toolformer_core.tools.execution.pool import AnnotationPool

BUSY = ToolFailure("busy", "come again", retryable=True)
BAD = ToolFailure("bad_input")


class Limited(FakeTool):
    """A tool with limits."""

    def __init__(self, **limits: Any) -> None:
        super().__init__({})
        self.limits = ToolLimits(**limits)


class Batched(Limited):
    def run_batch(self, questions: Sequence[tuple[str, str]]) -> list[Any]:
        raise AssertionError("the simulation answers")


def said(answers: Sequence[Answer]) -> list[str]:
    return [a.result.text if isinstance(a.result, ToolResponse) else a.result.reason for a in answers]


def test_so_many_are_asked_at_a_time_and_answers_keep_the_order_of_the_questions() -> None:
    # 3 at a time, 1 s each: 7 questions begin at 0, 0, 0, 1, 1, 1, 2
    simulation = Simulation(lambda questions: (1.0, questions[0][0].upper()))
    assert said(answers_of(simulation.pool(Limited(at_once=3)), "abcdefg")) == list("ABCDEFG")
    assert [at for at, _ in simulation.calls] == [0, 0, 0, 1, 1, 1, 2]
    assert simulation.most_at_once == 3


def test_only_a_retryable_failure_is_asked_again_and_holds_no_place_meanwhile() -> None:
    outcomes = {"a": [BUSY, BUSY, "A"], "b": [BAD], "c": ["C"], "d": [BUSY, BUSY, BUSY]}
    simulation = Simulation(lambda questions: (1.0, outcomes[questions[0][0]].pop(0)))
    answers = answers_of(simulation.pool(Limited(at_once=1, tries=3)), "abcd")
    assert said(answers) == ["A", "bad_input", "C", "busy"]
    # one at a time, 1 s each, 2 s until the next try: a fails at 1 and is due at 3; b, c and d take 1 to 4; a's second
    # try is 4 to 5, and it is due at 7; d failed at 4 and is due at 6: 6 to 7; a again 7 to 8; d failed at 7, due at 9
    assert [(at, *inputs) for at, inputs in simulation.calls] == [
        (0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "a"), (6, "d"), (7, "a"), (9, "d"),
    ]  # fmt: skip
    assert [len(answer.calls) for answer in answers] == [3, 1, 1, 3]


def test_an_overdue_call_is_given_up_and_asked_again_and_the_others_go_on() -> None:
    simulation = Simulation(lambda questions: (HANGS if questions[0][0] == "b" else 1.0, "yes"))
    answers = answers_of(simulation.pool(Limited(at_once=2), timeout_s=10), "abc")
    assert said(answers) == ["yes", "timeout", "yes"]
    assert answers[1].result == ToolFailure("timeout", "no answer within 10 s", retryable=True)
    assert answers[1].calls == ((10.0, 1), (10.0, 1))
    # b hangs from 0 to 10, is due again at 12, and hangs until 22
    assert [(at, *inputs) for at, inputs in simulation.calls] == [(0, "a"), (0, "b"), (1, "c"), (12, "b")]
    assert (simulation.now(), simulation.abandoned) == (22, 2)


def test_the_tools_own_time_limit_goes_before_the_stages() -> None:
    simulation = Simulation(lambda questions: (3.0, "late"))
    assert said(answers_of(simulation.pool(Limited(timeout_s=2, tries=1), timeout_s=10), "a")) == ["timeout"]
    assert said(answers_of(simulation.pool(Limited(tries=1), timeout_s=10), "a")) == ["late"]


def test_a_rate_limit_spreads_calls_and_does_not_count_as_their_time() -> None:
    # 2 a second, 1 s each: two begin at 0, two at 1, ...; the last begins at 4, long after the time limit of 1.5 s
    simulation = Simulation(lambda questions: (1.0, "yes"))
    pool = simulation.pool(Limited(per_second=2), timeout_s=1.5)
    assert said(answers_of(pool, "abcdefghi")) == ["yes"] * 9
    begun = [at for at, _ in simulation.calls]
    assert begun == pytest.approx([0, 0, 1, 1, 2, 2, 3, 3, 4], abs=0.02)
    windows = [sum(at <= other < at + 1 for other in begun) for at in begun]
    assert max(windows) == 2


def test_a_rate_below_one_is_one_call_in_several_seconds() -> None:
    simulation = Simulation(lambda questions: (0.1, "yes"))
    answers_of(simulation.pool(Limited(per_second=0.25)), "abc")
    assert [at for at, _ in simulation.calls] == pytest.approx([0, 4, 8], abs=0.02)


@pytest.mark.parametrize("limit", [{"at_once": 0}, {"per_second": 0}, {"timeout_s": -1.0}, {"pool": "gpus"}])
def test_limits_that_make_no_sense_are_named(limit: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"a tool's limit {next(iter(limit))} must be"):
        ToolLimits(**limit)


def test_askers_take_turns_and_share_the_places() -> None:
    """Eight threads ask 50 questions each; a third of these fail once, and no more than 4 are ever asked at a time."""
    seen: Counter[str] = Counter()
    at_work, most = set[str](), []

    def answer(input: str, _: str) -> Any:
        at_work.add(input)
        most.append(len(at_work))
        seen[input] += 1
        at_work.discard(input)
        return BUSY if int(input) % 3 == 0 and seen[input] == 1 else input

    tool = FakeTool(answer)
    with closing(AnnotationPool(tool, timeout_s=60, at_once=4, backoff=lambda tries: 0.0)) as pool:
        asked = [[str(1000 * asker + n) for n in range(50)] for asker in range(8)]
        with ThreadPoolExecutor(8) as threads:
            for inputs, answers in zip(asked, threads.map(partial(answers_of, pool), asked), strict=True):
                assert said(answers) == inputs
        assert pool.idle
    assert max(most) <= 4
    assert sum(seen.values()) == 400 + sum(int(input) % 3 == 0 for inputs in asked for input in inputs)


def test_a_batch_is_what_waits_when_a_place_is_free() -> None:
    simulation = Simulation(lambda questions: (1.0, [ToolResponse(i.upper()) for i, _ in questions]))
    answers = answers_of(simulation.pool(Batched(batch=4, at_once=1)), "abcdefghij")
    assert said(answers) == list("ABCDEFGHIJ")
    assert simulation.calls == [(0, list("abcd")), (1, list("efgh")), (2, list("ij"))]
    assert [answer.calls for answer in answers] == [((1.0, 4),)] * 8 + [((1.0, 2),)] * 2
    alone = Simulation(lambda questions: (1.0, "yes"))
    answers_of(alone.pool(Limited(batch=4)), "abcd")  # a tool that cannot answer several together
    assert [inputs for _, inputs in alone.calls] == [["a"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize("bad", [(1.0, ToolFailure("crashed", "ValueError")), (HANGS, "never")])
def test_a_batch_that_fails_as_a_whole_is_asked_one_by_one(bad: tuple[float, Any]) -> None:
    def script(questions: Sequence[tuple[str, str]]) -> tuple[float, Any]:
        if ("c", "") in questions:
            return bad
        return 1.0, [ToolResponse(i.upper()) for i, _ in questions]

    simulation = Simulation(script)
    answers = answers_of(simulation.pool(Batched(batch=4, at_once=4, tries=1), timeout_s=5), "abcdef")
    assert said(answers) == ["A", "B", "crashed" if bad[0] == 1.0 else "timeout", "D", "E", "F"]
    over = 1 if bad[0] == 1.0 else 5
    assert simulation.calls == [
        (0, list("abcd")), (0, list("ef")), (over, ["a"]), (over, ["b"]), (over, ["c"]), (over, ["d"]),
    ]  # fmt: skip
    assert answers[0].calls == ((float(over), 4), (1.0, 1))


def test_in_a_batch_a_retryable_failure_is_the_questions_own() -> None:
    left = Counter(b=1)

    def script(questions: Sequence[tuple[str, str]]) -> tuple[float, Any]:
        return 1.0, [BUSY if left[i] and not left.subtract([i]) else ToolResponse(i.upper()) for i, _ in questions]

    simulation = Simulation(script)
    assert said(answers_of(simulation.pool(Batched(batch=3)), "abc")) == ["A", "B", "C"]
    assert simulation.calls == [(0, list("abc")), (3, ["b"])]


@pytest.mark.parametrize("asked", ["abcdefghijklm", "abcdefghij"])  # the last one opens the breaker, too
def test_ten_questions_in_a_row_that_fail_by_transport_end_it(asked: str) -> None:
    simulation = Simulation(lambda questions: (1.0, BUSY))
    pool = simulation.pool(Limited(at_once=1, tries=1))
    with pytest.raises(ToolError) as raised:
        answers_of(pool, asked)
    assert str(raised.value) == (
        "tool fake does not answer: 10 questions in a row got no answer, the last failure being busy (come again); "
        "nothing of this shard is kept, and the same command goes on when the tool answers again"
    )
    assert (len(simulation.calls), simulation.now()) == (10, 10)
    assert (pool.breaker.state(10), pool.breaker.in_a_row, pool.idle) == ("open", 10, True)


def test_bad_inputs_never_open_the_breaker_and_reset_it() -> None:
    simulation = Simulation(lambda questions: (1.0, BAD if questions[0][0] in "jt" else BUSY))
    pool = simulation.pool(Limited(at_once=1, tries=1))
    # nine failures, a bad input, nine failures, a bad input
    assert Counter(said(answers_of(pool, "abcdefghijklmnopqrst"))) == {"busy": 18, "bad_input": 2}
    many = Simulation(lambda questions: (1.0, BAD))
    assert said(answers_of(many.pool(Limited(at_once=1)), "x" * 50)) == ["bad_input"] * 50


def test_both_orders_must_agree_that_ten_failed_in_a_row() -> None:
    answered_between = CircuitBreaker(75.0)
    for number in range(9):
        answered_between.failed(number, 1.0)
    answered_between.answered(2.0)  # a question that was asked earlier, or later
    answered_between.failed(9, 3.0)
    assert (answered_between.state(3.0), answered_between.in_a_row) == ("closed", 1)
    others_asked_between = CircuitBreaker(75.0)
    for number in range(0, 40, 2):
        others_asked_between.failed(number, 1.0)
    assert (others_asked_between.state(1.0), others_asked_between.in_a_row) == ("closed", 20)
    others_asked_between.failed(1, 1.0)
    assert others_asked_between.state(1.0) == "closed"  # 0, 1, 2
    for number in (3, 5, 7, 9):
        others_asked_between.failed(number, 1.0)
    assert others_asked_between.state(1.0) == "open"  # 0 to 10
    assert (others_asked_between.seconds_left(11.0), others_asked_between.state(31.0)) == (20.0, "half open")


def test_who_waits_is_told_when_a_try_becomes_due_earlier_than_it_knows() -> None:
    outcomes = [BUSY, "yes"]
    simulation = Simulation(lambda questions: (1.0, outcomes.pop(0)))
    pool, inbox = simulation.pool(Limited()), queue.SimpleQueue[Any]()
    pool.ask([("a", "")], inbox.put, lambda *_: None, lambda _: None)
    assert pool.tick() == 30.0
    simulation.wait(inbox, 30.0)  # the call ends at 1, in another thread
    assert inbox.qsize() == 1
    assert pool.tick() == 2.0
    pool.close()


# 32 at a time: with 32 questions all have their second try from 32 to 62; with more, others are asked before that
@pytest.mark.parametrize(("at_once", "questions", "ended"), [(1, 12, 90), (32, 32, 62), (32, 320, 90)])
def test_a_dead_tool_costs_three_time_limits_at_most(at_once: int, questions: int, ended: float) -> None:
    simulation = Simulation(lambda questions: (HANGS, "never"))
    with pytest.raises(ToolError, match="in a row"):
        answers_of(simulation.pool(Limited(at_once=at_once)), "x" * questions)
    assert simulation.now() == ended


def test_questions_that_hang_here_and_there_do_not_kill_a_tool_whose_places_they_fill() -> None:
    """Every third question hangs: soon all 32 places are taken by such, and their timeouts come in together."""
    simulation = Simulation(lambda questions: (HANGS if int(questions[0][0]) % 3 == 0 else 0.1, "yes"))
    answers = answers_of(simulation.pool(Limited()), [str(n) for n in range(300)])
    assert Counter(said(answers)) == {"yes": 200, "timeout": 100}


def test_an_open_breaker_lets_nobody_ask_and_half_open_lets_one_call_through() -> None:
    outcomes: list[Any] = [BUSY] * 11 + ["yes"] * 5
    simulation = Simulation(lambda questions: (1.0, outcomes.pop(0)))
    pool = simulation.pool(Limited(tries=1))
    with pytest.raises(ToolError):
        answers_of(pool, "x" * 10)  # ten at a time: it opens at 1
    with pytest.raises(ToolError) as raised:
        answers_of(pool, "a")
    assert str(raised.value) == (
        "tool fake is not asked: 10 questions in a row got no answer, the last failure being busy (come again); "
        "try again in 30 s"
    )
    simulation.wait(queue.SimpleQueue(), 30.0)
    assert pool.breaker.state(simulation.now()) == "half open"
    with pytest.raises(ToolError, match="10 questions in a row"):
        answers_of(pool, "abc")  # one call, at 31; it opens again at 32
    simulation.wait(queue.SimpleQueue(), 30.0)
    assert said(answers_of(pool, "abcde")) == ["yes"] * 5  # one call at 62, the others when it is answered
    assert [at for at, _ in simulation.calls[10:]] == [31, 62, 63, 63, 63, 63]
    assert pool.breaker.state(simulation.now()) == "closed"


def test_the_waits_between_tries_grow_and_are_drawn_at_random() -> None:
    for tries, most in ((1, 1.0), (2, 2.0), (3, 4.0), (6, 30.0), (100, 30.0)):
        waits = [backoff_s(tries) for _ in range(200)]
        assert 0 <= min(waits) < most / 4
        assert 3 * most / 4 < max(waits) <= most


def test_an_error_of_our_own_is_told_to_who_asked() -> None:
    simulation = Simulation(lambda questions: (1.0, UsageError("broken")))
    with pytest.raises(UsageError, match=r"^broken$"):
        answers_of(simulation.pool(Limited()), "abc")


def test_a_closed_pool_tells_who_waits_and_who_comes_later() -> None:
    simulation = Simulation(lambda questions: (HANGS, "never"))
    pool = simulation.pool(Limited())
    told: list[Any] = []
    pool.ask([("a", "")], lambda message: message(), lambda *_: None, told.append)
    pool.close()
    assert [str(error) for error in told] == ["tool fake did not answer in time: its pool has been closed"]
    with pytest.raises(ToolError, match="its pool is closed"):
        answers_of(pool, "a")


OUTCOMES = st.sampled_from(["yes", BAD, BUSY, HANGS, ToolFailure("crashed", "ValueError: no")])


@given(
    st.lists(st.tuples(st.lists(OUTCOMES, min_size=1, max_size=3), st.floats(0, 9)), max_size=25),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([None, 0.7, 5.0]),
)
def test_whatever_comes_of_calls_every_question_has_one_answer_or_the_tool_is_dead(
    scripts: list[tuple[list[Any], float]], at_once: int, tries: int, batch: int, per_second: float | None
) -> None:
    """Each question has a script of outcomes, the last of which comes again and again, and a duration."""
    asked: Counter[str] = Counter()

    def script(questions: Sequence[tuple[str, str]]) -> tuple[float, Any]:
        results, seconds = [], 0.0
        for input_, _ in questions:
            outcomes, took = scripts[int(input_)]
            outcome = outcomes[min(asked[input_], len(outcomes) - 1)]
            asked[input_] += 1
            seconds = max(seconds, outcome if outcome == HANGS else took)
            results.append(ToolResponse(outcome) if isinstance(outcome, str) else outcome)
        return seconds, results

    simulation = Simulation(script)
    tool = Batched(at_once=at_once, tries=tries, batch=batch, per_second=per_second)
    pool = simulation.pool(tool, timeout_s=10)
    try:
        answers = answers_of(pool, [str(number) for number in range(len(scripts))])
    except ToolError:
        assert pool.breaker.in_a_row >= 10 or pool.breaker.timeouts >= 3
        return
    assert len(answers) == len(scripts)
    assert sum(len(answer.calls) for answer in answers) == asked.total()
    assert simulation.most_at_once <= at_once
    assert (simulation.at_once, pool.idle) == (0, True)
    for answer, (outcomes, _) in zip(answers, scripts, strict=True):
        possible = {o if isinstance(o, str) else "timeout" if o == HANGS else o.reason for o in outcomes}
        assert said([answer])[0] in possible
        assert len(answer.calls) <= tries + 1  # and once in a batch that failed


def test_a_tool_that_ends_the_process_loses_that_call_alone() -> None:
    tool = FakeTool(lambda input_, _: os._exit(3) if input_ == "die" else ToolResponse(input_))
    with closing(AnnotationPool(tool, timeout_s=60)) as pool:
        results = [answer.result for answer in answers_of(pool, ["a", "die", "b"])]
    died = ToolFailure("crashed", "SystemExit: it called os._exit(3)")
    assert results == [ToolResponse("a"), died, ToolResponse("b")]
