"""The tools that a flow's parameters name, built, so that their fingerprints are known, and where they find data."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tasks.settings import qa_credentials
from toolformer_core.config import TOOL_NAMES
from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import ToolSettings, build_tools
from toolformer_core.tools.custom.reference import parse_reference


def chosen_tools(
    tools: Iterable[str], passages: str | None, qa_reader: str | None, translator: str | None
) -> tuple[dict[str, Tool], ToolSettings]:
    """Return the tools by key, and settings from which a process anywhere builds the same ones; see `fields`."""
    folder = Path(passages).expanduser().absolute() if passages else None
    settings = ToolSettings(folder, _folder_or_name(qa_reader), _folder_or_name(translator))
    named = list(dict.fromkeys(map(_named, tools)))
    built = build_tools(named, settings, qa_credentials=qa_credentials(settings.qa_reader))
    references = tuple((key, name) for key, name in zip(built, named, strict=True) if key != name)
    return built, replace(settings, references=references)


def absolute_data(path: str) -> str:
    """Return a path as workers in other folders must name it; a URL as it is."""
    return path if "://" in path else str(Path(path).absolute())


def _named(text: str) -> str:
    """Return the key of one of the paper's tools, in whatever case it is given; a reference with its whole path."""
    key = text.strip().lower()
    return key if key in TOOL_NAMES else str(parse_reference(text).absolute(Path.cwd()))


def _folder_or_name(text: str | None) -> str | None:
    folder = Path(text).expanduser() if text else None
    return str(folder.absolute()) if folder is not None and folder.exists() else text
