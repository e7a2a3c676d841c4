"""QA: answers a question briefly, by retrieving passages and reading them (the paper uses Atlas for this).

Retrieval uses the same `PassageSearch` as WikiSearch. Reading is behind the protocol `Reader`, so a neural reader can
replace the extractive one. The tool itself knows neither BM25 nor how a span is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of
from toolformer_core.tools.passages import Hit, PassageSearch, query_words
from toolformer_core.tools.reader import ExtractiveReader, Reader

__all__ = ["QA"]

VERSION = "1"
_TITLE_BOOST = 1.0


@dataclass(frozen=True, slots=True)
class QA:
    """Answers a question from passages.

    Failures: `empty_input` (no word in it), `no_result` (no passage found), `no_answer` (no span in the passages is
    probable enough, or no passage holds a name from the question).
    """

    index: PassageSearch
    reader: Reader = field(default_factory=ExtractiveReader)
    passages: int = 5  # read per question
    key: str = "qa"
    name: str = "QA"
    description: str = "Answers a factual question in a few words."

    @property
    def fingerprint(self) -> str:
        return digest_of(type(self).__name__, VERSION, str(self.passages), self.index.digest, self.reader.digest)

    def load(self) -> None:
        """Build or open the index."""
        self.index.load()

    def hits(self, question: str) -> list[Hit]:
        """Return the passages to read for a question, best first."""
        return self.index.search(question, limit=self.passages, title_boost=_TITLE_BOOST)

    def run(self, input: str, context: str = "") -> ToolResult:
        """Answer one question; the context is ignored."""
        if not query_words(input):
            return ToolFailure("empty_input")
        hits = self.hits(input)
        if not hits:
            return ToolFailure("no_result")
        answer = self.reader.read(input, hits)
        return ToolResponse(answer) if answer and answer.strip() else ToolFailure("no_answer")
