"""WikiSearch: returns the best passage for a search term, by BM25, as `Title > Section > text`; the model reads it."""

import re
from dataclasses import dataclass

from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of
from toolformer_core.tools.search.passages import PassageSearch, query_words

VERSION = "1"
_SENTENCE_END = re.compile(r"[.!?][\"'”’)]*(?=\s|\Z)")


def snippet(text: str, max_chars: int) -> str:
    """Return the longest start of a text that ends at the end of a sentence, in at most `max_chars` characters.

    If the first sentence is longer, it is cut at a word and ends with `...`.
    """
    if len(text) <= max_chars:
        return text
    ends = [m.end() for m in _SENTENCE_END.finditer(text, 0, max_chars + 1) if m.end() <= max_chars]
    # A very short first "sentence" is usually an abbreviation (`Dr.`, `J. R.`), so one must take half the space.
    if ends and (ends[-1] * 2 >= max_chars or len(ends) > 1):
        return text[: ends[-1]]
    cut = text[: max(max_chars - 3, 0)]
    if not text[len(cut)].isspace() and " " in cut:
        cut = cut[: cut.rindex(" ")]
    return cut.rstrip(" ,;:") + "..."


@dataclass(frozen=True, slots=True)
class WikiSearch:
    """Searches passages. Failures: `empty_input` (no word in it), `no_result`."""

    index: PassageSearch
    max_chars: int = 300  # of the passage's text; title and section are not counted
    key: str = "wikisearch"
    name: str = "WikiSearch"
    description: str = "Searches an encyclopedia for a term and returns the passage of an article that fits it best."

    @property
    def fingerprint(self) -> str:
        return digest_of(type(self).__name__, VERSION, str(self.max_chars), self.index.digest)

    def load(self) -> None:
        self.index.load()

    def run(self, input: str, context: str = "") -> ToolResult:
        if not query_words(input):
            return ToolFailure("empty_input")
        hits = self.index.search(input, limit=1)
        if not hits:
            return ToolFailure("no_result")
        passage = hits[0].passage
        parts = (passage.title, passage.section, snippet(passage.text, self.max_chars))
        text = " > ".join(part for part in parts if part)
        return ToolResponse(text) if text else ToolFailure("no_result", "the passage is empty")
