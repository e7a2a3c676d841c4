"""The tool `dictionary`: what a common English word means, from a small dictionary of definitions written for it.

    lantern -> lantern (noun): a lamp in a case with glass sides that can be carried

The definitions are in `dictionary.tsv`: word, part of speech, definition. A word that is not in it has no answer.
"""

import re
from functools import lru_cache
from pathlib import Path

from toolformer_core.records import digest_of
from toolformer_core.tools.custom.python_tool import tool
from toolformer_core.tools.library.readings import one_line

_FILE = Path(__file__).with_name("dictionary.tsv")
_ASKED = re.compile(
    r"(?:please )?(?:define|(?:the )?(?:definition|meaning) of|what is the (?:definition|meaning) of|"
    r"what does|what is|what is meant by|look up|word)?:? ?(?:the (?:word|noun|verb|adjective) )?(?:an? )?"
    r"[\"'“”‘’]?(?P<word>[a-z]+(?:-[a-z]+)?)[\"'“”‘’]?(?: mean)?",
    re.IGNORECASE,
)


@lru_cache(maxsize=1)
def definitions() -> dict[str, tuple[str, str]]:
    """Return word -> (part of speech, definition)."""
    rows = (line.split("\t") for line in _FILE.read_text("utf-8").splitlines() if line)
    return {word: (part, meaning) for word, part, meaning in rows}


@tool(
    description="Looks up a single English word in a dictionary and gives its definition.",
    keywords=sorted(definitions()),
    examples=[
        ("What does the word lantern mean?", "lantern"),
        ("How is an orchard defined?", "orchard"),
        ("Give me the definition of drought.", "drought"),
        ("In the story the guests are weary. What does that mean?", "weary"),
    ],
    mock_response="lantern (noun): a lamp in a case with glass sides that can be carried",
    version=digest_of(_FILE.read_bytes()),
)
def dictionary(text: str) -> str | None:
    """Define a word; see the module."""
    match = _ASKED.fullmatch(one_line(text).rstrip("?.! "))
    if match is None:
        raise ValueError("ask for one word, e.g. lantern")
    for word in _forms(match["word"].lower()):
        if word in definitions():
            part, meaning = definitions()[word]
            return f"{word} ({part}): {meaning}"
    return None


def _forms(word: str) -> list[str]:
    """Return a word and what it may be a plural or past form of."""
    forms = [word]
    for ending, instead in (("ies", "y"), ("es", ""), ("s", ""), ("ied", "y"), ("ed", ""), ("ed", "e"), ("ing", "")):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            forms.append(word.removesuffix(ending) + instead)
    return forms
