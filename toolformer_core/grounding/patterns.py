"""The patterns of answers (GEAR §3.2): what kinds of word tokens an answer is made of, and how common each kind is.

    pattern     one match of                                           prior P_j
    english     a run of the letters a to z, A to Z                     0.75
    non_ascii   a run of letters and signs outside ASCII                0.15
    number      a number, with its sign, separators and decimals        0.02
    symbol      one ASCII mark of punctuation or arithmetic             0.02
    url         a web address                                           0.02
    movement    a step of a robot: forward, turn left, ...              0.02

These are the authors' classes and priors ("lächeln" is english, non_ascii, english). They are written for English: all
other scripts are one class. `SCRIPT_PATTERNS` tell scripts apart by Unicode's properties, so that a Chinese answer is
not like an Arabic one, and "lächeln" is one Latin word. Rare patterns weigh more: a match of pattern j adds log 1/P_j.

A pattern set is a value: it can be read from JSON, its priors can be estimated from a corpus, and every score names the
set's digest. This module knows no tools and no scores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import digest_of

__all__ = [
    "PATTERN_SETS",
    "SCRIPT_PATTERNS",
    "STANDARD_PATTERNS",
    "Pattern",
    "PatternSet",
    "load_patterns",
    "with_estimated_priors",
]

_NUMBER = r"(?<![\p{L}\p{N}])[-+\u2212]?(?:\p{Nd}{1,3}(?:[,\u066c]\p{Nd}{3})+|\p{Nd}+)(?:[.\u066b]\p{Nd}+)?"
_URL = r"(?i:https?://|www\.)[^\s<>\"\]]+"
_MOVEMENT = (
    r"(?i:\b(?:(?:move|go|step)\s+)?(?:forwards?|backwards?)\b|\bturn\s+(?:left|right|around)\b|\b(?:grab|drop)\b)"
)

TIMEOUT_S = 10.0  # for one text


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of word token.

    Args:
        name: for people and tables.
        expression: a regular expression (of the package `regex`, with Unicode properties); every match counts once.
        prior: P_j, how likely a token of a text has this pattern, in (0, 1].
    """

    name: str
    expression: str
    prior: float

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("a pattern has no name")
        if isinstance(self.prior, bool) or not isinstance(self.prior, (int, float)) or not 0 < self.prior <= 1:
            raise UsageError(f"the prior of the pattern {self.name} must lie in (0, 1], got {self.prior!r}")
        try:
            matches_nothing = regex.compile(self.expression).fullmatch("") is not None
        except regex.error as exc:
            raise UsageError(f"the pattern {self.name} is not a regular expression: {exc}") from exc
        if matches_nothing:
            raise UsageError(f"the pattern {self.name} ({self.expression!r}) matches the empty text")


@dataclass(frozen=True, slots=True)
class PatternSet:
    """The patterns S, in order of precedence: what an earlier pattern has matched, a later one does not see.

    Raises:
        UsageError: there is no pattern, or two have one name.
    """

    name: str
    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        names = [pattern.name for pattern in self.patterns]
        if not names:
            raise UsageError(f"the pattern set {self.name} is empty")
        if len(set(names)) < len(names):
            raise UsageError(f"two patterns of the set {self.name} have one name: {', '.join(sorted(names))}")

    def __len__(self) -> int:
        return len(self.patterns)

    @property
    def names(self) -> tuple[str, ...]:
        """The patterns' names, in order."""
        return tuple(pattern.name for pattern in self.patterns)

    @property
    def digest(self) -> str:
        """Digest of expressions and priors."""
        return digest_of("patterns", *(f"{p.name}\n{p.prior!r}\n{p.expression}" for p in self.patterns))

    @property
    def weights(self) -> tuple[float, ...]:
        """log(1 / P_j) per pattern, natural log."""
        return tuple(math.log(1 / pattern.prior) for pattern in self.patterns)

    def counts(self, text: str) -> tuple[int, ...]:
        """Return C_j: how often each pattern occurs in a text; all 0 if none does.

        Raises:
            UsageError: they take more than `TIMEOUT_S` for it.
        """
        found = [0] * len(self.patterns)
        matcher = _matcher(tuple(pattern.expression for pattern in self.patterns))
        try:
            for match in matcher.finditer(text, timeout=TIMEOUT_S):
                found[int(str(match.lastgroup)[1:])] += 1
        except TimeoutError:
            raise UsageError(
                f"the patterns of {self.name} take more than {TIMEOUT_S:g} s for one text; write them without "
                "repetitions within repetitions"
            ) from None
        return tuple(found)

    def to_json(self) -> str:
        """Return the set as JSON, as `load_patterns` reads it."""
        rows = [{"name": p.name, "expression": p.expression, "prior": p.prior} for p in self.patterns]
        return json.dumps({"name": self.name, "patterns": rows}, ensure_ascii=False, indent=2)


@lru_cache(maxsize=16)
def _matcher(expressions: Sequence[str]) -> Any:
    """Return one expression that tries the patterns in their order; the group's name tells which one matched."""
    return regex.compile("|".join(f"(?P<p{i}>{expression})" for i, expression in enumerate(expressions)))


STANDARD_PATTERNS = PatternSet(
    "standard",
    (
        Pattern("url", _URL, 0.02),
        Pattern("movement", _MOVEMENT, 0.02),
        Pattern("number", _NUMBER, 0.02),
        Pattern("english", "[A-Za-z]+", 0.75),
        Pattern("non_ascii", r"[^\x00-\x7f\s]+", 0.15),
        Pattern("symbol", r"[!-/:-@\[-`{-~]", 0.02),
    ),
)

SCRIPT_PATTERNS = PatternSet(
    "scripts",
    (
        Pattern("url", _URL, 0.02),
        Pattern("movement", _MOVEMENT, 0.02),
        Pattern("number", _NUMBER, 0.02),
        Pattern("latin", r"\p{Latin}[\p{Latin}\p{M}'\u2019]*", 0.75),
        Pattern("han", r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}]", 0.05),
        Pattern("hangul", r"\p{Hangul}+", 0.03),
        Pattern("arabic", r"\p{Arabic}[\p{Arabic}\p{M}]*", 0.03),
        Pattern("devanagari", r"\p{Devanagari}[\p{Devanagari}\p{M}]*", 0.03),
        Pattern("cyrillic", r"\p{Cyrillic}[\p{Cyrillic}\p{M}]*", 0.03),
        Pattern("letters", r"\p{L}[\p{L}\p{M}]*", 0.03),
        Pattern("symbol", r"[\p{P}\p{S}]", 0.02),
    ),
)

PATTERN_SETS: Mapping[str, PatternSet] = {s.name: s for s in (STANDARD_PATTERNS, SCRIPT_PATTERNS)}


def load_patterns(name: str) -> PatternSet:
    """Return a pattern set: `standard`, `scripts`, or one from a JSON file {"name", "patterns": [{"name",
    "expression", "prior"}, ...]}.

    Raises:
        UnknownNameError: there is no such set, and no such file.
        UsageError: the file is no pattern set.
    """
    if name in PATTERN_SETS:
        return PATTERN_SETS[name]
    path = Path(name)
    if not path.is_file():
        raise UnknownNameError("pattern set", name, PATTERN_SETS)
    try:
        content = json.loads(path.read_text("utf-8-sig"))
        patterns = tuple(Pattern(row["name"], row["expression"], row["prior"]) for row in content["patterns"])
        return PatternSet(str(content.get("name", path.stem)), patterns)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise UsageError(
            f'{path} is no pattern set ({type(exc).__name__}: {exc}); write {{"name": ..., "patterns": [{{"name": ..., '
            '"expression": ..., "prior": ...}}]}'
        ) from exc


def with_estimated_priors(patterns: PatternSet, texts: Iterable[str], *, name: str | None = None) -> PatternSet:
    """Return the set with priors estimated from texts: P_j = (count of j + 1) / (all counts + |S|).

    The authors leave open where priors come from. Adding 1 keeps a pattern that never occurs from weighing infinitely.

    Args:
        patterns: the expressions.
        texts: of a corpus, or of answers.
        name: of the new set.

    Raises:
        UsageError: no text holds any of the patterns.
    """
    totals = [0] * len(patterns)
    for text in texts:
        totals = [total + count for total, count in zip(totals, patterns.counts(text), strict=True)]
    if not any(totals):
        raise UsageError(f"none of the patterns {', '.join(patterns.names)} occurs in the texts: no prior can be known")
    everything = sum(totals) + len(patterns)
    estimated = tuple(
        replace(pattern, prior=(total + 1) / everything)
        for pattern, total in zip(patterns.patterns, totals, strict=True)
    )
    return PatternSet(name or f"{patterns.name}, estimated", estimated)
