"""Gold calls: texts for which the right calls and their positions are known.

A folder holds `corpus.jsonl` (rows of text, url, timestamp) and `gold.jsonl` (rows of a url and the right calls in that
document: tool, input, position and value), both plain or as .gz.
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.annotate.prefilter import prefilter
from toolformer_core.config import IngestConfig, PrefilterConfig
from toolformer_core.embedded import ASSETS
from toolformer_core.errors import CorpusError
from toolformer_core.folders import file_digest
from toolformer_core.records import Document, PrefilterResult, digest_of, storable
from toolformer_core.tools.declaration import DocumentFilter
from toolformer_core.tools.search.passages import query_words

_CORPUS, _GOLD = "corpus.jsonl.gz", "gold.jsonl.gz"
_OTHER_SHARE = 4  # one in four chosen documents has no gold call of the tool, so every call kept there is wrong


@dataclass(frozen=True, slots=True)
class GoldCall:
    doc_id: str
    tool: str  # key
    input: str
    position: int
    value: str  # the text that follows the position


@dataclass(frozen=True, slots=True)
class GoldTexts:
    documents: tuple[Document, ...]
    calls: Mapping[str, tuple[GoldCall, ...]]  # by document id, for all tools
    digest: str  # of the files

    def of(self, document: Document, tool: str) -> tuple[GoldCall, ...]:
        return tuple(call for call in self.calls.get(document.doc_id, ()) if call.tool == tool)


@dataclass(frozen=True, slots=True)
class ChosenDocuments:
    pairs: tuple[tuple[Document, PrefilterResult], ...]
    gold: tuple[GoldCall, ...]  # of the tool, in these documents
    dropped: int  # documents with a gold call of the tool that the prefilter drops


def read_gold(folder: Path = ASSETS) -> GoldTexts:
    """Read a folder's texts and gold calls, which are matched by URL; a CorpusError names what cannot be read."""
    corpus, gold = _file_in(folder, _CORPUS), _file_in(folder, _GOLD)
    documents = tuple(row for row in read_corpus(corpus, IngestConfig()) if isinstance(row, Document))
    by_url = {d.url: d for d in documents}
    calls: dict[str, tuple[GoldCall, ...]] = {}
    try:
        with (gzip.open if gold.suffix == ".gz" else open)(gold, "rt", encoding="utf-8") as stream:
            for line in stream:
                row = json.loads(line)
                if (document := by_url.get(row["url"])) is not None:
                    calls[document.doc_id] = tuple(_gold_call(document, call) for call in row["calls"])
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as exc:
        raise CorpusError(f"cannot read the gold calls {gold}: {exc!r}; a row must have url and calls") from exc
    return GoldTexts(documents, calls, digest_of("gold texts", file_digest(corpus), file_digest(gold)))


def _file_in(folder: Path, name: str) -> Path:
    plain, packed = folder / name.removesuffix(".gz"), folder / name
    return plain if plain.is_file() and not packed.is_file() else packed


def _gold_call(document: Document, row: Mapping[str, Any]) -> GoldCall:
    position = row["position"]
    if not isinstance(position, int) or not 0 <= position < len(document.text):
        raise ValueError(f"position {position!r} is outside the text of {document.url}")
    call = GoldCall(document.doc_id, row["tool"], row["input"], position, row.get("value", ""))
    for name in ("tool", "input", "value"):
        text = getattr(call, name)
        if not isinstance(text, str) or storable(text) != text:
            raise TypeError(f"{name} {text!r} of a call in {document.url} is not text")
    return call


def choose(
    texts: GoldTexts, tool: str, limit: int | None, config: PrefilterConfig, declared: DocumentFilter | None = None
) -> ChosenDocuments:
    """Choose the documents on which a tool is measured: if possible, three with a gold call of it to one without.

    The choice is made by digest, so a larger limit includes the documents of a smaller one. Without a limit all are
    chosen that the prefilter keeps. A CorpusError if no document with a gold call of the tool is left.
    """
    documents = sorted(texts.documents, key=lambda d: digest_of("diagnose", str(config.seed), tool, d.doc_id))
    with_gold = [d for d in documents if texts.of(d, tool)]
    if not with_gold:
        raise CorpusError(f"the gold texts hold no call of {tool}; name a folder that does by --gold, or other tools")
    results = zip(documents, prefilter(tool, documents, config, declared=declared), strict=True)
    pairs = [(document, result) for document, result in results if result.kept]
    passed = [pair for pair in pairs if texts.of(pair[0], tool)]
    if not passed:
        raise CorpusError(f"no document with a gold call of {tool} passes its prefilter; give other texts or tools")
    others = [pair for pair in pairs if not texts.of(pair[0], tool)]
    limit = len(pairs) if limit is None else limit
    kept = passed[: limit - min(len(others), limit // _OTHER_SHARE)]
    gold = tuple(call for document, _ in kept for call in texts.of(document, tool))
    return ChosenDocuments((*kept, *others[: limit - len(kept)]), gold, dropped=len(with_gold) - len(passed))


def normalised(tool: str, input_: str) -> str:
    """Return an input without what does not matter to its tool: spaces, case, an expression's final `=`."""
    if tool == "calculator":
        return "".join(input_.split()).replace(",", "").removesuffix("=")
    return " ".join(query_words(input_))
