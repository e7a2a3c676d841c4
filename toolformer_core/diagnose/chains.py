"""Gold chains: reads them, and counts how many of the chains in C* are right.

A chain is several calls at one position, of which later ones may read the responses of earlier ones. In an `Example` it
is a run of inserted calls that share a position. A chain in C* is *right* if there is a gold chain at its position with
the same tools in the same order, and its last response holds, as whole words, the value that follows in the text.
Inputs are not compared: another question may lead to the same answer. Nothing here knows how chains were found or
scored.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from toolformer_core.annotate.ingest import read_corpus
from toolformer_core.config import IngestConfig
from toolformer_core.diagnose.gold import gold_file
from toolformer_core.diagnose.judge import holds
from toolformer_core.errors import CorpusError
from toolformer_core.records import Document, Example

# A position, and its calls in the order of the text: tool (key), input, response.
Chain: TypeAlias = tuple[int, Sequence[tuple[str, str, str]]]

_CORPUS, _GOLD = "chains-corpus.jsonl.gz", "chains-gold.jsonl.gz"


@dataclass(frozen=True, slots=True)
class GoldChain:
    """A chain that is right in a document."""

    position: int
    value: str  # the text that follows the position
    calls: tuple[tuple[str, str, str], ...]  # tool (key), input, response
    family: str = ""
    held_out: bool = False  # of a family that the embedded model was not pretrained on

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(tool for tool, _, _ in self.calls)


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """How many chains are right, and how many gold positions have a right one."""

    kept: int  # chains in C*
    right: int  # of them
    gold: int  # positions with a gold chain, or several
    found: int  # of them, those at which a kept chain is right

    @property
    def precision(self) -> float | None:
        """Right chains as a share of the kept ones; None if none was kept."""
        return self.right / self.kept if self.kept else None

    @property
    def recall(self) -> float | None:
        """Gold positions with a right chain as a share of all; None if there is none."""
        return self.found / self.gold if self.gold else None


def chains_in(example: Example) -> list[Chain]:
    """Return the chains of an example: its calls that share a position with another, in the order of the text."""
    runs = (
        (position, [(c.tool, c.input, c.response) for c in calls])
        for position, calls in groupby(sorted(example.calls, key=lambda c: c.start), key=lambda c: c.position)
    )
    return [(position, calls) for position, calls in runs if len(calls) > 1]


def compare_chains(kept: Mapping[str, Iterable[Chain]], gold: Mapping[str, Iterable[GoldChain]]) -> ChainFigures:
    """Compare the chains of C* with gold chains.

    Args:
        kept: the chains of each document, by its id; see `chains_in`.
        gold: the gold chains of each document, by its id. Several at one position are ways to the same value.

    Returns:
        Counts over all documents of either. A chain in a document without gold is wrong.
    """
    chains = right = 0
    found: set[tuple[str, int]] = set()
    wanted: dict[tuple[str, int], list[GoldChain]] = {}
    for doc_id, of_document in gold.items():
        for one in of_document:
            wanted.setdefault((doc_id, one.position), []).append(one)
    for doc_id, in_document in kept.items():
        for position, calls in in_document:
            chains += 1
            place, tools = (doc_id, position), tuple(tool for tool, _, _ in calls)
            if any(tools == one.tools and holds(calls[-1][2], one.value) for one in wanted.get(place, ())):
                right += 1
                found.add(place)
    return ChainFigures(chains, right, len(wanted), len(found))


def read_gold_chains(folder: Path) -> dict[str, tuple[GoldChain, ...]]:
    """Read the gold chains of a folder's texts, by document id; documents without chains are left out.

    Args:
        folder: holds `chains-corpus.jsonl` and `chains-gold.jsonl`, plain or as .gz, as `smallworld.generate_chains`
            writes them.

    Raises:
        CorpusError: a file is missing, has the wrong format, or names a position outside its text.
    """
    gold = gold_file(folder, _GOLD)
    rows = read_corpus(gold_file(folder, _CORPUS), IngestConfig())
    by_url = {row.url: row for row in rows if isinstance(row, Document)}
    chains: dict[str, tuple[GoldChain, ...]] = {}
    try:
        with (gzip.open if gold.suffix == ".gz" else open)(gold, "rt", encoding="utf-8") as stream:
            for line in stream:
                row = json.loads(line)
                if (document := by_url.get(row["url"])) is not None and row["chains"]:
                    chains[document.doc_id] = tuple(_gold_chain(document, chain) for chain in row["chains"])
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as exc:
        raise CorpusError(f"cannot read the gold chains {gold}: {exc!r}; a row must have url and chains") from exc
    return chains


def _gold_chain(document: Document, row: Mapping[str, Any]) -> GoldChain:
    position = row["position"]
    if not isinstance(position, int) or not 0 <= position < len(document.text):
        raise ValueError(f"position {position!r} is outside the text of {document.url}")
    calls = tuple((call["tool"], call["input"], call["response"]) for call in row["calls"])
    if not all(isinstance(text, str) for call in (*calls, (row["value"],)) for text in call):
        raise TypeError(f"a chain in {document.url} has a value, or a tool, input or response, that is not text")
    return GoldChain(position, row["value"], calls, row.get("family", ""), row.get("held_out", False))
