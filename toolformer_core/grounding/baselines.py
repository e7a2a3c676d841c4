"""What GEAR is compared with: a tool chosen by one call of an LM, and the prompts of answers without a tool.

The other baselines need nothing of their own: the cosine alone is gamma = 1, the oracle takes a tool declared right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolformer_core.decode.records import GenerationSettings
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.grounding.records import Query
from toolformer_core.grounding.small_lm import HFSmallLM

if TYPE_CHECKING:
    from toolformer_core.decode.toolformer import Toolformer


def chosen_by_lm(library: Sequence[LibraryTool], lm: HFSmallLM, queries: Sequence[str]) -> list[str | None]:
    """Return the tool whose name an LM would write after all descriptions; None where they do not fit the context."""
    tools = "".join(f"{one.tool.name}: {one.tool.description}\n" for one in library)
    head = f"Choose the tool that helps most with the question.\n\n{tools}\n"
    chosen = lm.choose([f"{head}Question: {query}\nTool:" for query in queries], [one.tool.name for one in library])
    return [None if n is None else library[n].key for n in chosen]


def chosen_by_toolformer(
    toolformer: Toolformer, queries: Sequence[Query], *, top_k: int = 10, max_new_tokens: int = 24
) -> list[str | None]:
    """Return the tool that a finetuned model asks first while it goes on from each query; None where it asks none."""
    settings = [
        GenerationSettings(max_new_tokens=max_new_tokens, top_k=top_k, context=query.context) for query in queries
    ]
    keys = toolformer.keys
    generations = toolformer.generate([query.text for query in queries], settings) if queries else []
    return [next((keys[call.tool] for call in g.calls if call.tool in keys), None) for g in generations]


def few_shot_prompt(examples: Sequence[tuple[str, str]], query: str, form: str) -> str:
    """Return a prompt that shows other questions with their answers before the query, in a form with one `{query}`."""
    shown = "".join(f"{form.replace('{query}', question)} {answer}\n\n" for question, answer in examples)
    return shown + form.replace("{query}", query)
