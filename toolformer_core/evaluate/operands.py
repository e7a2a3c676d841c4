"""What calls of the calculator are worth on word problems: are their results the answers, and would random ones be?

An arm's accuracy counts as reasoning only as far as it lies above this baseline, an expectation over all items of the
sum over operators o: share of o in the arm's calls x share of the ordered pairs (a, b) of the problem's numbers, from
two places, for which a o b is the answer, with two decimals, as the calculator writes it.
"""

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from toolformer_core.evaluate.numerals import number_in, numbers_of
from toolformer_core.evaluate.prompts import query_in

_OPERATIONS: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else Fraction(-(10**12)),  # is no answer
}
_SIGNS = {"−": "-", "×": "*", "x": "*", "÷": "/"}
_OPERATOR = re.compile(r"(?<=[\d)%.])\s*([-+*/−×÷x])(?=\s*[-+(.$\d])")
_95 = 1.959964  # standard errors on either side of a 95 % interval


@dataclass(frozen=True, slots=True)
class WordProblem:
    prompt: str
    answer: str
    calls: tuple[tuple[str, str], ...] = ()  # input and response


@dataclass(frozen=True, slots=True)
class RandomOperands:
    """The baseline, with a 95 % interval by the normal approximation; shares in [0, 1]."""

    value: float
    low: float
    high: float


def operators_of(input_: str) -> list[str]:
    """Return the binary operators of a calculator's input in order, each as + - * or /."""
    return [_SIGNS.get(sign, sign) for sign in _OPERATOR.findall(input_)]


def random_operands(problems: Sequence[WordProblem]) -> RandomOperands | None:
    """Return the baseline, with the operators of the arm's calls; None: no call has one."""
    mix = Counter(sign for one in problems for input_, _ in one.calls for sign in operators_of(input_))
    if not mix:
        return None
    shares = [_share(one, mix) for one in problems]
    n, mean = len(shares), sum(shares) / len(shares)
    error = _95 * math.sqrt(sum((one - mean) ** 2 for one in shares) / max(1, n - 1) / n)
    return RandomOperands(mean, max(0.0, mean - error), min(1.0, mean + error))


def right_calls(problems: Iterable[WordProblem]) -> float | None:
    """Return the share of the items with a call of which a call's result is the answer; None: no item has a call."""
    called = [one for one in problems if one.calls]
    right = sum(any(_value(response) == _value(one.answer) for _, response in one.calls) for one in called)
    return right / len(called) if called else None


def _share(problem: WordProblem, mix: Counter[str]) -> float:
    pairs = list(permutations(numbers_of(query_in("word_problem", problem.prompt)), 2))
    answer = _value(problem.answer)
    if not pairs or answer is None:
        return 0.0
    hits = sum(mix[sign] * sum(round(_OPERATIONS[sign](a, b), 2) == answer for a, b in pairs) for sign in mix)
    return hits / (mix.total() * len(pairs))


def _value(text: str) -> Fraction | None:
    number = number_in(text)
    return None if number is None else round(number.value, 2)
