"""Queries from benchmarks: what an item asks, without the instruction of its prompt, and the tools that are right.

    | benchmark                        | right tools     | query                                             |
    |----------------------------------|-----------------|---------------------------------------------------|
    | asdiv svamp mawps gsm8k          | calculator      | the word problem                                  |
    | nq webqs triviaqa                | qa, wikisearch  | the question                                      |
    | lama-*, templama                 | qa, wikisearch  | the statement up to the mask                      |
    | mlqa-es -de -hi -vi -zh -ar      | mt              | the question, in its language                     |
    | tatoeba-*                        | mt              | the sentence, with the instruction to translate   |
    | dateset                          | calendar        | the question                                      |
    | small-world*, queries            | the item's own  | as it stands                                      |

An item that names its tools (`tool`) is right with those alone. MLQA's paragraphs are in English; only the question
needs a translation, so it alone is the query. GEAR's authors count fewer tools as right, see `right_by_paper`. This
module asks no model.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolformer_core.evaluate.items import Item, Task
from toolformer_core.evaluate.prompts import query_in
from toolformer_core.grounding.records import Query

_ARITHMETIC, _KNOWLEDGE = ("calculator",), ("qa", "wikisearch")

RIGHT_TOOLS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("asdiv", "svamp", "mawps", "gsm8k"), _ARITHMETIC),
    **dict.fromkeys(("webqs", "nq", "triviaqa"), _KNOWLEDGE),
    **dict.fromkeys(("lama-squad", "lama-google-re", "lama-trex", "templama"), _KNOWLEDGE),
    **dict.fromkeys((f"mlqa-{code}" for code in ("es", "de", "hi", "vi", "zh", "ar")), ("mt",)),
    **dict.fromkeys((f"tatoeba-{code}" for code in ("de", "es", "fr", "zh")), ("mt",)),
    "dateset": ("calendar",),
}

_BY_PAPER: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("webqs", "nq", "triviaqa"), ("wikisearch",)),
    **{name: ("multilingual_qa",) for name in RIGHT_TOOLS if name.startswith("mlqa-")},
}


def query_of(task: Task, item: Item) -> Query:
    """Return what an item asks, with its date as context."""
    return Query(query_in(task.form, item.prompt), item.date or "")


def right_tools(task: Task, item: Item) -> tuple[str, ...]:
    """Return the keys of the tools that are right for an item; empty if no tool is, or none is declared."""
    if item.tool is not None:
        return tuple(key for part in item.tool.split(",") if (key := part.strip()))
    return RIGHT_TOOLS.get(task.name, ())


def right_by_paper(task: str, right: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of the tools that GEAR's authors count as right: WikiSearch for open questions, MultilingualQA
    for MLQA, else the same.
    """
    return _BY_PAPER.get(task, right)
