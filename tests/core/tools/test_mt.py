import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolformer_core.errors import UsageError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.build import EMBEDDED_PHRASES
from toolformer_core.tools.mt import MAX_CHARS, MT, PhraseTable

TABLE = PhraseTable(EMBEDDED_PHRASES)
EMBEDDED = MT(TABLE)


class FixedDetector:
    """A detector that always guesses the same."""

    digest = "fixed"

    def __init__(self, *guesses: tuple[str, float]) -> None:
        self.guesses = guesses

    def detect(self, text: str) -> Sequence[tuple[str, float]]:
        return self.guesses


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("der Hund", "the dog"),
        ("Ich weiß nicht.", "I do not know"),
        ("das Haus und der Garten", "the house and the garden"),  # word by word, longest first
        ("L’eau est froide", "the water is cold"),  # the whole phrase, whatever the apostrophe
        ("le chien noir", "the black dog"),  # the adjective goes before its noun
        ("el gato negro y el perro blanco", "the black cat and the white dog"),
        ("ein Apfel", "an apple"),
        ("was kostet das", "how much does it cost"),  # taken for English by the detector
    ],
)
def test_translations(text: str, english: str) -> None:
    assert EMBEDDED.run(text) == ToolResponse(english)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty_input"),
        ("123 ?!", "empty_input"),
        ("\0\ud800", "empty_input"),
        ("the cat sat on the mat", "already_english"),
        ("Quantenphysik macht Spaß", "untranslatable"),
        ("der Hund und die Quantenphysik", "untranslatable"),  # one word is not covered
        ("a" * (MAX_CHARS + 1), "too_long"),
    ],
)
def test_failures_are_typed(text: str, reason: str) -> None:
    assert EMBEDDED.run(text).reason == reason  # type: ignore[union-attr]


def test_the_likely_language_is_looked_up_first(tmp_path: Path) -> None:
    path = tmp_path / "phrases.tsv"
    path.write_text("language\tsource\tenglish\nes\tburro\tdonkey\nit\tburro\tbutter\n", encoding="utf-8")
    table = PhraseTable(path)
    assert MT(table, FixedDetector(("it", 0.6), ("es", 0.3))).run("burro") == ToolResponse("butter")
    assert MT(table, FixedDetector(("es", 0.6), ("it", 0.3))).run("burro") == ToolResponse("donkey")
    assert MT(table, FixedDetector(("fi", 0.9))).run("burro") == ToolResponse("donkey")  # then the file's order
    assert MT(table, FixedDetector()).run("burro") == ToolResponse("donkey")


def test_a_single_word_that_is_surely_english_is_not_looked_up() -> None:
    assert MT(TABLE, FixedDetector(("en", 0.9))).run("train") == ToolFailure("already_english")
    assert MT(TABLE, FixedDetector(("en", 0.3))).run("pain") == ToolResponse("bread")


def test_a_translation_that_changes_nothing_is_none() -> None:
    assert MT(TABLE, FixedDetector(("de", 0.9))).run("Wolf") == ToolFailure("already_english")


def test_the_embedded_table_is_large_and_the_tool_finds_its_entries() -> None:
    assert list(TABLE._tables) == ["de", "fr", "es", "it"]
    for entries in TABLE._tables.values():
        assert len(entries) >= 400
        assert sum(len(english.split()) > 2 for english in entries.values()) >= 30  # sentences and longer phrases
        found = Counter(EMBEDDED.run(" ".join(words)) == ToolResponse(english) for words, english in entries.items())
        assert found[True] / found.total() > 0.95  # the rest are cognates, and words of two languages


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"language\tsource\tenglish\nde\tHund\n", "line 2 is not"),
        (b"language\tsource\tenglish\nde\t!!\tdog\n", "line 2 is not"),
        (b"language\tsource\tenglish\n", "holds no phrases"),
        (b"\xff", "cannot read the phrase table"),
    ],
)
def test_a_broken_table_says_where(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "phrases.tsv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        PhraseTable(path)


def test_it_pickles_and_the_fingerprint_follows_the_table(tmp_path: Path) -> None:
    path = tmp_path / "phrases.tsv"
    path.write_text("language\tsource\tenglish\nfi\tkissa\tcat\n", encoding="utf-8")
    other = MT(PhraseTable(path))
    copy = pickle.loads(pickle.dumps(other))
    assert copy.run("kissa") == ToolResponse("cat")
    assert copy.fingerprint == other.fingerprint != EMBEDDED.fingerprint


def test_loading_makes_detector_and_translator_ready() -> None:
    done: list[str] = []
    table, detector = PhraseTable(EMBEDDED_PHRASES), FixedDetector()
    table.load = lambda: done.append("translator")  # type: ignore[method-assign]
    detector.detect = lambda text: done.append("detector") or ()  # type: ignore[method-assign,func-returns-value]
    MT(table, detector).load()
    assert done == ["detector", "translator"]
