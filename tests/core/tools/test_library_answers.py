"""What the tools of numbers and units answer, worked out by hand, and laws; what no tool of the library takes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.library import TOOLS, answer, refusal
from toolformer_core.records import ToolResponse
from toolformer_core.tools.library import LIBRARY
from toolformer_core.tools.library.readings import number_of, value_of, written
from toolformer_core.tools.library.units import convert, named_units

UNITS = sorted({unit.symbol: unit for unit in named_units().values()}.values(), key=lambda unit: unit.symbol)


@pytest.mark.parametrize("key", LIBRARY)
@given(asked=st.text(max_size=40))
def test_no_input_makes_a_tool_crash(key: str, asked: str) -> None:
    result = TOOLS[key].run(asked)
    assert isinstance(result, ToolResponse) or result.reason in ("invalid_input", "no_result")


@pytest.mark.parametrize("key", LIBRARY)
def test_nothing_and_a_novel_are_no_questions(key: str) -> None:
    assert "the input is empty" in refusal(key, " \n")
    assert "1000 characters, at most 256" in refusal(key, "7" * 1000)


# Numbers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.5", Fraction(2469, 2)),
        ("-2", Fraction(-2)),
        ("3/4", Fraction(3, 4)),
        ("-1 1/2", Fraction(-3, 2)),
        (".5", Fraction(1, 2)),
        ("twenty-five", Fraction(25)),
        ("a hundred and five", Fraction(105)),
        ("two thousand three hundred", Fraction(2300)),
        ("half an", Fraction(1, 2)),
    ],
)
def test_numbers_in_digits_and_words(text: str, value: Fraction) -> None:
    assert number_of(text) == value


@pytest.mark.parametrize("text", ["", "1,23", "1.2.3", "five six", "fifty twelve", "1 2", "x", "--1"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        number_of(text)


def test_a_sum_stands_for_a_number() -> None:
    assert value_of("10 * 2 + 1") == 21
    with pytest.raises(ValueError, match="neither a number nor an expression"):
        value_of("10 apples")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(3), "3"),
        (Fraction(0), "0"),
        (Fraction(1, 8), "0.125"),
        (Fraction(804672, 100_000), "8.0467"),
        (Fraction(1, 3), "0.3333"),
        (Fraction(-100, 3), "-33.3333"),
        (Fraction(300001, 100001), "3.0000"),  # 2.99998...: not exactly 3
        (Fraction(1, 300), "0.003333"),  # four significant digits
        (Fraction(99999995, 10**8), "1.0000"),  # 0.99999995
    ],
)
def test_how_numbers_are_written(value: Fraction, text: str) -> None:
    assert written(value) == text


@given(st.fractions(max_denominator=10**9))
def test_a_written_number_is_right_to_four_places(value: Fraction) -> None:
    assert abs(Fraction(written(value)) - value) <= Fraction(1, 20_000)


# Units


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("26.2 miles to kilometres", "42.1648 km"),  # 26.2 * 1.609344 = 42.1648128
        ("how many km are 26.2 miles?", "42.1648 km"),
        ("26.2 miles", "42.1648 km"),  # the usual unit of the other system
        ("98.6 °F in C", "37 °C"),  # (98.6 - 32) * 5 / 9
        ("0 K to celsius", "-273.15 °C"),
        ("5 feet 7 inches to cm", "170.18 cm"),  # 67 * 2.54
        ("5 stone 3 pounds to kg", "33.1122 kg"),  # 73 * 0.45359237 = 33.11224301
        ("5 in in cm", "12.7 cm"),
        ("30 cm to in", "11.8110 in"),  # 30 / 2.54 = 11.81102...
        ("How many feet are in a mile?", "5280 ft"),
        ("3/4 cup to ml", "177.4412 ml"),  # 0.75 * 236.5882365 = 177.441177...
        ("100 km per hour to m/s", "27.7778 m/s"),  # 100 / 3.6
        ("one knot in km/h", "1.852 km/h"),
        ("an hour to minutes", "60 min"),
        ("1 GiB to bytes", "1073741824 B"),
        ("2 acres to square metres", "8093.7128 m²"),  # 2 * 4046.8564224 = 8093.7128448
        ("30 psi to bar", "2.0684 bar"),  # 30 * 0.0689475729... = 2.06842...
    ],
)
def test_quantities_are_converted(asked: str, expected: str) -> None:
    assert answer("units", asked) == expected


@given(st.fractions(max_denominator=1000), st.sampled_from(UNITS), st.data())
def test_there_and_back_is_where_one_was(value: Fraction, source: object, data: st.DataObject) -> None:
    target = data.draw(st.sampled_from([unit for unit in UNITS if unit.kind == source.kind]))  # type: ignore[attr-defined]
    assert convert(convert(value, source, target), target, source) == value  # type: ignore[arg-type]


@given(st.sampled_from(sorted(named_units())), st.integers(1, 999))
def test_every_name_of_a_unit_is_read(name: str, number: int) -> None:
    unit = named_units()[name]
    if unit.other:
        factor = convert(Fraction(number), unit, named_units()[unit.other])
        assert answer("units", f"{number} {name}") == f"{written(factor)} {unit.other}"


# Logarithms and powers


@pytest.mark.parametrize(
    ("key", "asked", "expected"),
    [
        ("logarithm", "log2(8)", "3"),
        ("logarithm", "log(8, 2)", "3"),
        ("logarithm", "logarithm of 81 to the base 3", "4"),
        ("logarithm", "log 1000", "3"),
        ("logarithm", "log 1/8 base 2", "-3"),
        ("logarithm", "log(10 * 100)", "3"),
        ("logarithm", "log base 10 of 50", "1.6990"),  # 1.698970...
        ("logarithm", "ln 5", "1.6094"),  # 1.609437...
        ("logarithm", "natural logarithm of 10", "2.3026"),  # 2.302585...
        ("logarithm", "ln e", "1"),
        ("logarithm", "log 8.0000001 base 2", "3.0000"),  # not exactly 3
        ("logarithm", "log 1" + "0" * 39 + "1", "40.0000"),  # of 10^40 + 1: 40 and 4 * 10^-41
        ("power", "2^10", "1024"),
        ("power", "2 ** -1", "0.5"),
        ("power", "2 to the 10th power", "1024"),
        ("power", "7 cubed", "343"),
        ("power", "(-2)^3", "-8"),
        ("power", "square root of 144", "12"),
        ("power", "sqrt(2)", "1.4142"),  # 1.414213...
        ("power", "cube root of -27", "-3"),
        ("power", "the 4th root of 16", "2"),
        ("power", "27^(1/3)", "3"),
        ("power", "1.05^30", "4.3219"),  # 4.321942...
        ("power", "0^0", "1"),
        ("power", "10^299", "1" + "0" * 299),
    ],
)
def test_logarithms_powers_and_roots(key: str, asked: str, expected: str) -> None:
    assert answer(key, asked) == expected


@pytest.mark.parametrize(
    ("key", "asked", "wrong"),
    [
        ("units", "5 kg to metres", "kg is a unit of mass, m one of length"),
        ("units", "five", "there is no quantity in it"),
        ("units", "10 km to miles or feet", "it names mi and ft"),
        ("units", "3 hours and 4 litres to minutes", "there are two quantities in it"),
        ("units", "20 C 30 F to K", "there are two quantities in it"),  # temperatures do not add up
        ("units", "5 minutes", "does not say into what min are converted"),
        ("logarithm", "ln 0", "only positive numbers have logarithms"),
        ("logarithm", "log 5 base 1", "1 is no base"),
        ("logarithm", "log2(8) base 3", "it names two bases"),
        ("logarithm", "hello", "write e.g. log 1000 base 10"),
        ("power", "0^-1", "0 has no negative power"),
        ("power", "sqrt(-1)", "no root of degree 2"),
        ("power", "-2^2", "not clear what the minus belongs to"),
        ("power", "2^1000", "more than 300 digits"),
        ("power", "9^9999999", "too many digits"),
        ("power", "2^3^2", "neither a number nor an expression"),
        ("power", "the 0th root of 5", "a degree of at least 1"),
        ("power", "two apples", "write e.g. 2^10"),
    ],
)
def test_what_has_no_answer_is_refused_with_a_reason(key: str, asked: str, wrong: str) -> None:
    assert wrong in refusal(key, asked)


@given(st.integers(2, 20), st.integers(0, 60))
def test_a_logarithm_undoes_a_power(base: int, exponent: int) -> None:
    raised = answer("power", f"{base}^{exponent}")
    assert raised == str(base**exponent)
    assert answer("logarithm", f"log {raised} base {base}") == str(exponent)


@given(st.integers(0, 10**9), st.integers(2, 9))
def test_a_root_undoes_a_power(number: int, degree: int) -> None:
    assert answer("power", f"the {degree}th root of {number**degree}") == str(number)
