"""Which items of benchmarks stand in a text that a model is to learn from, or has learnt from.

An item does if `ngram` words of its question or of an answer do, in a row, or all words of a shorter question (see
`shared_words`). The paragraph after a question and the instruction in front of it do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolformer_core.config import NGRAM
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.prompts import question_in
from toolformer_core.shared_words import SharedWords, words_in


@dataclass(frozen=True, slots=True)
class ItemTexts:
    benchmark: str
    item_id: str
    texts: tuple[str, ...]

    @classmethod
    def of(cls, benchmark: str, form: str, item: Item, ngram: int = NGRAM) -> ItemTexts:
        answers = (answer for answer in item.answers if len(words_in(answer)) >= ngram)
        return cls(benchmark, item.item_id, (question_in(form, item.prompt), *answers))


@dataclass(frozen=True, slots=True)
class FoundItem:
    benchmark: str
    item_id: str
    shared: str  # a stretch of words that both have, as they stand in the text
    start: int  # where it stands there, in characters
    end: int


class ItemFinder:
    def __init__(self, items: Iterable[ItemTexts], ngram: int = NGRAM) -> None:
        owned = [(item, text) for item in items for text in item.texts]
        self._owners = [item for item, _ in owned]
        self._shared = SharedWords([text for _, text in owned], ngram)

    def find(self, text: str) -> list[FoundItem]:
        """Return the items that stand in a text, in the order in which they were given, each once."""
        found: dict[tuple[str, str], FoundItem] = {}
        for one in self.stretches(text):
            found.setdefault((one.benchmark, one.item_id), one)
        return list(found.values())

    def stretches(self, text: str) -> list[FoundItem]:
        """Return the items that stand in a text, in that order, each with every stretch that the text shares."""
        found = ((self._owners[span.item], span) for span in self._shared.find(text))
        return [FoundItem(o.benchmark, o.item_id, text[s.start : s.end], s.start, s.end) for o, s in found]
