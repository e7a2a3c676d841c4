"""What GEAR is compared with: other ways to choose a tool, and answers without one.

    | baseline   | chooses                                                                   | LM calls per query      |
    |------------|---------------------------------------------------------------------------|-------------------------|
    | cosine     | the tool whose description is most like the query (ART_cs); gamma = 1     | 1 large                 |
    | lm         | the tool that the LM names after reading all descriptions (ART_llm)       | 1 small, 1 large        |
    | toolformer | the tool that a finetuned model calls by itself while it answers          | 1 of that model         |
    | oracle     | a tool that is declared right                                             | 1 large                 |
    | zero-shot  | no tool: the LM's own answer                                              | 1 large                 |
    | few-shot   | no tool: the LM's own answer after other questions with their answers     | 1 large                 |

The cosine and the oracle need no function here: see `Weights` and `queries.right_tools`. This module does not know how
an answer is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import regex

from toolformer_core.decode.records import GenerationSettings
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.grounding.records import Query
from toolformer_core.grounding.small_lm import SmallLM, first_line

if TYPE_CHECKING:
    from toolformer_core.decode.toolformer import Toolformer

__all__ = ["chosen_by_lm", "chosen_by_toolformer", "few_shot_prompt", "tool_named_in"]

_NAME_TOKENS = 12  # of the LM's choice: a tool's name, and some words around it


def chosen_by_lm(library: Sequence[LibraryTool], lm: SmallLM, queries: Sequence[str]) -> list[str | None]:
    """Let an LM choose from all names and descriptions; None where it names no tool, or the library does not fit.

    Args:
        library: the tools.
        lm: is called once per query.
        queries: the queries.

    Returns:
        Keys of tools.
    """
    tools = "".join(f"{one.tool.name}: {one.tool.description}\n" for one in library)
    head = f"Choose the tool that helps most with the question.\n\n{tools}\n"
    written = lm.answers([f"{head}Question: {query}\nTool:" for query in queries], max_tokens=_NAME_TOKENS)
    names = {one.tool.name: one.key for one in library}
    return [tool_named_in(first_line(text), names) for text in written]


def tool_named_in(text: str, names: Mapping[str, str]) -> str | None:
    """Return the key of the tool whose name comes first in a text, in any case; of two, the longer name.

    Args:
        text: what the LM wrote.
        names: name in calls -> key.
    """
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    if not longest_first:
        return None
    either = "|".join(map(regex.escape, longest_first))
    found = regex.search(rf"(?<!\w)(?:{either})(?!\w)", text, regex.IGNORECASE)
    return {name.lower(): key for name, key in names.items()}[found[0].lower()] if found else None


def chosen_by_toolformer(
    toolformer: Toolformer, queries: Sequence[Query], *, top_k: int = 10, max_new_tokens: int = 24
) -> list[str | None]:
    """Return the tool that a finetuned model asks first while it goes on from each query; None where it asks none.

    Args:
        toolformer: the model with the tools of the library.
        queries: the queries; their context goes to the tools.
        top_k: a call starts where " [" is among this many most likely tokens (the paper: 10).
        max_new_tokens: tokens of text that it may write.
    """
    settings = [
        GenerationSettings(max_new_tokens=max_new_tokens, top_k=top_k, context=query.context) for query in queries
    ]
    keys = toolformer.keys
    generations = toolformer.generate([query.text for query in queries], settings) if queries else []
    return [next((keys[call.tool] for call in g.calls if call.tool in keys), None) for g in generations]


def few_shot_prompt(examples: Sequence[tuple[str, str]], query: str, form: str = "Q: {query}\nA:") -> str:
    """Return a prompt that shows other questions with their answers before the query.

    Args:
        examples: question and answer.
        query: the query.
        form: of every question; one `{query}`.
    """
    shown = "".join(f"{form.replace('{query}', question)} {answer}\n\n" for question, answer in examples)
    return shown + form.replace("{query}", query)
