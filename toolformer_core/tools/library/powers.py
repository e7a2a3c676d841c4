"""The tools `logarithm` and `power`: powers, roots and logarithms of numbers.

    2^10 -> 1024      square root of 2 -> 1.4142      log2(8) -> 3      ln 5 -> 1.6094      log base 10 of 50 -> 1.6990

A result that is exact is written exactly, any other with four decimals (see `readings.written`); roots and logarithms
that are no fractions are computed with 60 digits. Both take numbers and sums in place of numbers: log(10 * 100).
"""

import re
from decimal import Context, Decimal
from fractions import Fraction
from math import isqrt

from toolformer_core.tools.custom.python_tool import tool
from toolformer_core.tools.library.readings import VERSION, one_line, value_of, written

_MAX_DIGITS = 300  # of a result
_MAX_BITS = 20_000  # of numerator and denominator while a power is computed
_CONTEXT = Context(prec=60)
_E = _CONTEXT.exp(Decimal(1))

_BASES = {"ln": "e", "natural logarithm": "e", "natural log": "e", "lg": "10", "ld": "2", "lb": "2"}
_BASES |= {"binary logarithm": "2", "common logarithm": "10", "decimal logarithm": "10"}
_LOG = re.compile(
    r"(?:(?:what is|calculate|compute|find) )?(?:the )?"
    rf"(?P<name>{'|'.join(_BASES)}|log(?:arithm)?) ?_?"
    r"(?P<base>\d+(?:\.\d+)?(?=\(| \(| of | \d))?"
    r"(?:,? ?(?:to (?:the )?)?base (?P<before>[^ ]+)(?= ))?(?: ?of)? ?(?P<of>.+?)"
    r"(?:,? (?:in|to|with)?(?: the)? ?base (?P<after>[^ ]+))?",
    re.IGNORECASE,
)
_ROOTS = {"square": 2, "cube": 3, "cubic": 3, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6}
_ROOT = re.compile(
    rf"(?:the )?(?:(?P<word>{'|'.join(_ROOTS)}|(?P<nth>\d+)(?:st|nd|rd|th)) root(?: of)?|sqrt|√) ?(?P<of>.+)",
    re.IGNORECASE,
)
_RAISED = re.compile(
    r"(?P<base>.+?) ?(?:\^|\*\*| (?:raised )?to the power(?: of)? | raised to | to the (?=-?\d+(?:st|nd|rd|th)))"
    r" ?(?P<exponent>.+?)(?:(?<=\d)(?:st|nd|rd|th)(?: power)?)?",
    re.IGNORECASE,
)
_NAMED = re.compile(r"(?P<base>.+?) (?P<name>squared|cubed)", re.IGNORECASE)


@tool(
    numeric=True,
    description="Computes the logarithm of a number to a base such as 10, 2 or e.",
    keywords=["log", "logarithm", "logarithms", "ln", "logarithmic"],
    patterns=[r"\b(?:log|ln)_?\d"],
    examples=[
        ("What is the logarithm of 1000 to the base 10?", "log 1000 base 10"),
        ("To which exponent must 2 be raised to give 256?", "log 256 base 2"),
        ("What is the natural logarithm of 5?", "ln 5"),
        ("A test grows tenfold at every step. After how many steps is it 10,000 times as big?", "log 10000 base 10"),
    ],
    mock_response="1.6990",
    version=VERSION,
)
def logarithm(text: str) -> str:
    """Compute one logarithm; see the module."""
    line = one_line(text).rstrip("?=. ")
    match = _LOG.fullmatch(line)
    if match is None:
        raise ValueError("write e.g. log 1000 base 10, or ln 5")
    bases = [
        base for base in (_BASES.get(match["name"].lower()), match["base"], match["before"], match["after"]) if base
    ]
    if len(bases) > 1:
        raise ValueError(f"it names two bases, {bases[0]} and {bases[1]}")
    of, base = match["of"], bases[0] if bases else "10"
    if not bases and (pair := re.fullmatch(r"\((.+), (.+)\)", of)):  # log(8, 2)
        of, base = pair.groups()
    argument = _value(of)
    if base.strip("() ").lower() == "e":
        if argument == "e":
            return "1"
        natural = _positive(argument)
        return "0" if natural == 1 else written(Fraction(_ln(natural)))
    value, radix = _positive(argument), _positive(_value(base))
    if radix == 1:
        raise ValueError("1 is no base of logarithms")
    exact = _exact_logarithm(value, radix)
    if exact is not None:
        return written(exact)
    return written(Fraction(_CONTEXT.divide(_ln(value), _ln(radix))))


def _value(text: str) -> Fraction | str:
    return "e" if text.strip("() ").lower() == "e" else value_of(_unwrapped(text))


def _positive(value: Fraction | str) -> Fraction:
    number = Fraction(_E) if isinstance(value, str) else value
    if number <= 0:
        raise ValueError(f"only positive numbers have logarithms, and {written(number)} is not")
    return number


def _ln(value: Fraction) -> Decimal:
    """Return the natural logarithm to 50 digits, also right beside 1, where most digits of the fraction cancel out."""
    if abs(value - 1) < Fraction(1, 10**9):
        precise = Context(prec=600)
        return _CONTEXT.plus(precise.ln(precise.divide(Decimal(value.numerator), Decimal(value.denominator))))
    return _CONTEXT.subtract(_CONTEXT.ln(Decimal(value.numerator)), _CONTEXT.ln(Decimal(value.denominator)))


def _exact_logarithm(value: Fraction, radix: Fraction) -> Fraction | None:
    """Return the logarithm if it is a fraction with a denominator of at most 12."""
    if value == 1:
        return Fraction(0)
    estimate = Fraction(_CONTEXT.divide(_ln(value), _ln(radix)))
    near = estimate.limit_denominator(12)
    if abs(estimate - near) > Fraction(1, 10**30) or abs(near.numerator) > 2_000:
        return None
    return near if radix**near.numerator == value**near.denominator else None


@tool(
    numeric=True,
    description="Raises a number to a power, squares or cubes it, or extracts a square root, cube root or other root.",
    keywords=["squared", "cubed", "square", "cube", "cubic", "root", "power of", "exponent"],
    patterns=[r"\d ?(?:\^|\*\*) ?\d"],
    examples=[
        ("How much is 2 to the power of 10?", "2^10"),
        ("What is the square root of 144?", "square root of 144"),
        ("A cube has edges of 7 cm. What is its volume?", "7 cubed"),
        ("Bacteria double every hour. By what factor do they grow in 20 hours?", "2^20"),
    ],
    mock_response="1024",
    version=VERSION,
)
def power(text: str) -> str:
    """Compute one power or root; see the module."""
    line = one_line(text).rstrip("?=. ")
    if match := _ROOT.fullmatch(line):
        degree = 2 if match["word"] is None else int(match["nth"] or _ROOTS[match["word"].lower()])
        if degree < 1:
            raise ValueError("a root has a degree of at least 1")
        return written(_root(value_of(_unwrapped(match["of"])), degree))
    if match := _NAMED.fullmatch(line):
        return written(_raise(_base(match["base"]), Fraction(3 if match["name"].lower() == "cubed" else 2)))
    if match := _RAISED.fullmatch(line):
        return written(_raise(_base(match["base"]), value_of(_unwrapped(match["exponent"]))))
    raise ValueError("write e.g. 2^10, 7 cubed or square root of 144")


def _unwrapped(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if text.startswith("(") and text.find(")") == len(text) - 1 else text


def _raise(base: Fraction, exponent: Fraction) -> Fraction:
    if base == 0 and exponent < 0:
        raise ZeroDivisionError("0 has no negative power")
    bits = max(abs(base.numerator), base.denominator).bit_length()
    if base not in (0, 1, -1) and bits * abs(exponent.numerator) > _MAX_BITS:
        raise ValueError("the result has too many digits to be computed exactly")
    result = _root(base**exponent.numerator, exponent.denominator)
    if result and not Fraction(1, 10**_MAX_DIGITS) < abs(result) < 10**_MAX_DIGITS:
        raise ValueError(f"the result has more than {_MAX_DIGITS} digits")
    return result


def _base(text: str) -> Fraction:
    if text.strip().startswith("-"):
        raise ValueError("it is not clear what the minus belongs to; write e.g. (-2)^2")
    return value_of(_unwrapped(text))


def _root(value: Fraction, degree: int) -> Fraction:
    """Return a root: exactly if it is a fraction, else to 50 digits."""
    if value < 0:
        if degree % 2 == 0:
            raise ValueError(f"a negative number has no root of degree {degree}")
        return -_root(-value, degree)
    if degree > 10_000:
        raise ValueError("the degree of the root is too large")
    numerator, denominator = _whole_root(value.numerator, degree), _whole_root(value.denominator, degree)
    if numerator**degree == value.numerator and denominator**degree == value.denominator:
        return Fraction(numerator, denominator)
    return Fraction(_CONTEXT.exp(_CONTEXT.divide(_ln(value), Decimal(degree))))


def _whole_root(value: int, degree: int) -> int:
    """Return the largest whole number whose power is not above the value, by Newton's method."""
    if value < 2 or degree == 1:
        return value
    if degree == 2:
        return isqrt(value)
    guess = 1 << -(-value.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + value // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess
        guess = better
