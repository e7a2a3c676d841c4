from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.grounding.patterns import AUTHORS_PATTERNS, STANDARD_PATTERNS, Pattern, PatternSet, patterns_named
from toolformer_core.grounding.records import pattern_similarity


def counted(text: str, patterns: PatternSet = STANDARD_PATTERNS) -> dict[str, int]:
    """Return the counts that are not 0, by name."""
    return {n: c for n, c in zip(patterns.names, patterns.counts(text), strict=True) if c}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Hello World 2023", {"english": 2, "number": 1}),  # the paper's example: {e, e, n}
        ("lächeln", {"english": 2, "non_ascii": 1}),  # the paper's example: {e, f, e}
        ("", {}),
        (" \n\t", {}),
        ("1,234.5 km", {"number": 1, "english": 1}),
        ("-7", {"number": 1}),
        ("12+30=42", {"number": 3, "symbol": 2}),  # between numbers, + is no sign
        ("3 - -4", {"number": 2, "symbol": 1}),
        ("x2", {"english": 1}),  # a digit inside a word is no number
        ("https://example.org/a?b=1 !", {"url": 1, "symbol": 1}),
        ("move forward, turn left", {"movement": 2, "symbol": 1}),
        ("你好", {"non_ascii": 1}),
        ("٣٤ كتاب", {"number": 1, "non_ascii": 1}),  # Arabic digits are digits
    ],
)
def test_the_standard_patterns_count(text: str, counts: dict[str, int]) -> None:
    assert counted(text) == counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Hello World 2023", {"english": 2, "number": 1}),
        ("lächeln", {"english": 2, "other_script": 1}),
        ("1,234,567", {"number": 3, "symbol": 2}),
        ("x2 = -.5", {"english": 1, "number": 2, "symbol": 2}),  # "=" and "-.": digits count inside words, too
        ("你好!", {"other_script": 2, "symbol": 1}),  # every character by itself
        ("नमस्ते", {"other_script": 6, "symbol": 2}),  # U+094D and U+0947 are no word characters to Python's `re`
        ("2024-05-02", {"time": 1, "number": 3, "symbol": 2}),
        ("at 09:30:15, not 9:30", {"english": 2, "time": 1, "number": 5, "symbol": 4}),
        ("02/05/2024 and 102/05/2024", {"english": 1, "time": 1, "number": 6, "symbol": 4}),
        ("sleep for 1.5 seconds", {"english": 3, "number": 1, "symbol": 1, "sleep": 1}),
        ("The ROBOT is moving\nmoving robots", {"english": 6, "move": 1}),
    ],
)
def test_the_authors_patterns_count_each_by_itself(text: str, counts: dict[str, int]) -> None:
    assert counted(text, AUTHORS_PATTERNS) == counts


@pytest.mark.parametrize(
    ("answer", "as_read"),
    [
        ("Twenty five Men.", "25 men"),
        ("two thousand three hundred and six", "2300 and 6"),
        ("one million two", "1000002"),
        ("zero cats, one dog", "cats 1 dog"),  # a number of 0 goes
        ("it is zero", "it is 0"),  # unless it is last
        ("hundred apples", "apples"),  # 0 times 100
        ("at 3.5: yes, 42.", "at 3.5: yes 42."),  # marks beside digits stay
        ("twenty-five", "twenty-five"),
    ],
)
def test_the_authors_read_number_words_as_digits(answer: str, as_read: str) -> None:
    assert AUTHORS_PATTERNS.answer_counts(answer) == AUTHORS_PATTERNS.counts(as_read)
    assert STANDARD_PATTERNS.answer_counts(answer) == STANDARD_PATTERNS.counts(answer)


def test_what_counts_of_a_response_by_the_authors_rule() -> None:
    def of(response: str, tool: str, patterns: PatternSet = AUTHORS_PATTERNS) -> dict[str, int]:
        counts = patterns.response_counts(response, tool)
        return {n: c for n, c in zip(patterns.names, counts, strict=True) if c}

    for response in (" Unknown", "none", "No answer ", ""):
        assert of(response, "qa") == {}
    assert of("none of them", "qa") == {"english": 3}
    assert of("-7.5", "calculator") == {"number": 1}  # and no symbol
    assert of("-7.5", "units") == {"number": 1, "symbol": 2}
    assert of("Unknown", "qa", STANDARD_PATTERNS) == {"english": 1}


def test_the_priors() -> None:
    authors = {pattern.name: pattern.prior for pattern in AUTHORS_PATTERNS.patterns}
    assert authors == {"english": 0.75, "other_script": 0.15} | dict.fromkeys(
        ("number", "symbol", "sleep", "move", "time"), 0.02
    )
    priors = {pattern.name: pattern.prior for pattern in STANDARD_PATTERNS.patterns}
    assert priors == {"english": 0.75, "non_ascii": 0.15, "number": 0.02, "symbol": 0.02, "url": 0.02, "movement": 0.02}
    assert STANDARD_PATTERNS.weights[STANDARD_PATTERNS.names.index("number")] == pytest.approx(math.log(50))


def test_a_set_by_its_name() -> None:
    assert patterns_named("standard") is STANDARD_PATTERNS
    assert replace(AUTHORS_PATTERNS, authors_rule=False).digest != AUTHORS_PATTERNS.digest
    with pytest.raises(UnknownNameError, match="standard"):
        patterns_named("standart")


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ([], "is empty"),
        ([("", "a", 0.5)], "has no name"),
        ([("a", "(", 0.5)], "not a regular expression"),
        ([("a", "a*", 0.5)], "matches the empty text"),
        ([("a", "a", 0)], r"must lie in \(0, 1\]"),
        ([("a", "a", "x")], r"must lie in \(0, 1\]"),
        ([("a", "a", 1), ("a", "b", 1)], "have one name"),
    ],
)
def test_a_broken_set_is_refused(patterns: list[tuple[str, str, float]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PatternSet("broken", tuple(Pattern(*one) for one in patterns))


def test_a_pattern_that_takes_for_ever_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolformer_core.grounding.patterns.TIMEOUT_S", 0.02)
    slow = PatternSet("slow", (Pattern("a", "^(a|a)+$", 0.5),))  # 2^24 ways through 24 letters
    with pytest.raises(UsageError, match="the patterns of slow take more than"):
        slow.counts("a" * 24 + "b")


# --- the authors' score on 300 pairs of texts, against the definition written out with plain loops --------------------

# The pairs are put together from pieces, each beside what it is once number words are digits and commas are gone, so
# that the expected score needs no reader of number words.
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
