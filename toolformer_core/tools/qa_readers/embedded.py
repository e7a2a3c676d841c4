"""An extractive reader without a neural network: the sentence that overlaps most with a question, and a span in it.

It looks for spans of the kind that the question word asks for (a person, a place, a date, a number, a description), and
prefers those that are not in the question and close to its words.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolformer_core.records import digest_of
from toolformer_core.tools.base import ToolLimits
from toolformer_core.tools.search.passages import Hit

VERSION = "3"
LEAST_CONFIDENCE = 0.53  # maximises right minus wrong answers on the tuning half (docs/tried.md)
_MAX_WORDS = 8

# A logistic regression of whether the best span holds an accepted answer, fitted on every second question of NQ-open's
# development set (`python benchmarks/tools/qa_precision.py --fit` at commit 17d35ba). Most of those questions had a
# relevant passage; if few do, answers are right less often than predicted here.
WEIGHTS = (1.35, 0.86, 1.49, 1.77, 1.48, -0.45)  # one per measure, in the order of `Evidence`
BIAS = -5.6
_MAX_MARGIN = 1.5  # a larger margin carries no more information
_MAX_RANK = 4

# Chosen one at a time on 700 questions of NQ-open (development set); small changes of any of them matter little.
_COVERED = 3.0  # for a sentence that holds all words of the question
_RETRIEVAL = 2.0  # for the best passage's BM25 score; others in proportion
_LATE = 0.08  # subtracted for each sentence before it in the passage, up to ten
_NEAR = 0.3  # for a question word next to the span
_YEAR = 0.3  # added for a date with its year
_STEM_LETTERS = 4  # letters that a name shares with its adjective (Jamaica, Jamaican); shorter words are not names here


_STOP_WORDS = (
    "a an the of in on at to for from by with about as is are was were be been being am do does did done has have had "
    "and or but not no it its this that these those he she they his her their him them i you we your our my which who "
    "whom whose what when where why how many much often there here into than then also can could will would shall "
    "should may might name called last first time come comes came go goes get gets got s t"
)
_STOP = frozenset(_STOP_WORDS.split())
_DISCOURSE_WORDS = (
    "above according accordingly additionally after against all along already although among another any anyway "
    "apparently around as at because before below besides between beyond both but by consequently conversely "
    "currently despite during each either especially even eventually every except few finally firstly following for "
    "formerly furthermore generally given hence however if in including indeed initially instead lastly later like "
    "likewise many meanwhile more moreover most namely neither nevertheless next nonetheless normally notably now "
    "often on once only originally other others otherwise over overall part perhaps presently previously rather "
    "recently regardless secondly several similarly since so some sometimes soon specifically still subsequently such "
    "the therefore though through throughout thus today together traditionally typically ultimately under unless "
    "unlike until upon usually very well whereas whether while with within without yet"
)
_DISCOURSE = frozenset(_DISCOURSE_WORDS.split())  # capitalised at the start of a sentence
_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DATE = re.compile(
    rf"{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?|\d{{1,2}} {_MONTH}(?:,? \d{{4}})?|{_MONTH},? \d{{4}}"
    r"|\b(?:1[0-9]|20)\d\d(?:s\b|\b(?!,\d))|\b\d{1,4} (?:BC|AD|BCE|CE)\b"
)
_NUMBER_WORDS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand dozen"
)
_NUMBER = re.compile(
    r"[$€£]?\b\d[\d,]*(?:\.\d+)?(?:%| ?percent\b)?(?: (?:hundred|thousand|million|billion|trillion)\b)?"
    rf"|\b(?:{_NUMBER_WORDS.replace(' ', '|')})\b",
    re.IGNORECASE,
)
_UNIT = re.compile(r"[ -](?!(?:and|or|of|in|on|at|to|by|from|with|as|is|was|were|are)\b)[a-z]+(?: (?:long|tall|high))?")
_CAPITAL = r"(?:[A-Z][\w'’.-]*|[A-Z]\.)"
_NAME = re.compile(rf"{_CAPITAL}(?: (?:(?:of|the|de|van|von|da|del|la|le|and|&) )?{_CAPITAL})*")
_COPULA = re.compile(r"\b(?:is|are|was|were|means|became|becomes)\b")
_CLAUSE_END = re.compile(r"[,;:.()]|\b(?:who|which|that|and|but|when|where|while|since|because|in which)\b|\bin \d")
_PHRASE = re.compile(r"(?:(?:a|an|the|its|his|her|their) )?[\w'’-]+(?: [\w'’-]+){0,4}")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b(?:Dr|Mr|Ms|St|vs|Jr|Sr)\.)(?<!\bMrs\.)\s+(?=[\"'“(A-Z0-9])")
_WORD = re.compile(r"[^\W_]+(?:['’](?=[st]\b))?")
_PLACE_BEFORE = re.compile(r"\b(?:in|at|near|from|of|to|on|into|outside|between|across)(?: the)? \Z")
_NOUN_BEFORE = re.compile(r"\b([a-z]+) \Z")
_BY = re.compile(r"\b(?:by|with|actor|actress|singer|author|president|director|king|queen)(?: the)? \Z")


_KINDS = {  # the first one counts
    "when": "when|(?:what|which) (?:year|date|day|month|century)",
    "number": "how (?:many|much|old|long|tall|far|big|high|deep|fast|often|large|heavy)"
    "|what (?:is|was|are|were) the (?:number|population|percentage|age|height|length|price)",
    "where": "where|(?:what|which) (?:city|country|town|state|county|village|river|island|place)",
    "who": "who|whom|whose",
}


def question_kind(question: str) -> str:
    """Return the kind of answer that a question asks for: `who`, `where`, `when`, `number` or `what`."""
    words = " ".join(question.lower().split())
    return next((kind for kind, pattern in _KINDS.items() if re.search(rf"\b(?:{pattern})\b", words)), "what")


@dataclass(frozen=True, slots=True)
class _Span:
    """A possible answer, [start, end) in a sentence, and how well its kind fits the question."""

    start: int
    end: int
    fit: float


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence that shares words with a question or its passage's title."""

    text: str
    score: float
    covered: float  # share of the question's words, by weight
    rank: int  # of its passage among the hits, from 0
    named: float  # see `Evidence.named`


@dataclass(frozen=True, slots=True)
class Evidence:
    """The measures of a span."""

    fit: float  # how well it is of the kind that the question word asks for, 0 to 2
    margin: float  # by how much its score exceeds that of the best other answer; infinite if there is none
    covered: float  # share of the question's words in its sentence and its passage's title, 0 to 1
    named: float  # whether it is about the question's subject: the larger of the share of the title's words in the
    #               question and the share of the question's words in the sentence, 0 to 1
    direct: float  # share of its sentence's words that are in the question or in the span, 0 to 1
    rank: int  # of its passage among the retrieved ones, from 0


def confidence(one: Evidence, weights: Sequence[float] = WEIGHTS, bias: float = BIAS) -> float:
    """Return the probability that the span answers the question, in (0, 1)."""
    margin, rank = min(one.margin, _MAX_MARGIN), min(one.rank, _MAX_RANK)
    measures = (one.fit, margin, one.covered, one.named, one.direct, float(rank))
    return 1 / (1 + math.exp(-bias - sum(w * m for w, m in zip(weights, measures, strict=True))))


@dataclass(frozen=True, slots=True)
class ExtractiveReader:
    """Finds an answer of at most eight words by overlap and patterns."""

    sentences: int = 6  # how many of the best sentences are searched for spans
    least_confidence: float = LEAST_CONFIDENCE  # less probable answers are withheld; 0 gives all

    @property
    def digest(self) -> str:
        parts = (self.sentences, self.least_confidence, *WEIGHTS, BIAS)
        return digest_of(type(self).__name__, VERSION, *map(repr, parts))

    @property
    def limits(self) -> ToolLimits:
        return ToolLimits()

    def load(self) -> None: ...

    def read(self, questions: Sequence[tuple[str, Sequence[Hit]]]) -> list[str | None]:
        """Return for each question the best span of the best sentences, or None if it is not probable enough."""
        found = [self.best(question, hits) for question, hits in questions]
        return [one[0] if one is not None and confidence(one[1]) >= self.least_confidence else None for one in found]

    def best(self, question: str, hits: Sequence[Hit]) -> tuple[str, Evidence] | None:
        """Return the best span of the best sentences, however improbable, and its measures.

        None if no sentence shares a word with the question, or no passage holds a name from the question.
        """
        if not _share_a_name(question, hits):
            return None
        weights = _weights(question)
        kind = question_kind(question)
        ranked = sorted(_sentences(weights, hits), key=lambda sentence: -sentence.score)[: self.sentences]
        scored = [
            (sentence.score + span.fit + _closeness(sentence.text, span, weights), text, span, sentence)
            for sentence in ranked
            for span in _spans(kind, sentence.text, weights)
            if (text := _trim(sentence.text[span.start : span.end]))
        ]
        if not scored:
            return None
        score, text, span, sentence = max(scored, key=lambda candidate: round(candidate[0], 9))
        lower = text.lower()  # an answer that contains another one is the same
        others = [other for other, found, _, _ in scored if lower not in found.lower() and found.lower() not in lower]
        stems, known = _stems(sentence.text), {*weights, *_stems(text)}
        direct = sum(stem in known for stem in stems) / (len(stems) or 1)
        margin = score - max(others, default=-math.inf)
        return text, Evidence(span.fit, margin, sentence.covered, sentence.named, direct, sentence.rank)


def _stem(word: str) -> str:
    """Remove the most common English endings, so that `founded` matches `found`, and `cities` matches `city`."""
    for end, replacement in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(end) and len(word) - len(end) + len(replacement) >= 3:
            return word[: -len(end)] + replacement
    return word


def _stems(text: str) -> list[str]:
    return [_stem(w) for w in _WORD.findall(text.lower()) if w not in _STOP]


def _weights(question: str) -> dict[str, float]:
    """Return the weight of each content word of a question by its stem; names and numbers weigh more."""
    weights: dict[str, float] = {}
    for i, match in enumerate(_WORD.finditer(question)):
        word = match.group()
        if word.lower() not in _STOP:
            is_name_or_number = (word[0].isupper() and i > 0) or word[0].isdigit()
            weights[_stem(word.lower())] = 1.5 if is_name_or_number else 1.0
    return weights


def _share_a_name(question: str, hits: Sequence[Hit]) -> bool:
    """Return whether a passage holds a name from the question, or the question has none; its first word is ignored."""
    words = _WORD.findall(question)[1:]
    names = {w[:_STEM_LETTERS].lower() for w in words if w[0].isupper() and not w.isupper() and len(w) >= _STEM_LETTERS}
    passages = (f"{hit.passage.title} {hit.passage.text}" for hit in hits)
    starts = (w[:_STEM_LETTERS].lower() for passage in passages for w in _WORD.findall(passage))
    return not names or not names.isdisjoint(starts)


def _sentences(weights: dict[str, float], hits: Sequence[Hit]) -> Iterator[_Sentence]:
    """Yield the sentences that hold a word of the question; a passage's title counts for each of its sentences."""
    total = sum(weights.values()) or 1.0
    for rank, hit in enumerate(hits):
        title = set(_stems(hit.passage.title))
        named = sum(stem in weights for stem in title) / (len(title) or 1)
        for number, sentence in enumerate(_SENTENCE.split(hit.passage.text)):
            stems = set(_stems(sentence))
            covered = sum(w * (s in stems or s in title) for s, w in weights.items()) / total
            if covered:
                inside = sum(w * (s in stems) for s, w in weights.items()) / total
                score = _COVERED * covered + _RETRIEVAL * hit.score / hits[0].score - _LATE * min(number, 10)
                yield _Sentence(sentence, score, covered, rank, max(named, inside))


def _spans(kind: str, sentence: str, weights: dict[str, float]) -> Iterator[_Span]:
    if kind == "when":
        for match in _DATE.finditer(sentence):
            if not _repeats(match.group(), weights):
                yield _Span(match.start(), match.end(), 1.0 + _YEAR * bool(re.search(r"\d{4}", match.group())))
    elif kind == "number":
        for match in _NUMBER.finditer(sentence):
            if _DATE.match(sentence, match.start()) or _repeats(match.group(), weights):
                continue
            unit = _UNIT.match(sentence, match.end())
            repeats = unit is not None and bool(unit_words := _stems(unit.group())) and unit_words[0] in weights
            yield _Span(match.start(), unit.end() if unit and not repeats else match.end(), 1.0 + repeats)
    else:
        yield from _names(kind, sentence, weights)
        yield from _copula(kind, sentence, weights)
        if kind == "what":
            yield from _after_relation(sentence, weights)


def _names(kind: str, sentence: str, weights: dict[str, float]) -> Iterator[_Span]:
    for match in _NAME.finditer(sentence):
        start = match.start()
        text = match.group().rstrip(".'’-")
        first, _, rest = text.partition(" ")
        if start == 0 and rest and first.lower() in _DISCOURSE:  # `Although Tora Lind`
            start, text = len(first) + 1, rest
        if _repeats(text, weights) or re.fullmatch(_MONTH, text):
            continue
        before, words = sentence[:start], text.count(" ") + 1
        fit = 0.4
        if kind == "where":
            fit = 1.0 if _PLACE_BEFORE.search(before) else 0.3
        elif kind == "who":
            fit = 0.6 + 0.3 * (2 <= words <= 3) + 0.5 * bool(_BY.search(before))
            fit -= 0.5 * bool(_PLACE_BEFORE.search(before))
        if (noun := _NOUN_BEFORE.search(before)) and _stem(noun.group(1)) in weights:  # `the river Sella`
            fit = max(fit, 1.0)
        yield _Span(start, start + len(text), fit)


def _copula(kind: str, sentence: str, weights: dict[str, float]) -> Iterator[_Span]:
    """Yield, for `The capital of X is Y` and `Y is the capital of X`, the side that the question does not hold."""
    for match in _COPULA.finditer(sentence):
        left, right = sentence[: match.start()], sentence[match.end() :]
        clause = re.split(r"[,;(]", left)[-1]
        stop = _CLAUSE_END.search(right)
        phrase = right[: stop.start() if stop else len(right)]
        on_left, on_right = (sum(weights.get(s, 0.0) for s in set(_stems(part))) for part in (clause, phrase))
        if on_left > on_right and phrase.strip() and not _repeats(phrase, weights):
            start = match.end() + _new_from(phrase, weights)
            fit = (0.9 if kind == "what" else 0.3) * (on_left / (sum(weights.values()) or 1.0) + 0.3)
            yield _Span(start, match.end() + len(phrase.rstrip()), fit)
        elif on_right > on_left and clause.strip() and not _repeats(clause, weights):
            start = match.start() - len(clause.lstrip())
            fit = (0.8 if kind == "what" else 0.4) * (on_right / (sum(weights.values()) or 1.0) + 0.3)
            yield _Span(start, start + len(clause.strip()), fit)


def _new_from(phrase: str, weights: dict[str, float]) -> int:
    """Return where a phrase that starts with words of the question (`known for blue glass`) becomes new."""
    repeats = False
    for match in _WORD.finditer(phrase):
        word = match.group().lower()
        if _stem(word) in weights:
            repeats = True
        elif not repeats or word not in _STOP:
            return match.start()
    return len(phrase) - len(phrase.lstrip())


def _after_relation(sentence: str, weights: dict[str, float]) -> Iterator[_Span]:
    """Yield the words after the last matched word of the question, as in `X makes candles`."""
    matched = [m for m in _WORD.finditer(sentence) if _stem(m.group().lower()) in weights]
    if matched and (phrase := _PHRASE.match(sentence, matched[-1].end() + 1)):
        stop = _CLAUSE_END.search(phrase.group())
        text = phrase.group()[: stop.start()].rstrip() if stop else phrase.group()
        if text and _stems(text):
            before = set(_stems(sentence[: phrase.start()]))
            fit = 0.45 + 0.5 * all(stem in before for stem in weights)
            content = next(word for word in _WORD.finditer(text) if word.group().lower() not in _STOP)
            start = phrase.start() + content.start()  # skips the `for` of `known for`
            yield _Span(start, phrase.start() + len(text), fit)


def _repeats(text: str, weights: dict[str, float]) -> bool:
    """Return whether more than half of a span's words are the question's, or it has no content words."""
    stems = _stems(text)
    return not stems or sum(s in weights for s in stems) * 2 > len(stems)


def _closeness(sentence: str, span: _Span, weights: dict[str, float]) -> float:
    """Return how close the question's words are to a span: the sum of weight / (1 + words between / 4)."""
    near: dict[str, float] = {}
    for match in _WORD.finditer(sentence):
        stem = _stem(match.group().lower())
        if stem in weights and not span.start <= match.start() < span.end:
            before = match.end() <= span.start
            gap = sentence[match.end() : span.start] if before else sentence[span.end : match.start()]
            near[stem] = max(near.get(stem, 0.0), weights[stem] / (1 + gap.count(" ") / 4))
    return _NEAR * sum(near.values())


def _trim(text: str) -> str | None:
    """Return a span without its article and cut to eight words; None if it consists of function words."""
    words = re.sub(r"\A(?:(?:a|an|the) )", "", text.strip(" ,;:.\"'“”()"), flags=re.IGNORECASE).split()[:_MAX_WORDS]
    plain_words = _WORD.findall(" ".join(words).lower())
    return " ".join(words) if any(word not in _STOP and word not in _DISCOURSE for word in plain_words) else None
