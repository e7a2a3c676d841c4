"""A searchable set of passages, which WikiSearch shows and QA reads.

A passages file is JSONL, plain or gzipped, with one `{"title", "section"?, "text", "id"?}` per line.
"""

import gzip
import json
import unicodedata
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from toolformer_core.errors import UsageError
from toolformer_core.records import digest_of, unencodable

TITLE_BOOST = 2.0  # a search term usually names an article; for questions 1.0 finds more
_MAX_QUERY_WORDS = 64
_TIES = 16  # extra hits to fetch, so that ties at the limit are broken here
_HEAP_BYTES = 64_000_000
FIELDS = ("title", "section", "text")
TOKENIZER = "en_stem"  # tantivy's: letters and digits, lower-cased, Porter's stems
_WORD = "LNM"  # Unicode categories: letters, numbers, and the marks that belong to letters


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of an article."""

    row: int  # 0-based line of the file, or number in an index on disk
    title: str
    section: str  # "" if the file names none
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage with its BM25 score."""

    passage: Passage
    score: float


class PassageSearch(ABC):
    """Passages that tools search: a `PassageIndex` in RAM, or a `SearchIndex` on disk. Thread-safe.

    Nothing is read before it is needed. A pickled one carries only its path; who receives it makes the index again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    @property
    @abstractmethod
    def digest(self) -> str:
        """Digest of everything a result depends on; a `UsageError` if the passages cannot be read."""

    @abstractmethod
    def load(self) -> int:
        """Make the index ready, if it is not, and return the number of passages; a `UsageError` if it cannot be."""

    def search(self, text: str, limit: int = 5, title_boost: float = TITLE_BOOST) -> list[Hit]:
        """Return the best passages for a text, best first and of equal ones the first; none if no word of it occurs.

        A word in the title has the weight `title_boost`, elsewhere 1. A `UsageError` if the index cannot be opened.
        """
        words = query_words(text)
        return self._best(words, limit, title_boost) if words else []

    @abstractmethod
    def _best(self, words: list[str], limit: int, title_boost: float) -> list[Hit]:
        """Return what `search` returns for words."""


def read_passages(path: Path) -> Iterator[Passage]:
    """Yield the passages of a JSONL file (`.gz`: gzipped); a `UsageError` names a line that is none."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for row, line in enumerate(lines):
                if line.strip():
                    title, section, text = map(plain, parse_passage(line))
                    yield Passage(row, title, section, text)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read passages from {path}: {exc}") from exc
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise UsageError(
            f'{path}: line {row + 1} is not a passage like {{"title": ..., "section": ..., "text": ...}}: {exc!r}'
        ) from exc


def parse_passage(line: str) -> tuple[str, str, str]:
    """Return title, section and text of a line of a passages file; ValueError, KeyError or TypeError if it is none."""
    value = json.loads(line)
    title, section, text = value["title"], value.get("section") or "", value["text"]
    if not (isinstance(title, str) and isinstance(section, str) and isinstance(text, str)):
        raise TypeError("title, section and text must be strings")
    return title, section, text


def plain(text: str) -> str:
    """Return a text with white space made single; a `ValueError` if it is not UTF-8."""
    if flaw := unencodable(text):
        raise ValueError(flaw)
    return " ".join(text.split())


def query_words(text: str) -> list[str]:
    """Return the words of any text, lower-cased, so that no operator of the query language remains.

    At most 64 different words, in order; lone surrogates and symbols separate words.
    """
    letters = "".join(char if unicodedata.category(char)[0] in _WORD else " " for char in text[:10_000])
    return list(dict.fromkeys(letters.lower().split()))[:_MAX_QUERY_WORDS]


class PassageIndex(PassageSearch):
    """BM25 over the passages of one file, in RAM; it is read on first use, and digested if the digest is not known."""

    def __init__(self, path: Path, digest: str = "") -> None:
        super().__init__(path)
        self._known = digest

    @cached_property
    def digest(self) -> str:
        try:
            return self._known or digest_of("passages", self.path.read_bytes())
        except OSError as exc:
            raise UsageError(f"cannot read passages from {self.path}: {exc}") from exc

    @cached_property
    def _index(self) -> Any:
        return _build(self.path)

    def load(self) -> int:
        return int(self._index.searcher().num_docs)

    def _best(self, words: list[str], limit: int, title_boost: float) -> list[Hit]:
        query, _ = self._index.parse_query_lenient(" ".join(words), list(FIELDS), field_boosts={"title": title_boost})
        searcher = self._index.searcher()
        results = searcher.search(query, limit + _TIES, count=False).hits
        rows = searcher.fast_field_values("row", [address for _, address in results])
        hits = [
            Hit(stored_passage(searcher, address, int(row)), round(float(score), 4))
            for (score, address), row in zip(results, rows, strict=True)
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.passage.row))[:limit]


def empty_index(folder: Path | None = None) -> Any:
    """Return a tantivy index for passages, in a folder or in RAM."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    for name in FIELDS:
        builder.add_text_field(name, stored=True, tokenizer_name=TOKENIZER)
    builder.add_unsigned_field("row", fast=True)
    return tantivy.Index(builder.build(), None if folder is None else str(folder))


def document_of(row: int, texts: Sequence[str]) -> Any:
    """Return what the index keeps of a passage, given a text for each of `FIELDS`."""
    import tantivy

    document = tantivy.Document()
    document.add_unsigned("row", row)
    for name, text in zip(FIELDS, texts, strict=True):
        document.add_text(name, text)
    return document


def stored_passage(searcher: Any, address: Any, row: int) -> Passage:
    document = searcher.doc(address)
    title, section, text = (document.get_first(name) or "" for name in FIELDS)
    return Passage(row, title, section, text)


def _build(path: Path) -> Any:
    index = empty_index()
    writer = index.writer(heap_size=_HEAP_BYTES, num_threads=1)
    for passage in read_passages(path):
        writer.add_document(document_of(passage.row, (passage.title, passage.section, passage.text)))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    if not index.searcher().num_docs:
        raise UsageError(f"{path} holds no passages")
    return index
