"""WebQuestions, Natural Questions, TriviaQA and MLQA: questions with all accepted answers.

| benchmark  | release                               | question              | answers                               |
|------------|---------------------------------------|-----------------------|---------------------------------------|
| WebQS      | JSON of Stanford                      | utterance             | targetValue: (list (description ...)) |
|            | other JSON, JSON lines, the hub       | qText, question       | answers, answer                       |
| NQ         | NQ-open's JSON lines, the hub         | question              | answer                                |
| TriviaQA   | JSON (`Data`), the hub                | Question              | Answer: Value, Aliases and the        |
|            |                                       |                       | normalised and human ones             |
| these      | DPR's TSV, without a header           | first column          | second column: a list                 |
| MLQA       | JSON in SQuAD's form, the hub         | question, context     | answers                               |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from toolformer_core.evaluate.items import BenchmarkRow, Item, item_of
from toolformer_core.evaluate.prompts import paragraph_question, question
from toolformer_core.evaluate.readers.fields import optional, text_of, texts_in

_DESCRIPTION = re.compile(r'\(description\s+(?:"((?:[^"\\]|\\.)*)"|([^()"]*))\)')
_TRIVIA = ("value", "aliases", "normalizedvalue", "normalized_value", "normalizedaliases", "normalized_aliases")


def open_question(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read a row of WebQS, NQ or TriviaQA.

    Raises:
        BadRowError: no_question, no_answer.
    """
    text = text_of(row, "question", "qtext", "utterance")
    item_id = optional(row, "id", "qid", "questionid", "question_id")
    return item_of(task, question(text), _answers(row), item_id=item_id)


def about_paragraph(task: str, row: BenchmarkRow, source: str) -> Item:
    """Read a question of MLQA with its paragraph.

    Raises:
        BadRowError: no_context, no_question, no_answer.
    """
    context, text = text_of(row, "context"), text_of(row, "question")
    return item_of(task, paragraph_question(context, text), _answers(row), item_id=optional(row, "id"))


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
        return [t for key in (*_TRIVIA, "humananswers", "text") for t in texts_in(by_name.get(key))]
    if isinstance(value, list):
        return [t for a in value for t in (texts_in(a.get("text")) if isinstance(a, dict) else texts_in(a))]
    return texts_in(value)
