"""QA: answers a question briefly, by retrieving passages and reading them (the paper uses Atlas for this).

A reader says how it may be called: a model is fastest with many questions at a time, a server with many requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of
from toolformer_core.tools.base import Engine, ToolLimits, ttl_of
from toolformer_core.tools.qa_readers.embedded import ExtractiveReader
from toolformer_core.tools.search.passages import Hit, PassageSearch, query_words

VERSION = "1"
_TITLE_BOOST = 1.0

Reading: TypeAlias = str | ToolFailure | None  # an answer; why none could be looked for; None: the passages hold none


class Reader(Engine, Protocol):
    """Anything that finds short answers in passages, e.g. a neural reader."""

    def read(self, questions: Sequence[tuple[str, Sequence[Hit]]]) -> Sequence[Reading]:
        """Return a short answer to each question from its passages (best first), in order.

        None if the passages hold none, a failure if it cannot read; a `ToolformerError` if it can read nothing at all.
        """


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
    description: str = "Takes a question about a fact and returns a short answer, such as a name, a place or a year."

    @property
    def fingerprint(self) -> str:
        return digest_of(type(self).__name__, VERSION, str(self.passages), self.index.digest, self.reader.digest)

    @property
    def limits(self) -> ToolLimits:
        return self.reader.limits

    @property
    def ttl_s(self) -> float | None:
        return ttl_of(self.reader)

    def load(self) -> None:
        self.index.load()
        self.reader.load()

    def hits(self, question: str) -> list[Hit]:
        """Return the passages to read for a question, best first."""
        return self.index.search(question, limit=self.passages, title_boost=_TITLE_BOOST)

    def run(self, input: str, context: str = "") -> ToolResult:
        return self.run_batch([(input, context)])[0]

    def run_batch(self, questions: Sequence[tuple[str, str]]) -> list[ToolResult]:
        texts = [question for question, _ in questions]
        results: list[ToolResult] = [ToolFailure("no_result" if query_words(q) else "empty_input") for q in texts]
        found = {n: hits for n, q in enumerate(texts) if query_words(q) and (hits := self.hits(q))}
        readings = self.reader.read([(texts[n], hits) for n, hits in found.items()]) if found else ()
        for n, reading in zip(found, readings, strict=True):
            results[n] = _result(reading)
        return results


def _result(reading: Reading) -> ToolResult:
    if isinstance(reading, ToolFailure):
        return reading
    return ToolResponse(reading.strip()) if reading and reading.strip() else ToolFailure("no_answer")
