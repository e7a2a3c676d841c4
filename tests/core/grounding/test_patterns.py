from __future__ import annotations

import math
from pathlib import Path

import pytest

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.grounding.patterns import (
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


def test_the_priors_are_those_of_the_authors() -> None:
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
    path.write_text(SCRIPT_PATTERNS.to_json(), "utf-8")
    assert load_patterns(str(path)) == SCRIPT_PATTERNS
    assert load_patterns("standard") is STANDARD_PATTERNS
    assert set(PATTERN_SETS) == {"standard", "scripts"}


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
