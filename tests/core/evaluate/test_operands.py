"""The random-operand baseline: worked by hand, and compared with samples."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.evaluate.operands import WordProblem, operators_of, random_operands, right_calls
from toolformer_core.evaluate.prompts import word_problem


@pytest.mark.parametrize(
    ("text", "operators"),
    [
        ("8 - 5", ["-"]),
        ("-8 - -5", ["-"]),
        ("(3 + 4) * 2.5", ["+", "*"]),
        ("7×6÷2", ["*", "/"]),
        ("20% x 40 − 1", ["*", "-"]),
        ("12", []),
        ("$3 * $4", ["*"]),
    ],
)
def test_an_expression_has_these_operators(text: str, operators: list[str]) -> None:
    assert operators_of(text) == operators


def problem(body: str, answer: str, *calls: tuple[str, str]) -> WordProblem:
    return WordProblem(word_problem(body, "How many?"), answer, calls)


def test_the_baseline_by_hand() -> None:
    # operators of the arm's calls: three "-", one "*"
    problems = [
        # pairs of 8, 3, 2: six. a - b = 5: (8, 3), one of six. a * b = 5: none.  3/4 * 1/6
        problem("He had 8, lost three and 2.", "5", ("8 - 3", "5"), ("8 * 2", "16")),
        # pairs of 6, 6: two. a - b = 36: none. a * b = 36: both.  1/4 * 1
        problem("6 boxes of 6.", "36", ("6 - 6", "0"), ("36 - 0", "36")),
        problem("Only 7.", "7"),  # no pair: 0
    ]
    found = random_operands(problems)
    assert found is not None
    assert found.value == pytest.approx((3 / 4 / 6 + 1 / 4 + 0) / 3)
    assert 0 <= found.low < found.value < found.high <= 1
    assert right_calls(problems) == 1  # of the two items with calls both have a right one


def test_without_calls_there_is_no_baseline() -> None:
    assert random_operands([problem("8 and 3.", "5")]) is None
    assert random_operands([]) is None
    assert right_calls([problem("8 and 3.", "5")]) is None


def test_division_by_zero_is_no_answer_and_results_have_two_decimals() -> None:
    found = random_operands([problem("0 of 3, and 10.", "3.33", ("10 / 3", "3.33"))])
    assert found is not None
    assert found.value == pytest.approx(1 / 6)  # 10 / 3 alone


@given(st.lists(st.integers(1, 20), min_size=2, max_size=5), st.sampled_from("+-*"), st.integers(1, 40))
def test_the_expectation_is_that_of_draws(numbers: list[int], sign: str, answer: int) -> None:
    body = " and ".join(map(str, numbers))
    found = random_operands([problem(body, str(answer), (f"1 {sign} 1", "?"))])
    assert found is not None
    draw, of = random.Random(0), 4_000
    value = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[sign]
    hits = sum(value(*draw.sample(numbers, 2)) == answer for _ in range(of))
    assert found.value == pytest.approx(hits / of, abs=5 * (0.25 / of) ** 0.5)
