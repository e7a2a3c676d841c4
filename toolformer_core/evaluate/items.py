"""The nouns of evaluation: an example of a benchmark, a row that is none, and a benchmark itself.

An item holds the exact text the model goes on from and every answer that counts as right, so whatever runs a model
needs nothing else, and whatever scores needs no model. Nothing here knows files, rules' workings or models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from toolformer_core.records import digest_of

__all__ = ["BadRowError", "Hub", "Item", "Rejected", "Row", "Rule", "Task", "item_of"]

Row = Mapping[str, Any]  # a row of a benchmark, its keys in lower case


@dataclass(frozen=True, slots=True)
class Item:
    """One example of a benchmark."""

    item_id: str  # the file's own id, else the digest of prompt, answers and date; unique within one reading
    task: str
    prompt: str  # the exact text the model continues; of the perplexity task, the text itself
    answers: tuple[str, ...]  # any of them is right; empty for the perplexity task
    date: str | None = None  # ISO: what today is for the Calendar; None if the benchmark says nothing of it
    tool: str | None = None  # the tool that helps, by its key, where that is known (the small world)
    group: str = ""  # what accuracy may be broken down by: a relation, a template, a kind of problem
    source: str = ""  # the file's name within the path read
    line: int = 0  # see `Rejected`


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is no item: reported, counted by reason, and never fatal.

    `line` is the 1-based line on which the row starts in JSON lines, a JSON array or XML, and the row's number in
    Parquet and on the hub. Of rows nested deeper (the questions of a SQuAD file) it is the line of their article;
    `detail` then names the row.
    """

    line: int
    reason: str  # a short stable word
    detail: str = ""
    source: str = ""


class BadRowError(Exception):
    """Raised by a reader for a row it makes no item of; `read` turns it into a `Rejected`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(reason, detail)


class Rule(Enum):
    """When a continuation is right (§4.2); see `scoring`."""

    FIRST_5_WORDS = 5
    FIRST_10_WORDS = 10
    FIRST_20_WORDS = 20
    FIRST_NUMBER = "number"
    PERPLEXITY = "perplexity"  # nothing is right or wrong

    @property
    def words(self) -> int:
        """How many words of the continuation are looked at; 0 if the rule does not count words."""
        return self.value if isinstance(self.value, int) else 0


@dataclass(frozen=True, slots=True)
class Hub:
    """Where a benchmark lies on the Hugging Face hub."""

    repository: str
    config: str | None
    split: str


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark: how it is read, asked and scored, and what the paper measured."""

    name: str
    title: str
    rule: Rule
    form: str  # which prompt: completion | word_problem | question | paragraph_question | text
    shape: str  # what a row looks like, for the error message of a file that has none
    reader: Callable[[str, Row, str], Item] | None  # (task, row, source) -> item; None: the task is not made of rows
    excluded_tools: tuple[str, ...] = ()  # by key: they would give the answer away (§4.2)
    hub: Hub | None = None
    files: tuple[str, ...] = ("*",)  # of a folder, the names read: the first of these that fits any
    one_per_id: bool = False  # later rows of an id are further wordings of the same example, and are left out
    nested: Callable[[Any], Iterator[Any] | None] | None = None  # flattens an element that holds several rows
    figures: Mapping[str, float] = field(default_factory=dict)  # the paper's, percent (or perplexity), by model


def item_of(
    task: str,
    prompt: str,
    answers: Iterable[str],
    *,
    item_id: object = None,
    date: str | None = None,
    tool: str | None = None,
    group: str = "",
) -> Item:
    """Make an item; answers are stripped, repeats and those without a letter or digit left out.

    Args:
        item_id: the file's own; without one, the digest of what the item holds.

    Raises:
        BadRowError: `no_answer`.
    """
    given = [answer.strip() for answer in answers]
    accepted = tuple(dict.fromkeys(a for a in given if any(c.isalnum() for c in a)))
    if not accepted:
        detail = f"only {', '.join(map(repr, given))[:80]}: neither letter nor digit" if any(given) else "none is given"
        raise BadRowError("no_answer", detail)
    own = str(item_id).strip() if item_id is not None else ""
    return Item(
        own or digest_of("item", task, prompt, date or "", *accepted), task, prompt, accepted, date, tool, group
    )
