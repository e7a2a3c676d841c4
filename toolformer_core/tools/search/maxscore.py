"""Finds the best passages of a large index without scoring every passage that holds a frequent word.

This is MaxScore (Turtle and Flood, 1995) put around tantivy. The terms of a query (a word in a field) are divided: a
passage must hold one of the essential ones, the rarest at first, and the others only add to its score. More become
essential until the bounds of what BM25 lets the others add come to less than the lowest score found. It is exact.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolformer_core.tools.search.passages import FIELDS

DIGITS = 4  # of a score; the last bits of a sum depend on the order in which it is added
_K1, _B = 1.2, 0.75  # of tantivy's BM25
_LENGTH = 7 / 8  # tantivy stores lengths rounded down, by less than an eighth
_SAFETY = 1 - 1e-4  # bounds and scores are rounded differently
_FIRST_POSTINGS, _GROWTH = 1_000, 8  # passages that the essential terms occur in, at first and in each further search
_CACHED_TERMS = 50_000
_FREQUENT = 1_000  # passages with a term from which its highest score is looked up once, instead of bounded

Best = tuple[float, int, Any]  # a score, the passage's row and its address in the index


@dataclass(frozen=True, slots=True)
class _Term:
    bound: float  # the most it can add to a score
    postings: int  # passages that hold it
    query: Any


class MaxScore:
    """Searches one opened index of tantivy, whose fast field `row` numbers the passages. Thread-safe."""

    def __init__(self, index: Any, searcher: Any) -> None:
        import tantivy

        self._index, self.searcher = index, searcher
        self._schema = index.schema
        words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        # what `TOKENIZER` is
        for step in (tantivy.Filter.remove_long(40), tantivy.Filter.lowercase(), tantivy.Filter.stemmer("english")):
            words = words.filter(step)
        self._analyzer = words.build()
        self._query, self._occur = tantivy.Query, tantivy.Occur
        self._postings = lru_cache(maxsize=_CACHED_TERMS)(searcher.doc_freq)
        self._highest = lru_cache(maxsize=_CACHED_TERMS)(self._highest_score)
        self._saturation: dict[str, float] = {}  # by field

    def best(self, words: Sequence[str], boosts: Mapping[str, float], limit: int) -> list[Best]:
        """Return the best passages, best first; of equally good ones (in four decimals) those with the lowest rows.

        `words` are letters and digits only; `boosts` the weights of fields, 1 for those that are not named.
        """
        terms = self._terms(words, boosts)
        fetched = limit + 1
        hits = self._top(terms, limit, fetched)
        # tantivy breaks ties by the segment, so all hits that share the last score must be seen
        while len(hits) == fetched and _rounded(hits[-1]) == _rounded(hits[limit - 1]):
            fetched *= 4
            hits = self._top(terms, limit, fetched)
        rows = self.searcher.fast_field_values("row", [address for _, address in hits])
        best = [(_rounded(hit), int(row), hit[1]) for hit, row in zip(hits, rows, strict=True)]
        return sorted(best, key=lambda hit: (-hit[0], hit[1]))[:limit]

    def _terms(self, words: Sequence[str], boosts: Mapping[str, float]) -> list[_Term]:
        terms = []
        for word in words:
            tokens = self._analyzer.analyze(word)
            if len(tokens) > 1:  # tantivy's parser makes a phrase of it, which has no simple bound
                query, _ = self._index.parse_query_lenient(word, list(FIELDS), field_boosts=dict(boosts))
                terms.append(_Term(math.inf, 1, query))
            elif tokens:
                found = [(field, postings) for field in FIELDS if (postings := self._postings(field, tokens[0]))]
                terms += [self._term(field, tokens[0], boosts.get(field, 1.0), postings) for field, postings in found]
        return terms

    def _term(self, field: str, token: str, boost: float, postings: int) -> _Term:
        query = self._query.term_query(self._schema, field, token)
        if field not in self._saturation:
            self._saturation[field] = self._most_saturated(query)
        idf = math.log1p((self.searcher.num_docs - postings + 0.5) / (postings + 0.5))
        bound = idf * (_K1 + 1) * self._saturation[field]
        if postings >= _FREQUENT:
            bound = min(bound, self._highest(field, token) / _SAFETY)
        bound *= boost
        return _Term(bound, postings, query if boost == 1.0 else self._query.boost_query(query, boost))

    def _highest_score(self, field: str, token: str) -> float:
        """Return the most that a term adds to any score: tighter than what BM25 allows, and dearer."""
        query = self._query.term_query(self._schema, field, token)
        return float(self.searcher.search(query, 1, count=False).hits[0][0])

    def _most_saturated(self, query: Any) -> float:
        """Return a bound of BM25's f / (f + k1 (1 - b + b l / average)) in the field of a term that occurs.

        A word occurs at most as often as the field is long, f <= l, so this is less than 1 / (1 + k1 b / average).
        """
        _, address = self.searcher.search(query, 1, count=False).hits[0]
        average = _average_length(query.explain(self.searcher, address).to_json())
        return 1 / (1 + _K1 * _B * _LENGTH / average)

    def _top(self, terms: Sequence[_Term], limit: int, fetched: int) -> list[tuple[float, Any]]:
        """Return scores and addresses, best first; `limit` are exact, and those as good as the last of them."""
        hits: list[tuple[float, Any]] = []
        rarest = sorted(terms, key=lambda term: term.postings)
        lowest, allowed, number, exact = 0.0, _FIRST_POSTINGS, 0, not terms
        while not exact:
            essential, optional = _divided(terms, lowest)
            exact = _postings(essential) <= allowed
            if not exact:  # a quicker search first: it raises the lowest score, so that more terms become optional
                number = max(number + 1, sum(_postings(rarest[: n + 1]) <= allowed for n in range(len(rarest))))
                essential, optional = rarest[:number], rarest[number:]
            hits = self.searcher.search(self._both(essential, optional), fetched, count=False).hits
            lowest = hits[limit - 1][0] * _SAFETY - 10**-DIGITS if len(hits) >= limit else 0.0
            exact = exact or not optional or sum(term.bound for term in optional) < lowest
            allowed = max(allowed, _postings(essential)) * _GROWTH
        return hits

    def _both(self, essential: Sequence[_Term], optional: Sequence[_Term]) -> Any:
        """Return the query for passages that hold one of the essential terms, scored by all terms."""
        should, must = self._occur.Should, self._occur.Must
        queries = [(should, term.query) for term in essential]
        query = self._query.boolean_query(queries) if len(queries) > 1 else queries[0][1]
        # Nested, as each optional term alone is skipped through; a union of them would be read in whole.
        for term in optional:
            query = self._query.boolean_query([(must, query), (should, term.query)])
        return query


def _divided(terms: Sequence[_Term], lowest: float) -> tuple[list[_Term], list[_Term]]:
    """Return the essential and the optional terms: the bounds of the optional ones add up to less than a score.

    Those become optional first that spare the most postings for what they may add.
    """
    essential, optional, room = list[_Term](), list[_Term](), lowest
    for term in sorted(terms, key=lambda term: term.bound / term.postings):
        if term.bound < room:
            optional.append(term)
            room -= term.bound
        else:
            essential.append(term)
    return essential, optional


def _postings(terms: Sequence[_Term]) -> int:
    return sum(term.postings for term in terms)


def _rounded(hit: tuple[float, Any]) -> float:
    return round(float(hit[0]), DIGITS)


def _average_length(explanation: str) -> float:
    open_parts = [json.loads(explanation)]
    while open_parts:
        part = open_parts.pop()
        if part["description"].startswith("avgdl"):
            return float(part["value"])
        open_parts += part.get("details", ())
    raise ValueError("tantivy's explanation names no average length")
