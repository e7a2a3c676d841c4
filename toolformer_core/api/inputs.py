"""Checks what a user gives to the functions of this package: a mistake is a `UsageError` that names the argument."""

from collections.abc import Iterable, Mapping, Sequence

from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.config import TOOL_NAMES, IngestConfig, tau_f_for
from toolformer_core.errors import PromptError, UnknownNameError, UsageError
from toolformer_core.prompts.load import PLACEHOLDER, prompt_from_text
from toolformer_core.records import Document, Prompt, document_id, unencodable
from toolformer_core.syntax import is_tool_name
from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import build_tools
from toolformer_core.tools.custom.reference import is_reference
from toolformer_core.tools.declaration import declaration_of

_MAX_CHARS = IngestConfig().max_chars
_OF_A_TOOL = ("key", "name", "load", "run")


def check_loaded(model: object) -> None:
    if isinstance(model, str):
        raise UsageError(f"model is a name; load it once, and give what is loaded: load_model({model!r})")


def tools_by_key(tools: Sequence[str | Tool]) -> dict[str, Tool]:
    """Return the tools by key, in the order given: names, or objects, functions decorated with `tool` among them.

    A name may stand by itself; one that is given twice counts once. A UsageError if something is no tool, two tools
    have one key or one name, or what a tool needs is not there.
    """
    out: dict[str, Tool] = {}
    names: set[str] = set()
    for i, tool in enumerate([tools] if isinstance(tools, str) else tools):
        if isinstance(tool, str):
            spelled = tool if is_reference(tool) else tool.strip().lower()
            if spelled in names:
                continue
            names.add(spelled)
            (tool,) = build_tools([tool]).values()
        _check_tool(tool, f"tools[{i}]")
        if tool.key in out:
            raise UsageError(f"two tools have the key {tool.key!r}")
        if tool.name in {other.name for other in out.values()}:
            raise UsageError(f"two tools have the name {tool.name!r} in calls")
        out[tool.key] = tool
    return out


def _check_tool(tool: Tool, where: str) -> None:
    if isinstance(tool, type) or not all(hasattr(tool, name) for name in _OF_A_TOOL):
        what = f"the class {tool.__name__}" if isinstance(tool, type) else f"of type {type(tool).__name__}"
        raise UsageError(f"{where} is {what}, not a tool; give a key or an object with {', '.join(_OF_A_TOOL)}")
    name = tool.name
    if not isinstance(name, str) or not is_tool_name(name):
        raise UsageError(f"{where} has the name {name!r}; in a call a name is one word of letters, digits and _")


def documents_of(texts: Sequence[str], urls: Sequence[str | None] | None) -> list[Document]:
    """Return each text as the document that a build makes of it; a UsageError names what is wrong."""
    if isinstance(texts, str):
        raise UsageError("texts is one text; give a list of texts")
    texts = list(texts)
    urls = [None] * len(texts) if urls is None else list(urls)
    if len(urls) != len(texts):
        raise UsageError(f"{len(texts)} texts, but {len(urls)} urls; give one for each text, None where there is none")
    out = []
    for i, (text, url) in enumerate(zip(texts, urls, strict=True)):
        _check_text(text, f"texts[{i}]")
        if url and (wrong := unencodable(url)):
            raise UsageError(f"urls[{i}] is not UTF-8 text ({wrong}); remove that character")
        out.append(Document(document_id(text, url), text, url or None, created=None, source="texts", line=i + 1))
    return out


def _check_text(text: object, where: str) -> None:
    if not isinstance(text, str):
        raise UsageError(f"{where} is of type {type(text).__name__}, not str")
    if not text.strip():
        raise UsageError(f"{where} is empty; leave it out")
    if len(text) > _MAX_CHARS:
        raise UsageError(f"{where} has {len(text):,} characters, and the limit is {_MAX_CHARS:,}; split it")
    if wrong := unencodable(text):
        raise UsageError(f"{where} is not UTF-8 text ({wrong}); remove that character")


def prompts_of(tools: Mapping[str, Tool], prompts: Mapping[str, str] | None) -> dict[str, Prompt]:
    """Return every tool's annotation prompt: the user's, else the shipped or declared one, else a PromptError."""
    given = dict(prompts or {})
    _check_keys("tool in prompts", given, list(tools))
    out = {}
    for key, tool in tools.items():
        if key in given:
            out[key] = prompt_from_text(key, given[key], f"the prompt of {key}")
        elif key in TOOL_NAMES or declaration_of(tool).prompt:
            out[key] = prompt_for(tool)
        else:
            raise PromptError(
                f"no prompt is shipped for the tool {key!r}; give one, with {PLACEHOLDER} where the text goes: "
                f"prompts={{{key!r}: ...}}"
            )
    return out


def thresholds_of(tools: Mapping[str, Tool], tau_f: float | Mapping[str, float] | None) -> dict[str, float]:
    """Return every tool's filtering threshold: the user's, else the one that it declares, else the paper's."""
    keys = list(tools)
    given = tau_f if isinstance(tau_f, Mapping) else {} if tau_f is None else dict.fromkeys(keys, tau_f)
    _check_keys("tool in tau_f", given, keys)
    declared = {key: own for key, tool in tools.items() if (own := declaration_of(tool).tau_f) is not None}
    return {key: tau_f_for(key, {**declared, **given}) for key in keys}


def _check_keys(kind: str, given: Iterable[str], valid: Sequence[str]) -> None:
    for key in given:
        if key not in valid:
            raise UnknownNameError(kind, key, valid)
