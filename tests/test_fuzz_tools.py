"""A few thousand of the texts of `make fuzz-tools`, and that its checks see what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

import pytest

from tests.fuzz_tools import Report, Subjects, fuzz, main
from tests.support.call_texts import KINDS, MAX_TEXT, Case, draw_case
from tests.support.expressions import Number, Operation, Parentheses, Signed, answer, outcomes, rounded
from tests.support.plain_syntax import plain_calls, plain_close, plain_parse
from toolformer_core.records import Call, ToolResponse
from toolformer_core.syntax import FoundCall, escape, find_calls, find_close, linearize, parse
from toolformer_core.tools.calculator import MAX_CHARS, MAX_DEPTH, Calculator

ONE, TWO, THREE, ZERO = (Number(str(n), Fraction(n)) for n in (1, 2, 3, 0))


def test_thousands_of_texts_are_answered_rightly_or_refused() -> None:
    report = fuzz(range(4_000))
    assert report.wrong == []
    assert report.inputs == 4_000
    assert set(report.kinds) == set(KINDS)
    assert min(report.compared["expressions"], report.compared["calls"]) > 500
    for outcome in ("answered", "division_by_zero", "invalid_expression", "not_an_expression", "too_long"):
        assert report.outcomes[f"calculator: {outcome}"] > 10


def test_a_seed_and_a_number_give_the_same_text() -> None:
    assert draw_case(3, 7) == draw_case(3, 7)
    assert draw_case(3, 7) != draw_case(3, 8)
    assert draw_case(3, 7) != draw_case(4, 7)
    assert max(len(draw_case(0, number).text) for number in range(2_000)) <= 2 * MAX_TEXT  # a call and its response


@pytest.mark.parametrize(
    ("tree", "text", "expected"),
    [
        (Operation("+", ONE, Operation("*", TWO, THREE)), "1+2*3", {"7"}),  # 1 + 6
        (Operation("*", Parentheses(Operation("+", ONE, TWO)), THREE), "(1+2)*3", {"9"}),  # 3 * 3
        (Operation("-", Operation("-", ONE, TWO), THREE), "1-2-3", {"-4"}),  # (1 - 2) - 3
        (Operation("*", Operation("/", ONE, THREE), THREE), "1/3*3", {"1"}),  # exact
        (Operation("/", TWO, THREE), "2/3", {"0.67"}),  # 0.666...
        (Operation("-", ONE, Signed("-", Signed("-", TWO))), "1---2", {"-1"}),  # 1 - 2
        (Operation("*", Number("50 %", Fraction(1, 2)), Number("1,000", Fraction(1000))), "50 % * 1,000", {"500"}),
        (Operation("/", ONE, ZERO), "1/0", {"division_by_zero"}),
        (Signed("-", Parentheses(ONE)), "-(1)", {"invalid_expression"}),  # a single number
        (Operation("+", Number("1" * MAX_CHARS, Fraction(0)), ONE), "1" * MAX_CHARS + "+1", {"too_long"}),
    ],
)
def test_what_the_calculator_must_say_of_a_tree(tree: Operation, text: str, expected: set[str]) -> None:
    assert outcomes(tree, text) == expected
    result = Calculator().run(text)
    assert (result.text if isinstance(result, ToolResponse) else result.reason) in expected


def test_parentheses_beyond_the_limit_are_invalid_and_may_hide_a_division_by_zero() -> None:
    tree: Operation | Parentheses = Operation("/", ONE, ZERO)
    for _ in range(MAX_DEPTH):
        tree = Parentheses(tree)
    assert outcomes(tree, "") == {"division_by_zero"}
    assert outcomes(Parentheses(tree), "") == {"division_by_zero", "invalid_expression"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(5), "5"),
        (Fraction(-1, 200), "-0.01"),  # -0.005: away from zero
        (Fraction(-1, 300), "0.00"),  # -0.0033: never -0.00
        (Fraction(37, 10), "3.70"),
        (Fraction(3001, 1000), "3.00"),  # not whole before rounding
        (Fraction(2999, 1000), "3.00"),
    ],
)
def test_the_second_rounding_by_hand(value: Fraction, text: str) -> None:
    assert rounded(value) == text


def test_a_tree_is_evaluated_by_hand() -> None:
    tree = Operation("/", Operation("-", ONE, THREE), Signed("-", THREE))
    assert answer(tree) == Fraction(2, 3)  # (1 - 3) / -3 = -2 / -3


def test_the_plain_parser_by_hand() -> None:
    assert plain_close("a]b]", 0) == 1
    assert plain_close("[]b", 0) is None
    assert plain_parse("QA(a (b)) -> c") == (Call("QA", "a (b)"), "c")
    assert plain_parse("QA(f) -> g) -> h") == (Call("QA", "f"), "g) -> h")  # at the first `)` that leaves it balanced
    assert plain_parse("QA('a')") == (Call("QA", "a"), None)
    assert plain_parse("1QA(a)") is None
    assert plain_parse("QA(a) b") is None
    text = "so [x] and [QA(a [MT(b)]) -> c]"  # QA begins at 10 with its space; the inner call lies in its input
    assert list(plain_calls(text)) == [FoundCall(Call("QA", "a [MT(b)]"), "c", 10, len(text))]
    assert list(plain_calls(text, ["MT"])) == [FoundCall(Call("MT", "b"), None, 16, 24)]


# --- broken subjects --------------------------------------------------------------------------------------------------


def half_to_even(text: str) -> ToolResponse:
    """Answer 1/200 as many libraries round: 0.005 becomes 0.00."""
    return ToolResponse(str((Decimal(1) / 200).quantize(Decimal("0.01"), ROUND_HALF_EVEN)))


def raises(*_: object) -> None:
    raise RecursionError("too deep")


def the_first_bracket(text: str, start: int) -> int | None:
    found = text.find("]", start)
    return None if found < 0 else found


def one(case: Case, subjects: Subjects | None = None, **options: object) -> Report:
    return fuzz([0], subjects=subjects, draw=lambda seed, number: case, **options)  # type: ignore[arg-type]


EXPRESSION = Case("expression", "1/200", answers=frozenset({"0.01"}))  # 0.005, away from zero
CALL = Case("call", "a [QA([x]) -> (b)]", call=Call("QA", "[x]"), response="[b]", before="a")


@pytest.mark.parametrize(
    ("case", "subjects", "subject", "says"),
    [
        (EXPRESSION, Subjects(calculate=half_to_even), "calculator", "'0.00' instead of 0.01"),
        (EXPRESSION, Subjects(calculate=lambda text: ToolResponse("1e-2")), "calculator", "neither an answer nor"),
        (EXPRESSION, Subjects(calculate=raises), "calculator", "raised RecursionError: too deep"),  # type: ignore[arg-type]
        (CALL, Subjects(parse=raises), "parse", "raised RecursionError: too deep"),  # type: ignore[arg-type]
        (CALL, Subjects(parse=lambda body: (Call("QA", body), None)), "parse", "instead of"),
        (CALL, Subjects(find_close=the_first_bracket), "find_close", "the call ends at 7 instead of 16"),
        (CALL, Subjects(find_calls=lambda text, names: []), "find_calls", "does not find"),
        (CALL, Subjects(escape=lambda text: text), "escape", "'a [QA([x]) -> (b)]'"),
        (CALL, Subjects(linearize=lambda call, response: linearize(call)), "linearize", "wrote ' [QA([x])]'"),
    ],
)
def test_a_broken_subject_is_found(case: Case, subjects: Subjects, subject: str, says: str) -> None:
    assert not one(case).wrong
    report = one(case, subjects)
    assert any(finding.subject == subject and says in finding.what for finding in report.wrong)
    assert {finding.text for finding in report.wrong} == {case.text}


def clock_of(*durations: float) -> Iterator[float]:
    """Readings of a clock before and after calls that take so long, in seconds; further calls take no time."""
    now = 0.0
    for duration in durations:
        yield now
        now += duration
        yield now
    while True:
        yield now


def test_only_what_is_slow_at_every_try_is_slow() -> None:
    slow_once = clock_of(0.5, 0.003, 0.001, 0.002, 0.004)  # the five tries of the calculator
    report = one(EXPRESSION, clock=slow_once.__next__)
    assert (report.retried, report.slow) == (1, [])
    assert report.longest_ms["calculator"] == pytest.approx(1)  # the shortest of the tries

    slow_always = clock_of(*[0.02] * 5)  # all five tries
    report = one(EXPRESSION, clock=slow_always.__next__)
    (finding,) = report.slow
    assert (finding.subject, finding.what) == ("calculator", "20.0 ms of CPU time")


def test_the_script_prints_what_it_found_and_ends_with_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--inputs", "30", "--seed", "5", "--json"])
    assert ended.value.code == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("30 texts of seed 5: ")
    assert lines[-1] == "0 wrong, 0 slow"
    found = json.loads(last)
    assert (found["inputs"], found["wrong"], found["slow"], found["findings"]) == (30, 0, 0, [])
    assert sum(found["kinds"].values()) == 30


def test_the_script_shows_a_text_and_what_is_wrong_with_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz_tools.Subjects", lambda: Subjects(escape=lambda text: "["))
    with pytest.raises(SystemExit) as ended:
        main(["--only", "7", "--json"])
    assert ended.value.code == 1
    shown, *_, last = capsys.readouterr().out.splitlines()
    assert shown.startswith("Case(kind=")
    (finding, *_) = json.loads(last)["findings"]
    assert (finding["number"], finding["subject"], finding["what"]) == (7, "escape", "'['")


def test_the_subjects_are_the_real_ones() -> None:
    subjects = Subjects()
    assert (subjects.parse, subjects.find_close, subjects.linearize, subjects.escape) == (
        parse,
        find_close,
        linearize,
        escape,
    )
    assert list(subjects.find_calls("[QA(a)]", None)) == list(find_calls("[QA(a)]"))
