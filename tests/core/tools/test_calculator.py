import operator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.calculator import MAX_CHARS, MAX_DEPTH, Calculator, format_number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("27 + 4 * 2", "35"),  # 4 * 2 = 8 first
        ("400 / 1400", "0.29"),  # 0.2857...
        ("85 / 23", "3.70"),  # 3.6956...
        ("11.4% * 1,500", "171"),  # 0.114 * 1500
        ("1 / 3 * 3", "1"),  # exact: whole before rounding
        ("6.001 * 1", "6.00"),  # not whole before rounding
        ("1 / 200", "0.01"),  # 0.005: halves away from zero
        ("-1 / 200", "-0.01"),
        ("-1 / 300", "0.00"),  # never -0.00
        *((f"7 {dash} 2", "5") for dash in "-‐‑‒–—―−﹣－"),
        *((f"{dash}7 + 2", "-5") for dash in "-‐‑‒–—―−﹣－"),
        *((f"3{sign}4", "12") for sign in "*xX×∗·⋅∙＊ｘ"),
        *((f"12{sign}4", "3") for sign in "/÷∕／"),
        ("１，５００ × ５０％", "750"),
        ("1\u00a0234\u00a0567.5 + 1", "1234568.50"),
        ("1\u00a0+\u00a02", "3"),
    ],
)
def test_answers(text: str, answer: str) -> None:
    assert Calculator().run(text) == ToolResponse(answer)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not_an_expression"),
        ("١ + ٢", "not_an_expression"),  # digits, but not ours
        ("2 ** 3", "invalid_expression"),
        ("1,23 + 4", "invalid_expression"),
        ("0x10 + 1", "invalid_expression"),  # 16, or 0 * 10
        ("0,234 + 1", "invalid_expression"),  # a decimal comma: thousands do not begin with 0
        ("6 / 1⁄2", "invalid_expression"),  # 12, or 3
        ("(1 + 2", "invalid_expression"),
        ("2e3 + 1", "invalid_expression"),
        ("__import__('os').system('1')", "invalid_expression"),
        ("1 / 0", "division_by_zero"),
        ("1+" * MAX_CHARS + "1", "too_long"),
        ("(" * (MAX_DEPTH + 1) + "1+1" + ")" * (MAX_DEPTH + 1), "invalid_expression"),
    ],
)
def test_failures_are_typed(text: str, reason: str) -> None:
    result = Calculator().run(text)
    assert isinstance(result, ToolFailure)
    assert result.reason == reason


def test_the_deepest_and_the_longest_expressions_are_answered() -> None:
    assert Calculator().run("(" * MAX_DEPTH + "1+1" + ")" * MAX_DEPTH) == ToolResponse("2")
    # 252 nines times 9 = 8 followed by 251 nines and a 1: 9 * (10^252 - 1) = 9 * 10^252 - 9
    assert Calculator().run("9" * 252 + " * 9") == ToolResponse(str(9 * 10**252 - 9))
    assert Calculator().run("-" * 200 + "1 + 1") == ToolResponse("2")


@given(st.fractions(min_value=-(10**6), max_value=10**6))
def test_rounding_is_off_by_at_most_half_a_cent(value: Fraction) -> None:
    assert abs(Fraction(format_number(value)) - value) <= Fraction(1, 200)


# A written expression, its value (None: it divides by zero), and how strongly it binds.
Written = tuple[str, Fraction | None, int]
SPELLINGS = {"+": "+＋", "-": "-−–", "*": "*×·＊", "/": "/÷"}
OPERATE = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@st.composite
def numbers(draw: st.DrawFn) -> Written:
    whole, decimals = draw(st.integers(0, 9) | st.integers(0, 10**7)), draw(st.text("0123456789", max_size=3))
    text = draw(st.sampled_from([str(whole), f"{whole:,}"])) + (f".{decimals}" if decimals else "")
    percent = draw(st.sampled_from(["", "", "%", " %"]))
    return text + percent, Fraction(f"{whole}.{decimals}") / (100 if percent else 1), 3


@st.composite
def operations(draw: st.DrawFn, operands: st.SearchStrategy[Written]) -> Written:
    sign, rank = draw(st.sampled_from([("+", 1), ("-", 1), ("*", 2), ("/", 2)]))
    (left, a, left_rank), (right, b, right_rank) = draw(operands), draw(operands)
    left, right = f"({left})" if left_rank < rank else left, f"({right})" if right_rank <= rank else right
    text = draw(st.sampled_from(["", " ", "\t"])).join((left, draw(st.sampled_from(SPELLINGS[sign])), right))
    value = None if a is None or b is None or (sign == "/" and not b) else OPERATE[sign](a, b)
    if draw(st.booleans()):
        return text, value, rank
    return f"-({text})", None if value is None else -value, 3


@given(operations(st.recursive(numbers(), operations, max_leaves=8)))
def test_an_expression_has_the_value_of_its_tree(written: Written) -> None:
    text, value, _ = written
    result = Calculator().run(text)
    if len(text) > MAX_CHARS:
        assert isinstance(result, ToolFailure)
    elif value is None:
        assert result == ToolFailure("division_by_zero")
    else:
        assert result == ToolResponse(format_number(value))
