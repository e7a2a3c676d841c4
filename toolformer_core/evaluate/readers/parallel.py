"""Tatoeba, and other translations in two files whose lines belong together: NAME.deu and NAME.eng.

The sentence of the first file is translated into the second one's; a line is an item, and its number is its id.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from toolformer_core.errors import CorpusError
from toolformer_core.evaluate.items import BadRowError, Item, RejectedRow, item_of
from toolformer_core.evaluate.prompts import translation
from toolformer_core.folders import regular_files

_ENGLISH = ".eng"


def translation_files(path: Path, suffix: str) -> tuple[Path, Path]:
    """Return the file of sentences and the one of their translations.

    Args:
        path: a folder that holds one such pair, or one of its files.
        suffix: of the sentences' file, e.g. `.deu`.

    Raises:
        CorpusError: there is no pair, or more than one.
    """
    if not path.exists():
        raise CorpusError(f"no such benchmark file or folder: {path}")
    names = (
        [path.with_suffix(suffix)] if path.is_file() else [p for p in regular_files(path) if p.name.endswith(suffix)]
    )
    pairs = [(name, name.with_suffix(_ENGLISH)) for name in names if name.with_suffix(_ENGLISH).is_file()]
    if len(pairs) != 1 or not pairs[0][0].is_file():
        found = ", ".join(str(source) for source, _ in pairs) or "none"
        raise CorpusError(f"{path} must hold one pair of files NAME{suffix} and NAME{_ENGLISH}; found: {found}")
    return pairs[0]


def translation_items(task: str, path: Path, suffix: str) -> Iterator[Item | RejectedRow]:
    """Read the lines of a pair of files as items.

    Raises:
        CorpusError: see `translation_files`.
    """
    sentences, translations = translation_files(path, suffix)
    return _items(task, sentences, translations)


def _items(task: str, sentences: Path, translations: Path) -> Iterator[Item | RejectedRow]:
    with (
        sentences.open(encoding="utf-8", errors="surrogateescape") as left,
        translations.open(encoding="utf-8", errors="surrogateescape") as right,
    ):
        for line, (sentence, english) in enumerate(itertools.zip_longest(left, right), 1):
            try:
                item = _item(task, sentences.stem, line, sentence, english)
            except BadRowError as exc:
                yield RejectedRow(line, exc.reason, exc.detail, sentences.name)
            else:
                yield replace(item, source=sentences.name, line=line)


def _item(task: str, name: str, line: int, sentence: str | None, english: str | None) -> Item:
    if sentence is None or not sentence.strip():
        raise BadRowError("no_sentence", "the line is blank, or the file ends before the other one")
    if english is None or not english.strip():
        raise BadRowError("no_answer", "the translation is blank, or the file ends before the other one")
    return item_of(task, translation(sentence), [english], item_id=f"{name}-{line}")
