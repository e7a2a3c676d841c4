from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.grounding.patterns import (
    AUTHORS_PATTERNS,
    PATTERN_SETS,
    SCRIPT_PATTERNS,
    STANDARD_PATTERNS,
    Pattern,
    PatternSet,
    load_patterns,
    with_estimated_priors,
)


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
        ("lächeln", {"latin": 1}),
        ("Việt Nam", {"latin": 2}),
        ("Vie\u0323\u0302t", {"latin": 1}),  # the same letter, decomposed
        ("l'été", {"latin": 1}),
        ("你好 世界", {"han": 4}),
        ("こんにちは", {"han": 5}),
        ("안녕 세계", {"hangul": 2}),
        ("مرحبا بالعالم", {"arabic": 2}),
        ("नमस्ते", {"devanagari": 1}),  # vowel signs and the virama belong to the word
        ("привет", {"cyrillic": 1}),
        ("γειά σου", {"letters": 2}),
        ("१२३ रुपये", {"number": 1, "devanagari": 1}),
        ("¿Qué? — 5 €", {"latin": 1, "number": 1, "symbol": 4}),
    ],
)
def test_the_script_patterns_tell_scripts_apart(text: str, counts: dict[str, int]) -> None:
    assert counted(text, SCRIPT_PATTERNS) == counts


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


def test_priors_are_estimated_from_texts() -> None:
    patterns = PatternSet("two", (Pattern("letters", "[a-z]+", 0.5), Pattern("digits", "[0-9]+", 0.5)))
    # counts: letters 3, digits 1; with one added to each: 4 and 2 of 6
    estimated = with_estimated_priors(patterns, ["ab cd 1", "ef"])
    assert [p.prior for p in estimated.patterns] == pytest.approx([4 / 6, 2 / 6])
    assert estimated.digest != patterns.digest
    with pytest.raises(UsageError, match="none of the patterns letters, digits occurs"):
        with_estimated_priors(patterns, ["!", "?"])


def test_a_set_is_read_from_what_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    for patterns in (SCRIPT_PATTERNS, AUTHORS_PATTERNS):
        path.write_text(patterns.to_json(), "utf-8")
        assert load_patterns(str(path)) == patterns
    assert with_estimated_priors(AUTHORS_PATTERNS, ["a"]).authors_rule
    assert replace(AUTHORS_PATTERNS, authors_rule=False).digest != AUTHORS_PATTERNS.digest
    assert load_patterns("standard") is STANDARD_PATTERNS
    assert set(PATTERN_SETS) == {"standard", "scripts", "authors"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is no pattern set"),
        ('{"patterns": []}', "is empty"),
        ('{"patterns": [{"name": "a", "expression": "(", "prior": 0.5}]}', "no regular expression|not a regular"),
        ('{"patterns": [{"name": "a", "expression": "a*", "prior": 0.5}]}', "matches the empty text"),
        ('{"patterns": [{"name": "a", "expression": "a", "prior": 0}]}', r"must lie in \(0, 1\]"),
        ('{"patterns": [{"name": "a", "expression": "a", "prior": "x"}]}', r"must lie in \(0, 1\]"),
        ('{"patterns": [{"name": "a", "expression": "a", "prior": 1}, {"name": "a", "expression": "b", "prior": 1}]}',
         "have one name"),
    ],
)  # fmt: skip
def test_a_broken_set_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text(content, "utf-8")
    with pytest.raises(UsageError, match=message):
        load_patterns(str(path))


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="standard"):
        load_patterns("standart")


def test_a_pattern_that_takes_for_ever_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolformer_core.grounding.patterns.TIMEOUT_S", 0.02)
    slow = PatternSet("slow", (Pattern("a", "^(a|a)+$", 0.5),))  # 2^24 ways through 24 letters
    with pytest.raises(UsageError, match="the patterns of slow take more than"):
        slow.counts("a" * 24 + "b")
