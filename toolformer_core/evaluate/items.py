"""The records of evaluation: an example of a benchmark (item), a rejected row, and a benchmark (task)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from toolformer_core.records import digest_of

BenchmarkRow = Mapping[str, Any]  # a row of a benchmark, with lower-case keys


@dataclass(frozen=True, slots=True)
class Item:
    item_id: str  # the file's own id, else the digest of prompt, answers and date; unique within one reading
    task: str
    prompt: str  # the exact text that the model continues; for the perplexity task, the text itself
    answers: tuple[str, ...]  # any of them is right; empty for the perplexity task
    date: str | None = None  # ISO: the current date for the Calendar; None if the benchmark has none
    tool: str | None = None  # key of the tool that helps, or several with commas, if known (small worlds, queries)
    group: str = ""  # for breaking down the accuracy: a relation, a template, a kind of problem
    source: str = ""  # the file's name, relative to the path
    line: int = 0  # see `RejectedRow`


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that cannot be an item: reported, counted by reason, and never fatal."""

    line: int  # on which the row starts, from 1; the row's number in Parquet and on the hub, the article's in SQuAD
    reason: str  # a short stable word
    detail: str = ""
    source: str = ""


@dataclass(eq=False)
class BadRowError(Exception):
    """Raised by a reader for a row that cannot be an item; `read` turns it into a `RejectedRow`."""

    reason: str
    detail: str = ""


class Rule(Enum):
    """When a continuation is right (§4.2); see `scoring`."""

    FIRST_5_WORDS = 5
    FIRST_10_WORDS = 10
    FIRST_20_WORDS = 20
    FIRST_NUMBER = "number"
    PERPLEXITY = "perplexity"  # there are no right answers


@dataclass(frozen=True, slots=True)
class Hub:
    repository: str
    config: str | None
    split: str


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    title: str
    rule: Rule
    form: str  # the kind of prompt, see `prompts`, or text
    shape: str  # what a row looks like, for error messages
    reader: Callable[[str, BenchmarkRow, str], Item] | None  # (task, row, source) -> item; None: it has no rows
    excluded_tools: tuple[str, ...] = ()  # keys of tools that would give the answer away (§4.2)
    hub: Hub | None = None
    files: tuple[str, ...] = ("*",)  # globs, see `benchmark_files`; of translations, the suffix of the sentences' file
    one_per_id: bool = False  # later rows with the same id rephrase the same example, and are left out
    nested: Callable[[Any], Iterator[Any] | None] | None = None  # flattens an element that holds several rows
    passages: Path | None = None  # read by WikiSearch and QA unless the user names others; None: the default ones
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
    """Make an item of stripped, distinct answers with a letter or digit; a BadRowError `no_answer` if there is none."""
    given = [answer.strip() for answer in answers]
    accepted = tuple(dict.fromkeys(a for a in given if any(c.isalnum() for c in a)))
    if not accepted:
        detail = f"only {', '.join(map(repr, given))[:80]}: neither letter nor digit" if any(given) else "none is given"
        raise BadRowError("no_answer", detail)
    file_id = str(item_id).strip() if item_id is not None else ""
    return Item(
        file_id or digest_of("item", task, prompt, date or "", *accepted), task, prompt, accepted, date, tool, group
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """The items that are used, those that are held out, and how many are neither."""

    used: tuple[Item, ...]
    held_out: tuple[Item, ...]
    left: int


def select_items(items: Iterable[Item], *, seed: int, limit: int | None = None, held_out: int = 0) -> Selection:
    """Choose items, whose ids differ, in the order of the digest of seed and id.

    The first `limit` are used, the last `held_out` never (they may be examples): of n items no more than n - 1.
    """
    ordered = sorted(items, key=lambda item: digest_of("selection", str(seed), item.item_id))
    end = len(ordered) - min(held_out, max(0, len(ordered) - 1))
    used = ordered[: end if limit is None else min(limit, end)]
    return Selection(tuple(used), tuple(ordered[end:]), end - len(used))
