"""Candidate calls of a file, in place of sampled ones: made by rules, by marks in the text, by another model.

They are executed and scored like sampled ones, so the model's losses alone decide which of them are kept. A row of the
file (JSON lines, plain or as .gz) names a document by its address, and its calls:

    {"url": "gsm8k:0", "calls": [{"tool": "calculator", "input": "48 / 2", "position": 168}]}

A position is an offset in characters; other keys are ignored, so the gold calls that `diagnose` reads are such a file.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from toolformer_core.annotate.sample import SampledDocument
from toolformer_core.errors import CorpusError
from toolformer_core.records import Document, DrawnCall, storable
from toolformer_core.syntax import CLOSE, find_close

__all__ = ["Candidates", "propose", "read_candidates"]

Candidates = Mapping[tuple[str, str], tuple[tuple[int, str], ...]]  # (url, tool) -> (position, input) of each call


def read_candidates(path: Path) -> Candidates:
    """Read a file of candidate calls.

    Raises:
        CorpusError: it cannot be read, or a row is none; the message names the line.
    """
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007 - named in the error
                if line.strip():
                    row = json.loads(line)
                    for call in row["calls"]:
                        found.setdefault((row["url"], call["tool"]), []).append(_checked(call))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as exc:
        what = f"no {exc} in it" if isinstance(exc, KeyError) else str(exc)
        raise CorpusError(f"{path}, line {number}: {what}; a row has url and calls of tool, input, position") from exc
    return {key: tuple(dict.fromkeys(calls)) for key, calls in found.items()}


def _checked(call: Mapping[str, object]) -> tuple[int, str]:
    position, input_ = call["position"], call["input"]
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise TypeError(f"the position {position!r} is no offset in characters")
    if not isinstance(input_, str) or storable(input_) != input_ or find_close(input_ + CLOSE) != len(input_):
        raise TypeError(f"the input {input_!r} cannot stand in a call")
    return position, input_


def propose(documents: Iterable[Document], tool: str, tool_name: str, candidates: Candidates) -> list[SampledDocument]:
    """Return the candidates of some documents as if the model had sampled each of them once.

    Args:
        documents: those that the prefilter kept.
        tool: the tool's key.
        tool_name: its name in calls.
        candidates: of any documents and tools.

    Returns:
        One `SampledDocument` per document, in the order given; its draws have no probability (-inf).

    Raises:
        CorpusError: a position is not in front of text of its document.
    """
    return [
        _proposed(document, tool, tool_name, candidates.get((document.url or "", tool), ())) for document in documents
    ]


def _proposed(document: Document, tool: str, tool_name: str, calls: tuple[tuple[int, str], ...]) -> SampledDocument:
    end = len(document.text.rstrip())
    drawn = []
    for rank, position in enumerate(sorted({position for position, _ in calls})):
        if position >= end:
            raise CorpusError(f"a candidate of {document.url} stands at {position}, and its text ends at {end}")
        drawn += [
            DrawnCall(document.doc_id, tool, position, -math.inf, rank, f"{tool_name}({input_})", "ok", input_, 1)
            for at, input_ in calls
            if at == position
        ]
    return SampledDocument(document.doc_id, "sampled" if drawn else "no_position", tuple(drawn))
