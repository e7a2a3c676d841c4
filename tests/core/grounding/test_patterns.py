import math
from dataclasses import replace

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
        ("1,234.5 km", {"number": 1, "english": 1}),
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
        ("at 3.5: yes, 42.", "at 3.5: yes 42."),  # marks beside digits stay
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
    for patterns, foreign in ((AUTHORS_PATTERNS, "other_script"), (STANDARD_PATTERNS, "non_ascii")):
        priors = {pattern.name: pattern.prior for pattern in patterns.patterns}
        assert priors == dict.fromkeys(patterns.names, 0.02) | {"english": 0.75, foreign: 0.15}
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
        ([("a", "(", 0.5)], "not a regular expression"),
        ([("a", "a*", 0.5)], "matches the empty text"),
        ([("a", "a", 0)], r"must lie in \(0, 1\]"),
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


def test_the_papers_example_by_hand() -> None:
    # "4" against "450", seven classes, lambda 1: (1 + 1) 1 / ((1 + 7) 1) ln 50
    four, calculator = AUTHORS_PATTERNS.answer_counts("4"), AUTHORS_PATTERNS.response_counts("450", "calculator")
    assert pattern_similarity(four, calculator, AUTHORS_PATTERNS.weights) == pytest.approx(math.log(50) / 4)
    # a date is a time, three numbers and two symbols, all as rare as numbers: (2 3 + 1 1 + 1 2) / ((1 + 7) 6) ln 50
    date = AUTHORS_PATTERNS.response_counts("2024-05-02", "qa")
    assert pattern_similarity(four, date, AUTHORS_PATTERNS.weights) == pytest.approx(9 / 48 * math.log(50))
