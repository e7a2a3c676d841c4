"""Whole texts for perplexity: WikiText, and any corpus.

A .txt, .raw or .tokens file is one text; rows (JSON lines, Parquet, ...) are read as in `annotate.ingest`. WikiText,
raw or tokenised, in a file or in rows (the hub has one line per row), is cut into articles at lines ` = Title = ` (one
equals sign each side). Where it breaks a formula over lines, ` = 1 henry ... = ` is no title: the line before ends
inside a sentence that the line after continues.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from toolformer_core.annotate.ingest import corpus_files, read_corpus
from toolformer_core.annotate.readers.files import rows_of
from toolformer_core.annotate.readers.raw_rows import RawRow
from toolformer_core.config import IngestConfig
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.items import Hub, Item, RejectedRow
from toolformer_core.evaluate.readers.files import hub_rows
from toolformer_core.folders import regular_files
from toolformer_core.records import Rejection, digest_of

_PLAIN = (".txt", ".raw", ".tokens")
_TITLE = re.compile(r"\s*= (?!=).*(?<!=) =\s*")
_MAX_LINE_BYTES = 64 << 20


def text_items(task: str, path: Path) -> Iterator[Item | RejectedRow]:
    """Return the texts of a file or folder as items whose prompt is the text; a CorpusError if nothing can be read."""
    below = regular_files(path) if path.is_dir() else []
    plain = [path] if path.suffix.lower() in _PLAIN else [p for p in below if p.suffix in _PLAIN]
    if plain:
        return itertools.chain.from_iterable(_plain_items(task, file) for file in plain)
    files = corpus_files(path)
    if _TITLE.fullmatch(next((text for text in _row_texts(files[0]) if text.strip()), "")):
        lines = (line for file in files for line in _row_texts(file))
        return _items(task, wikitext_articles(lines), files[0].name)
    return _corpus_items(task, path)


def _corpus_items(task: str, path: Path) -> Iterator[Item | RejectedRow]:
    for row in read_corpus(path, IngestConfig()):
        if isinstance(row, Rejection):
            yield RejectedRow(row.line, row.reason, row.detail, row.source)
        else:
            yield Item(row.doc_id, task, row.text, (), row.created, source=row.source, line=row.line)


def text_items_from_hub(task: str, hub: Hub) -> Iterator[Item | RejectedRow]:
    """Yield the texts of a hub data set with a column `text`; WikiText's lines are joined into articles."""
    rows = (row[1].get("text") for row in hub_rows(hub) if not isinstance(row, RejectedRow))
    texts = [text for text in rows if isinstance(text, str)]
    wiki = _TITLE.fullmatch(next((t for t in texts if t.strip()), ""))
    yield from _items(task, wikitext_articles(texts) if wiki else enumerate(texts, start=1), hub.repository)


def wikitext_articles(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Cut WikiText into articles and what precedes them; yield the first line of each, from 1, and its text."""
    all_lines = [line.rstrip("\n") for line in lines]
    starts = [0] + [i for i in range(1, len(all_lines)) if _is_title(all_lines, i)] + [len(all_lines)]
    for start, end in itertools.pairwise(starts):
        text = "\n".join(all_lines[start:end]).strip("\n")
        if text.strip():
            first = next(i for i in range(start, end) if all_lines[i].strip())
            yield first + 1, text


def _is_title(lines: list[str], i: int) -> bool:
    if not _TITLE.fullmatch(lines[i]):
        return False
    before = next((lines[j].strip() for j in range(i - 1, -1, -1) if lines[j].strip()), "")
    after = next((lines[j].strip() for j in range(i + 1, len(lines)) if lines[j].strip()), "")
    inside_sentence = bool(before) and before[-1] not in ".!?\"')”="
    return not (inside_sentence and after and not after[0].isupper() and (after[0].isalnum()))


def _plain_items(task: str, file: Path) -> Iterator[Item | RejectedRow]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        yield RejectedRow(1, "not_utf8", f"byte {exc.start}: {exc.reason}", file.name)
        return
    except OSError as exc:
        raise CorpusError(f"{file} cannot be read: {exc}") from exc
    lines = re.split(r"\r?\n", text)
    wiki = _TITLE.fullmatch(next((line for line in lines if line.strip()), ""))
    yield from _items(task, wikitext_articles(lines) if wiki else iter([(1, text)]), file.name)


def _items(task: str, texts: Iterable[tuple[int, str]], source: str) -> Iterator[Item | RejectedRow]:
    for line, text in texts:
        if text.strip():
            yield Item(digest_of("text", text), task, text, (), source=source, line=line)
        else:
            yield RejectedRow(line, "blank", "no text", source)


def _row_texts(file: Path) -> Iterator[str]:
    for row in rows_of(file, _MAX_LINE_BYTES):
        if isinstance(row, RawRow) and isinstance(row.value, dict) and isinstance(row.value.get("text"), str):
            yield row.value["text"]
