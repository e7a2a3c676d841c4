"""Whole texts for perplexity: WikiText, and any corpus.

    | file                        | texts                                                                       |
    |-----------------------------|-----------------------------------------------------------------------------|
    | WikiText, raw or tokenised  | one per article: it begins at a line ` = Title = ` (one equals sign a side) |
    | any other .txt .raw .tokens | the file                                                                    |
    | JSON lines, Parquet, ...    | one per row, by `annotate.ingest`: the same columns and the same rejections |

WikiText in rows (the hub keeps a line a row) is joined before it is cut. Texts are given as they are, ` @-@ ` and
`<unk>` included: perplexities compare only on the same text. Where WikiText broke a formula over lines,
` = 1 henry ... = ` looks like a title; it is none if the line before ends inside a sentence and the line after goes on.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from pathlib import Path

from toolformer_core.annotate.ingest import corpus_files, read_corpus
from toolformer_core.annotate.rows import Row, rows_of
from toolformer_core.config import IngestConfig
from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.files import hub_rows, in_turn, reread
from toolformer_core.evaluate.items import Hub, Item, Rejected
from toolformer_core.records import Rejection, digest_of

__all__ = ["text_items", "text_items_from_hub", "wikitext_articles"]

_PLAIN = (".txt", ".raw", ".tokens")
_TITLE = re.compile(r"\s*= (?!=).*(?<!=) =\s*")
_MAX_LINE_BYTES = 64 << 20


def text_items(task: str, path: Path, turns: bool = False) -> Iterator[Item | Rejected]:
    """Return the texts of a file or folder as items without answers, whose prompt is the text.

    Args:
        turns: take the files of a folder in turn, a text of each; else one file after another. WikiText in rows is
            one text from its first file to its last, and read as such.

    Raises:
        CorpusError: nothing there can be read.
    """
    plain = [path] if path.suffix.lower() in _PLAIN else sorted(p for s in _PLAIN for p in path.rglob(f"*{s}"))
    if plain:
        if turns and len(plain) > 1:
            return in_turn(reread(partial(_plain_items, task, file)) for file in plain)
        return itertools.chain.from_iterable(_plain_items(task, file) for file in plain)
    files = corpus_files(path)
    if _holds_wikitext(files[0]):
        lines = (line for file in files for line in _row_texts(file))
        return _items(task, wikitext_articles(lines), files[0].name)
    if not turns or len(files) == 1:
        return _corpus_items(task, path)
    sources = {file: file.relative_to(path).as_posix() for file in files}
    seen: set[str] = set()
    return in_turn(_once(reread(partial(_corpus_items, task, file, sources[file])), seen) for file in files)


def _corpus_items(task: str, path: Path, source: str = "") -> Generator[Item | Rejected]:
    for found in read_corpus(path, IngestConfig()):
        own = source or found.source
        if isinstance(found, Rejection):
            yield Rejected(found.line, found.reason, found.detail, own)
        else:
            yield Item(found.doc_id, task, found.text, (), found.created, source=own, line=found.line)


def _once(stream: Iterator[Item | Rejected], seen: set[str]) -> Iterator[Item | Rejected]:
    """Reject what has been seen in another file already, as `read_corpus` does of a whole folder."""
    for found in stream:
        if isinstance(found, Item) and found.item_id in seen:
            yield Rejected(found.line, "duplicate", f"of document {found.item_id}", found.source)
            continue
        if isinstance(found, Item):
            seen.add(found.item_id)
        yield found


def text_items_from_hub(task: str, hub: Hub) -> Iterator[Item | Rejected]:
    """Yield the texts of a data set of the hub with a column `text`; WikiText's lines become articles.

    Raises:
        CorpusError: the hub cannot be reached.
    """
    rows = (row[1].get("text") for row in hub_rows(hub) if not isinstance(row, Rejected))
    texts = [text for text in rows if isinstance(text, str)]
    wiki = _TITLE.fullmatch(next((t for t in texts if t.strip()), ""))
    yield from _items(task, wikitext_articles(texts) if wiki else enumerate(texts, start=1), hub.repository)


def wikitext_articles(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Cut WikiText into articles; yield the line each begins at, from 1, and its text.

    Lines may end in a line feed or not. What stands in front of the first title is an article of its own, if not blank.
    """
    every = [line.rstrip("\n") for line in lines]
    starts = [0] + [i for i in range(1, len(every)) if _is_title(every, i)] + [len(every)]
    for start, end in itertools.pairwise(starts):
        text = "\n".join(every[start:end]).strip("\n")
        if text.strip():
            first = next(i for i in range(start, end) if every[i].strip())
            yield first + 1, text


def _is_title(lines: list[str], i: int) -> bool:
    if not _TITLE.fullmatch(lines[i]):
        return False
    before = next((lines[j].strip() for j in range(i - 1, -1, -1) if lines[j].strip()), "")
    after = next((lines[j].strip() for j in range(i + 1, len(lines)) if lines[j].strip()), "")
    broken_off = bool(before) and before[-1] not in ".!?\"')”="
    return not (broken_off and after and not after[0].isupper() and (after[0].isalnum()))


def _plain_items(task: str, file: Path) -> Generator[Item | Rejected]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        yield Rejected(1, "not_utf8", f"byte {exc.start}: {exc.reason}", file.name)
        return
    except OSError as exc:
        raise CorpusError(f"{file} cannot be read: {exc}") from exc
    lines = re.split(r"\r?\n", text)
    wiki = _TITLE.fullmatch(next((line for line in lines if line.strip()), ""))
    yield from _items(task, wikitext_articles(lines) if wiki else iter([(1, text)]), file.name)


def _items(task: str, texts: Iterable[tuple[int, str]], source: str) -> Iterator[Item | Rejected]:
    for line, text in texts:
        if text.strip():
            yield Item(digest_of("text", text), task, text, (), source=source, line=line)
        else:
            yield Rejected(line, "blank", "no text", source)


def _holds_wikitext(file: Path) -> bool:
    first = next((text for text in _row_texts(file) if text.strip()), "")
    return _TITLE.fullmatch(first) is not None


def _row_texts(file: Path) -> Iterator[str]:
    for row in rows_of(file, _MAX_LINE_BYTES):
        if isinstance(row, Row) and isinstance(row.value, dict) and isinstance(row.value.get("text"), str):
            yield row.value["text"]
