"""ASDiv, SVAMP, MAWPS and GSM8K: word problems whose answer is one number.

    | benchmark | release                | problem                                    | answer                  |
    |-----------|------------------------|--------------------------------------------|-------------------------|
    | ASDiv     | XML; JSON; the hub     | Body, Question                             | Answer: `9 (apples)`    |
    | SVAMP     | JSON; the hub          | Body, Question                             | Answer                  |
    | MAWPS     | JSON of the repository | sQuestion                                  | lSolutions: one         |
    |           | folds, JSON lines      | original: sQuestion                        | original: lSolutions    |
    |           | the hub, MWPToolkit    | question, Question, original_text          | result, Answer, ans     |
    |           | ... with placeholders  | Question with N_00 or number0, and Numbers | Answer                  |
    | GSM8K     | JSON lines; the hub    | question                                   | after `####` in answer  |

A row whose answer is not one number (ASDiv's ratios, names, clock times and pairs) is rejected as `not_one_number`,
because the paper's rule needs one. Texts stay as published, including SVAMP's missing full stops and MAWPS' spaces
before commas.
"""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal
from typing import Any

from toolformer_core.evaluate.items import BadRowError, BenchmarkRow, Item, item_of
from toolformer_core.evaluate.numerals import number_in
from toolformer_core.evaluate.prompts import word_problem
from toolformer_core.evaluate.readers.fields import optional, text_of
from toolformer_core.evaluate.words import number_text

_PLACEHOLDER = re.compile(r"\b(?:N_|number)(\d+)\b")
_MAX_DIGITS = 60  # of a number inserted into a problem; no word problem has a longer one
_DECIMALS = 6  # of an answer stored as a binary fraction: 3.3333333333333335 means 10/3


def asdiv_svamp(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read a row of ASDiv or SVAMP: a body, a question and an answer.

    Raises:
        BadRowError: no_question, no_answer, not_one_number.
    """
    body = optional(row, "body")
    return item_of(
        task,
        word_problem(body if isinstance(body, str) else "", text_of(row, "question")),
        [gold_number(optional(row, "answer"))],
        item_id=optional(row, "id"),
        group=str(optional(row, "solution-type", "solution_type", "type") or ""),
    )


def mawps(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read a row of MAWPS in any of the releases above.

    Raises:
        BadRowError: no_squestion, no_answer, not_one_number, no_number.
    """
    original = row.get("original")
    if isinstance(original, dict):  # a fold stores the repository's row here, beside its own text with placeholders
        row = {**row, **{str(name).lower(): value for name, value in original.items()}}
    body = optional(row, "body")
    problem = text_of(row, "squestion", "question", "original_text")
    problem = _filled(problem, optional(row, "numbers"))
    value = optional(row, "lsolutions", "answer", "result_float", "result", "ans", "final_ans")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return item_of(
        task,
        word_problem(_filled(body, optional(row, "numbers")) if isinstance(body, str) else "", problem),
        [gold_number(value)],
        item_id=optional(row, "iindex", "id"),
    )


def gsm8k(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read a row of GSM8K.

    Raises:
        BadRowError: no_question, no_answer, not_one_number.
    """
    solution = text_of(row, "answer")
    _, mark, number = solution.rpartition("####")
    if not mark:
        raise BadRowError("no_answer", f"no #### in {solution[-60:]!r}")
    return item_of(task, word_problem("", text_of(row, "question")), [gold_number(number)], item_id=optional(row, "id"))


def gold_number(value: Any) -> str:
    """Return an answer as a number: `9 (apples)` -> 9, 51.0 -> 51, `3/4` -> 3/4.

    Raises:
        BadRowError: no_answer, not_one_number.
    """
    if value is None or value == "" or value == []:
        raise BadRowError("no_answer", "none is given")
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return _comparable(value)
    number = number_in(value) if isinstance(value, str) else None
    if number is None:
        raise BadRowError("not_one_number", f"the answer is {str(value)[:60]!r}")
    if number.decimals is None and number.value.denominator != 1:
        return f"{number.value.numerator}/{number.value.denominator}"
    return number_text(Decimal(number.value.numerator) / Decimal(number.value.denominator))


def _comparable(value: int | float) -> str:
    """Return a finite number as text, with six decimals; rejected if it is too long to be compared with predictions."""
    exact = Decimal(repr(value))
    if exact.adjusted() < _MAX_DIGITS:
        exact = exact.quantize(Decimal(1).scaleb(-_DECIMALS), context=Context(prec=_MAX_DIGITS + _DECIMALS))
        text = number_text(exact)
        if number_in(text) is not None:
            return text
    raise BadRowError("not_one_number", f"the answer has {exact.adjusted() + 1} digits")


def _filled(problem: str, numbers: Any) -> str:
    """Replace N_00 or number0 by the numbers, which are separated by spaces or given as a list."""
    if numbers is None:
        return problem
    if not isinstance(numbers, str | list):
        raise BadRowError("no_number", f"Numbers is a {type(numbers).__name__}, not a text or a list")
    values = numbers.split() if isinstance(numbers, str) else [str(n) for n in numbers]

    def value_of(match: re.Match[str]) -> str:
        index = int(match[1]) if len(match[1]) < _MAX_DIGITS else len(values)
        if index >= len(values):
            raise BadRowError("no_number", f"{match[0][:60]} has no value among {values}"[:200])
        try:
            value = Decimal(values[index])
        except ArithmeticError as exc:
            raise BadRowError("no_number", f"{values[index][:60]!r} is no number") from exc
        if not value.is_finite() or abs(value.adjusted()) > _MAX_DIGITS:
            raise BadRowError("no_number", f"{values[index][:60]!r} is no number of a problem")
        return number_text(value)

    return _PLACEHOLDER.sub(value_of, problem)
