"""Items from rows that hold one each: questions, word problems, translations, and items as JSON lines.

| benchmark | release                       | question or problem            | answers                               |
|-----------|-------------------------------|--------------------------------|---------------------------------------|
| WebQS     | JSON of Stanford              | utterance                      | targetValue: (list (description ...)) |
|           | other JSON, the hub           | qText, question                | answers, answer                       |
| NQ        | NQ-open's JSON lines, the hub | question                       | answer                                |
| TriviaQA  | JSON (`Data`), the hub        | Question                       | Answer: Value, Aliases, normalised    |
| these     | DPR's TSV, without a header   | first column                   | second column: a list                 |
| MLQA      | JSON in SQuAD's form, the hub | question, context              | answers                               |
| Tatoeba   | a line in each of two files   | the first file's               | the second file's                     |
| ASDiv     | XML; JSON; the hub            | Body, Question                 | Answer: `9 (apples)`                  |
| SVAMP     | JSON; the hub                 | Body, Question                 | Answer                                |
| MAWPS     | JSON of the repository        | sQuestion                      | lSolutions: one                       |
|           | folds, JSON lines             | original: sQuestion            | original: lSolutions                  |
|           | the hub, MWPToolkit           | question, original_text        | result, Answer, ans                   |
|           | ... with placeholders         | Question (N_00), Numbers       | Answer                                |
| GSM8K     | JSON lines; the hub           | question                       | after `####` in answer                |
| any       | JSON lines, see `jsonl_item`  | prompt, or query               | answers, a list or one text           |

A word problem whose answer is not one number (ASDiv's ratios, times, pairs) is rejected: the paper's rule needs one.
"""

import ast
import json
import math
import re
import warnings
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

from toolformer_core.config import TOOL_NAMES
from toolformer_core.evaluate.items import BadRowError, BenchmarkRow, Item, item_of
from toolformer_core.evaluate.numerals import Number, number_in
from toolformer_core.evaluate.prompts import paragraph_question, question, translation, word_problem
from toolformer_core.evaluate.words import number_text
from toolformer_core.records import day_of, digest_of

_DESCRIPTION = re.compile(r'\(description\s+(?:"((?:[^"\\]|\\.)*)"|([^()"]*))\)')
_ANSWER_KEYS = (
    "value aliases normalizedvalue normalized_value normalizedaliases normalized_aliases humananswers text".split()
)
_PLACEHOLDER = re.compile(r"\b(?:N_|number)(\d+)\b")
_MAX_DIGITS = 60  # of a number inserted into a problem; no word problem has a longer one
_DECIMALS = 6  # of an answer stored as a binary fraction: 3.3333333333333335 means 10/3


def optional(row: BenchmarkRow, *names: str) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def text_of(row: BenchmarkRow, *names: str) -> str:
    """Return the first of the values; rejected as `no_<first name>` if it is missing, not text, or blank."""
    value = optional(row, *names)
    if not isinstance(value, str):
        kind = "missing" if value is None else f"a {type(value).__name__}"
        raise BadRowError(f"no_{names[0]}", f"{' or '.join(names)} is {kind}; the row has {', '.join(row)}"[:200])
    if not value.strip():
        raise BadRowError(f"no_{names[0]}", f"{names[0]} is blank")
    return value


def texts_in(value: Any) -> list[str]:
    """Return the texts in a value: a text, a list of texts, or such a list written as text (JSON or Python syntax)."""
    if isinstance(value, str):
        listed = _list_in(value)
        return [value] if listed is None else [v for v in listed if isinstance(v, str)]
    return [v for v in value if isinstance(v, str)] if isinstance(value, list | tuple) else []


def _list_in(text: str) -> list[Any] | None:
    if not (text.startswith("[") and text.endswith("]")):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about backslashes in Python literals
        for read in (json.loads, ast.literal_eval):  # only literals: no expression is evaluated
            try:
                value = read(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, list):
                return value
    return None


def jsonl_item(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read an item from its fields; `tool` is a tool's key, or those of a chain of calls with commas in between.

    {"prompt": "Adding the 12 nuts to the 30 already here gives us", "answers": ["42"], "tool": "calculator"}
    """
    prompt, tool = text_of(row, "prompt"), optional(row, "tool")
    if tool is not None and not (isinstance(tool, str) and all(key in TOOL_NAMES for key in tool.split(","))):
        raise BadRowError("unknown_tool", f"{str(tool)[:40]!r} is none of {', '.join(TOOL_NAMES)}")
    answers, item_id = texts_in(optional(row, "answers")), optional(row, "item_id")
    return item_of(task, prompt, answers, item_id=item_id, date=_date(row), tool=tool, group=_group(row))


def query_item(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read a query for grounding; `tools` are the keys of the tools that are right. It need not have answers.

    {"query": "How many kilometres are 26.2 miles?", "tools": ["units"], "answers": ["42.2 km"]}
    """
    query, given = text_of(row, "query", "prompt"), optional(row, "tools", "tool")
    tools = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(tools, list) or not all(isinstance(tool, str) and tool.strip() for tool in tools):
        raise BadRowError("unknown_tool", f"tools must be a list of keys, got {str(given)[:40]!r}")
    item_id, date, answers = optional(row, "item_id"), _date(row), tuple(texts_in(optional(row, "answers", "answer")))
    return Item(
        item_id=str(item_id) if item_id is not None else digest_of("item", task, query, date or "", *answers),
        task=task,
        prompt=query.strip(),
        answers=answers,
        date=date,
        tool=None if given is None else ",".join(tool.strip() for tool in tools),
        group=_group(row),
    )


def _group(row: BenchmarkRow) -> str:
    return group if isinstance(group := optional(row, "group"), str) else ""


def _date(row: BenchmarkRow) -> str | None:
    value = optional(row, "date")
    try:
        return None if value is None else day_of(value if isinstance(value, str) else repr(value)).isoformat()
    except ValueError as exc:
        raise BadRowError("no_date", str(exc)) from exc


def open_question(task: str, row: BenchmarkRow, source: str) -> Item:
    text = text_of(row, "question", "qtext", "utterance")
    item_id = optional(row, "id", "qid", "questionid", "question_id")
    return item_of(task, question(text), _answers(row), item_id=item_id)


def about_paragraph(task: str, row: BenchmarkRow, source: str) -> Item:
    prompt = paragraph_question(text_of(row, "context"), text_of(row, "question"))
    return item_of(task, prompt, _answers(row), item_id=optional(row, "id"))


def articles(value: Any) -> Iterator[Any] | None:
    """Return the questions of an article in SQuAD's form, each with its paragraph; None if it is not an article."""
    paragraphs = value.get("paragraphs") if isinstance(value, dict) else None
    return _questions(paragraphs) if isinstance(paragraphs, list) else None


def _questions(paragraphs: list[Any]) -> Iterator[Any]:
    for paragraph in paragraphs:
        qas = paragraph.get("qas") if isinstance(paragraph, dict) else None
        if not isinstance(qas, list):
            yield paragraph  # will be rejected because it has no question
            continue
        for entry in qas:
            yield {**entry, "context": paragraph.get("context")} if isinstance(entry, dict) else entry


def _answers(row: BenchmarkRow) -> list[str]:
    target = optional(row, "targetvalue")
    if isinstance(target, str):
        return [re.sub(r"\\(.)", r"\1", quoted) or bare for quoted, bare in _DESCRIPTION.findall(target)]
    value = optional(row, "answer", "answers")
    if isinstance(value, dict):
        by_name = {str(key).lower(): entry for key, entry in value.items()}
        return [text for key in _ANSWER_KEYS for text in texts_in(by_name.get(key))]
    if isinstance(value, list):
        return [t for a in value for t in (texts_in(a.get("text")) if isinstance(a, dict) else texts_in(a))]
    return texts_in(value)


def sentence(task: str, row: BenchmarkRow, source: str) -> Item:
    for name, reason, what in (("sentence", "no_sentence", "line"), ("english", "no_answer", "translation")):
        if not (row[name] or "").strip():
            raise BadRowError(reason, f"the {what} is blank, or the file ends before the other one")
    return item_of(task, translation(row["sentence"]), [row["english"]], item_id=row["id"])


def asdiv_svamp(task: str, row: BenchmarkRow, source: str) -> Item:
    body = optional(row, "body")
    return item_of(
        task,
        word_problem(body if isinstance(body, str) else "", text_of(row, "question")),
        [gold_number(optional(row, "answer"))],
        item_id=optional(row, "id"),
        group=str(optional(row, "solution-type", "solution_type", "type") or ""),
    )


def mawps(task: str, row: BenchmarkRow, source: str) -> Item:
    original = row.get("original")
    if isinstance(original, dict):  # a fold stores the repository's row here, beside its own text with placeholders
        row = {**row, **{str(name).lower(): value for name, value in original.items()}}
    body, numbers = optional(row, "body"), optional(row, "numbers")
    problem = _filled(text_of(row, "squestion", "question", "original_text").strip(), numbers)
    value = optional(row, "lsolutions", "answer", "result_float", "result", "ans", "final_ans")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    prompt = word_problem(_filled(body, numbers) if isinstance(body, str) else "", problem)
    return item_of(task, prompt, [gold_number(value)], item_id=optional(row, "iindex", "id"))


def gsm8k(task: str, row: BenchmarkRow, source: str) -> Item:
    solution = text_of(row, "answer").strip()
    _, mark, number = solution.rpartition("####")
    if not mark:
        raise BadRowError("no_answer", f"no #### in {solution[-60:]!r}")
    return item_of(task, word_problem("", text_of(row, "question")), [gold_number(number)], item_id=optional(row, "id"))


def gold_number(value: Any) -> str:
    """Return an answer as a number: `9 (apples)` -> 9, 51.0 -> 51, `3/4` -> 3/4; see the module for rejections."""
    if value is None or value == "" or value == []:
        raise BadRowError("no_answer", "none is given")
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return _comparable(value)
    number = number_in(value) if isinstance(value, str) else None
    if number is None:
        raise BadRowError("not_one_number", f"the answer is {str(value)[:60]!r}")
    return _written(number)


def _written(number: Number) -> str:
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
