"""What readers that write text share: how passages are shown to them, and what their text says.

Such readers are a text-to-text model and a model behind a server. This module calls neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolformer_core.tools.search.passages import Hit

_THOUGHTS = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)  # of models that think in their answer
_LABEL = re.compile(r"\A(?:short |final )?answer\s*:\s*", re.IGNORECASE)
_QUOTES = "\"'“”‘’`*"
_NO_ANSWERS = frozenset(
    (
        "unanswerable",
        "no answer",
        "none",
        "unknown",
        "not answerable",
        "not available",
        "not found",
        "not given",
        "not mentioned",
        "not stated",
        "not specified",
        "n/a",
        "i don't know",
        "i do not know",
        "cannot be determined",
        "no answer found",
    )
)


def passages_text(hits: Sequence[Hit]) -> str:
    """Return passages as one text, a line each, best first: `Title > Section: text`."""
    lines = []
    for hit in hits:
        passage = hit.passage
        place = f"{passage.title} > {passage.section}" if passage.section else passage.title
        lines.append(f"{place}: {passage.text}")
    return "\n".join(lines)


def answer_of(text: str) -> str | None:
    """Return the answer in what a model wrote: its first line, without quotation marks or a final full stop.

    None if the model wrote nothing, or that there is no answer.
    """
    lines = [line.strip() for line in _THOUGHTS.sub("", text).splitlines() if line.strip()]
    if not lines:
        return None
    answer = _LABEL.sub("", lines[0].strip(_QUOTES)).strip(_QUOTES + " ")
    if answer.endswith(".") and not re.search(r"\b[A-Z]\.\Z|\.[^\s.]+\.\Z", answer):  # `J.` and `U.S.` keep theirs
        answer = answer[:-1].rstrip(_QUOTES + " ")
    plain = answer.casefold().replace("’", "'").strip(" .!")
    return None if not plain or plain in _NO_ANSWERS else answer
