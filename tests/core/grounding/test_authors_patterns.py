"""The authors' pattern score on 300 pairs of texts, against the definition written out with plain loops.

The pairs are put together from pieces, each beside what it is once number words are digits and commas are gone, so that
the expected score needs no reader of number words.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable
from fractions import Fraction

import pytest

from toolformer_core.grounding.patterns import AUTHORS_PATTERNS, STANDARD_PATTERNS
from toolformer_core.grounding.records import pattern_similarity

PRIORS = {"english": 0.75, "other": 0.15, "number": 0.02, "symbol": 0.02, "sleep": 0.02, "move": 0.02, "time": 0.02}

# A piece of a text -> how it is read in a preliminary answer.
NUMBERS = {"twenty five": "25", "three hundred": "300", "two million and six": "2000000 and 6", "seven": "7"}
UNCHANGED = (
    *("3.5", "1,234,567", "-12", "x2", "40%", "(a+b)*2", "09:30", "2024-05-02", "01/02/1999", "snake_case", "\u2014"),
    *("日本語", "привет", "नमस्ते", "مرحبا", "naïve", "sleep for 2.5 seconds"),
)
PIECES = {
    **dict(zip(UNCHANGED, UNCHANGED, strict=True)),
    **{"Lima,": "lima", "The Robot": "the robot", "MOVING": "moving", "Yes:": "yes", "end.": "end", "It's": "it's"},
}


def runs(text: str, inside: Callable[[str], bool]) -> int:
    """Return how many stretches of such characters there are."""
    return sum(now and not before for before, now in itertools.pairwise([False, *map(inside, text)]))


def definition_counts(text: str) -> dict[str, int]:
    return {
        "english": runs(text, lambda c: c.isascii() and c.isalpha()),
        "other": sum(ord(c) > 127 for c in text),
        "number": len(re.findall(r"[+-]?\d*\.\d+|[+-]?\d+", text)),
        "symbol": runs(text, lambda c: not (c.isalnum() or c == "_" or c.isspace())),
        "sleep": len(re.findall(r"sleep for \d*\.?\d+ seconds", text)),
        "move": sum({"robot", "moving"} <= set(re.findall(r"\w+", line.lower())) for line in text.split("\n")),
        "time": len(re.findall(r"\b(?:\d{4}-\d\d-\d\d|\d\d:\d\d(?::\d\d)?|\d\d/\d\d/\d{4})\b", text)),
    }


def definition(answer: str, response: str) -> float:
    a, r = definition_counts(answer), definition_counts(response)
    length = (sum(a.values()) + len(PRIORS)) * sum(r.values())
    if not length:
        return 0.0
    return math.fsum(float(Fraction((a[j] + 1) * r[j], length)) * math.log(1 / prior) for j, prior in PRIORS.items())


def pairs() -> list[tuple[str, str, str, str]]:
    """Return preliminary answer, how it is read, response, and what of it counts."""
    rng = random.Random(20240131)
    out = []
    for _ in range(300):
        words = rng.choices([*PIECES.items()], k=rng.randint(0, 8))
        for at in rng.sample(range(len(words) + 1), k=min(2, len(words)))[:1]:
            words.insert(at, rng.choice([*NUMBERS.items()]))  # one: two beside each other would be read as one number
        response = " ".join(rng.choices([*PIECES, *NUMBERS, "\n", "Unknown"], k=rng.randint(0, 8)))
        counted = "" if response.strip().lower() in ("unknown", "none", "no answer") else response
        out.append((" ".join(raw for raw, _ in words), " ".join(read for _, read in words), response, counted))
    return out


def test_300_pairs_score_as_the_definition_says() -> None:
    others = 0
    for answer, as_read, response, counted in pairs():
        counts = AUTHORS_PATTERNS.answer_counts(answer), AUTHORS_PATTERNS.response_counts(response, "qa")
        score = pattern_similarity(*counts, AUTHORS_PATTERNS.weights)
        assert score == pytest.approx(definition(as_read, counted), abs=1e-9, rel=0), (answer, response)
        ours = STANDARD_PATTERNS.counts(answer), STANDARD_PATTERNS.counts(response)
        others += abs(score - pattern_similarity(*ours, STANDARD_PATTERNS.weights)) > 1e-9
    assert others > 200  # `standard` is another score


def test_the_papers_example_by_hand() -> None:
    # "4" against "450", seven classes, lambda 1: (1 + 1) 1 / ((1 + 7) 1) ln 50
    four, calculator = AUTHORS_PATTERNS.answer_counts("4"), AUTHORS_PATTERNS.response_counts("450", "calculator")
    assert pattern_similarity(four, calculator, AUTHORS_PATTERNS.weights) == pytest.approx(math.log(50) / 4)
    # a date is a time, three numbers and two symbols, all as rare as numbers: (2 3 + 1 1 + 1 2) / ((1 + 7) 6) ln 50
    date = AUTHORS_PATTERNS.response_counts("2024-05-02", "qa")
    assert pattern_similarity(four, date, AUTHORS_PATTERNS.weights) == pytest.approx(9 / 48 * math.log(50))
