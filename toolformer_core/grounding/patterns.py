"""The patterns of answers (GEAR §3.2): what kinds of word tokens an answer is made of, and how common each kind is.

The standard patterns are ours, after the paper's examples ("lächeln" is english, non_ascii, english). Rare patterns
weigh more: a match of pattern j adds log 1/P_j. `AUTHORS_PATTERNS` are those of the authors' code, with its rule: each
pattern is counted by itself, so that one stretch of text can count in several (2024-05-02 is a time, three numbers and
two symbols); the preliminary answer is read in lower case with number words as digits; a response that says nothing,
such as "unknown", is empty; and the calculator's responses count numbers alone.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import regex

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import digest_of

_NUMBER = r"(?<![\p{L}\p{N}])[-+\u2212]?(?:\p{Nd}{1,3}(?:[,\u066c]\p{Nd}{3})+|\p{Nd}+)(?:[.\u066b]\p{Nd}+)?"
_URL = r"(?i:https?://|www\.)[^\s<>\"\]]+"
_MOVEMENT = (
    r"(?i:\b(?:(?:move|go|step)\s+)?(?:forwards?|backwards?)\b|\bturn\s+(?:left|right|around)\b|\b(?:grab|drop)\b)"
)

TIMEOUT_S = 10.0  # for one text


@dataclass(frozen=True, slots=True)
class Pattern:
    name: str
    expression: str  # regular, of the package `regex`, with Unicode properties; every match counts once
    prior: float  # P_j, how likely a token of a text has this pattern, in (0, 1]

    def __post_init__(self) -> None:
        if not 0 < self.prior <= 1:
            raise UsageError(f"the prior of the pattern {self.name} must lie in (0, 1], got {self.prior!r}")
        try:
            matches_nothing = regex.compile(self.expression).fullmatch("") is not None
        except regex.error as exc:
            raise UsageError(f"the pattern {self.name} is not a regular expression: {exc}") from exc
        if matches_nothing:
            raise UsageError(f"the pattern {self.name} ({self.expression!r}) matches the empty text")


@dataclass(frozen=True, slots=True)
class PatternSet:
    """The patterns S, in order of precedence: what an earlier pattern has matched, a later one does not see."""

    name: str
    patterns: tuple[Pattern, ...]
    authors_rule: bool = False  # whether texts are counted as the authors' code does, without precedence

    def __post_init__(self) -> None:
        names = [pattern.name for pattern in self.patterns]
        if not names:
            raise UsageError(f"the pattern set {self.name} is empty")
        if len(set(names)) < len(names):
            raise UsageError(f"two patterns of the set {self.name} have one name: {', '.join(sorted(names))}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pattern.name for pattern in self.patterns)

    @property
    def digest(self) -> str:
        """Digest of expressions, priors and rule."""
        kind = "patterns, the authors' rule" if self.authors_rule else "patterns"
        return digest_of(kind, *(f"{p.name}\n{p.prior!r}\n{p.expression}" for p in self.patterns))

    @property
    def weights(self) -> tuple[float, ...]:
        """log(1 / P_j) per pattern, natural log."""
        return tuple(math.log(1 / pattern.prior) for pattern in self.patterns)

    def counts(self, text: str) -> tuple[int, ...]:
        """Return C_j: how often each pattern occurs; a `UsageError` if a search takes more than `TIMEOUT_S`."""
        expressions = tuple(pattern.expression for pattern in self.patterns)
        try:
            if self.authors_rule:
                return tuple(sum(1 for _ in regex.finditer(one, text, timeout=TIMEOUT_S)) for one in expressions)
            found = [0] * len(self.patterns)
            for match in _matcher(expressions).finditer(text, timeout=TIMEOUT_S):
                found[int(str(match.lastgroup)[1:])] += 1
        except TimeoutError:
            raise UsageError(
                f"the patterns of {self.name} take more than {TIMEOUT_S:g} s for one text; write them without "
                "repetitions within repetitions"
            ) from None
        return tuple(found)

    def answer_counts(self, answer: str) -> tuple[int, ...]:
        """Return C_j of a preliminary answer."""
        return self.counts(_with_digits(answer.strip().lower()) if self.authors_rule else answer)

    def response_counts(self, response: str, tool: str) -> tuple[int, ...]:
        """Return C_j of a response of the tool with this key."""
        if not self.authors_rule:
            return self.counts(response)
        only = _OUTPUT_PATTERNS.get(tool)
        if only is None:
            return self.counts("" if response.strip().lower() in _EMPTY_RESPONSES else response)
        return tuple(n if name == only else 0 for name, n in zip(self.names, self.counts(response), strict=True))


@lru_cache(maxsize=16)
def _matcher(expressions: Sequence[str]) -> Any:
    """Return one expression that tries the patterns in their order; the group's name tells which one matched."""
    return regex.compile("|".join(f"(?P<p{i}>{expression})" for i, expression in enumerate(expressions)))


_EMPTY_RESPONSES = ("", "unknown", "none", "no answer")

# Key of a tool -> the only pattern that counts in its responses. The authors' time zones, sleep and robot have one as
# well, but our tools of these names answer in other words.
_OUTPUT_PATTERNS: Mapping[str, str] = dict.fromkeys(("calculator", "logarithm", "power"), "number")

_NUMBER_WORDS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety".split()
)
_NO_NUMBER_ALONE = frozenset("zero hundred thousand million billion trillion".split())


def _with_digits(text: str) -> str:
    """Return a text of lower case with 1 for each number in words, as the authors' code reads a preliminary answer.

    Commas, full stops and colons go unless a digit is beside them; so does a 0 ("zero", "hundred") unless it is last.
    """
    words = re.split(r"\s|(?<!\d)[,.:](?!\d)", text)
    out: list[str] = []
    read = 0
    for is_number, group in groupby(words, key=(_NUMBER_WORDS | _NO_NUMBER_ALONE).__contains__):
        run = list(group)
        read += len(run)
        if not is_number:
            out += run
        elif read == len(words) or not _NUMBER_WORDS.isdisjoint(run):
            out.append("1")
    return " ".join(out)


_WORD = r"\p{L}\p{N}_"  # what Python's `re`, with which the authors count, takes for a word character
_TIME = (
    rf"(?<![{_WORD}])(?:\p{{Nd}}{{4}}-\p{{Nd}}{{2}}-\p{{Nd}}{{2}}|\p{{Nd}}{{2}}:\p{{Nd}}{{2}}(?::\p{{Nd}}{{2}})?"
    rf"|\p{{Nd}}{{2}}/\p{{Nd}}{{2}}/\p{{Nd}}{{4}})(?![{_WORD}])"
)

AUTHORS_PATTERNS = PatternSet(
    "authors",
    (
        Pattern("symbol", rf"[^{_WORD}\s\x1c-\x1f]+", 0.02),
        Pattern("number", r"[-+]?(?:\p{Nd}*\.)?\p{Nd}+", 0.02),
        Pattern("other_script", r"[^\x00-\x7f]", 0.15),
        Pattern("english", "[A-Za-z]+", 0.75),
        Pattern("sleep", r"sleep for (?:[0-9]*\.)?[0-9]+ seconds", 0.02),
        Pattern("move", rf"(?im:^(?=.*(?<![{_WORD}])robot(?![{_WORD}])).*(?<![{_WORD}])moving(?![{_WORD}]))", 0.02),
        Pattern("time", _TIME, 0.02),
    ),
    authors_rule=True,
)

STANDARD_PATTERNS = PatternSet(
    "standard",
    (
        Pattern("url", _URL, 0.02),
        Pattern("movement", _MOVEMENT, 0.02),  # a step of a robot: forward, turn left, ...
        Pattern("number", _NUMBER, 0.02),  # with its sign, separators and decimals
        Pattern("english", "[A-Za-z]+", 0.75),
        Pattern("non_ascii", r"[^\x00-\x7f\s]+", 0.15),
        Pattern("symbol", r"[!-/:-@\[-`{-~]", 0.02),
    ),
)

PATTERN_SETS: Mapping[str, PatternSet] = {s.name: s for s in (STANDARD_PATTERNS, AUTHORS_PATTERNS)}


def patterns_named(name: str) -> PatternSet:
    """Return a pattern set: `standard` or `authors`; an UnknownNameError for any other name."""
    if name not in PATTERN_SETS:
        raise UnknownNameError("pattern set", name, PATTERN_SETS)
    return PATTERN_SETS[name]
