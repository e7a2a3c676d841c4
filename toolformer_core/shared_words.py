"""Which items of benchmarks share words in a row with a text: such a text shows a model its exam.

Case, accents' encoding, punctuation and spaces do not count. A text shares an item if `ngram` words of it stand in the
text in a row, or, of a shorter item, all its words; one of fewer than `MIN_WORDS` words is not looked for.
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import regex
from numpy.typing import NDArray

from toolformer_core.config import MIN_WORDS, NGRAM

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_FACTOR = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2 ** 64
_MODULUS = 1 << 64
_INVERSE = pow(_FACTOR, -1, _MODULUS)


@dataclass(frozen=True, slots=True)
class SharedSpan:
    item: int  # its number, in the order in which items were given
    start: int  # offsets in characters
    end: int


class SharedWords:
    """Finds what benchmarks share with texts; of an item, question and answers are one string."""

    def __init__(self, items: Iterable[str], ngram: int = NGRAM) -> None:
        self._words: list[list[str]] = []
        self.short: list[int] = []  # numbers of the items that are not looked for, as they have too few words
        found: dict[int, dict[int, list[tuple[int, int]]]] = {}  # length -> digest of words -> (item, first word)
        for item, text in enumerate(items):
            words = words_in(text)
            self._words.append(words)
            length = min(ngram, len(words))
            if length < min(MIN_WORDS, ngram):
                self.short.append(item)
                continue
            of_length = found.setdefault(length, {})
            for first, digest in enumerate(_digests(words, length).tolist()):
                of_length.setdefault(digest, []).append((item, first))
        self._found = {
            length: (np.sort(np.fromiter(digests, np.uint64, len(digests))), digests)
            for length, digests in sorted(found.items())
        }

    def find(self, text: str) -> list[SharedSpan]:
        """Return what items share with a text, by item and place; stretches that overlap or touch are one."""
        placed = _words_of(text)
        words = [word for word, _, _ in placed]
        spans: set[tuple[int, int, int]] = set()  # item, first word, word after the last
        for length, (known, digests) in self._found.items():
            own = _digests(words, length)
            places = np.minimum(np.searchsorted(known, own), len(known) - 1)
            for at in np.flatnonzero(known[places] == own).tolist():
                for item, first in digests[int(own[at])]:
                    if self._words[item][first : first + length] == words[at : at + length]:
                        spans.add((item, at, at + length))
        joined: list[list[int]] = []
        for item, first, after in sorted(spans):
            if joined and joined[-1][0] == item and first <= joined[-1][2]:
                joined[-1][2] = after
            else:
                joined.append([item, first, after])
        return [SharedSpan(item, placed[first][1], placed[after - 1][2]) for item, first, after in joined]


def words_in(text: str) -> list[str]:
    return [word for word, _, _ in _words_of(text)]


def _words_of(text: str) -> list[tuple[str, int, int]]:
    return [
        (unicodedata.normalize("NFKC", match[0]).casefold(), match.start(), match.end())
        for match in _WORD.finditer(text)
    ]


def _digests(words: list[str], length: int) -> NDArray[np.uint64]:
    """Return sum h_j f^j modulo 2^64 of each run of words of a length, from sums over the text.  (n - length + 1,)"""
    count = len(words) - length + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    powers, inverse = (np.full(size, factor, np.uint64) for size, factor in ((len(words), _FACTOR), (count, _INVERSE)))
    powers[0] = inverse[0] = 1
    hashes = np.array([hash(word) % _MODULUS for word in words], np.uint64)
    sums = np.zeros(len(words) + 1, np.uint64)
    np.add.accumulate(hashes * np.multiply.accumulate(powers), out=sums[1:])
    return (sums[length:] - sums[:count]) * np.multiply.accumulate(inverse)
