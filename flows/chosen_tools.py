"""The tools that a flow's parameters name, built, and where they find their data.

Built here, they can be asked for their fingerprints; a worker builds them again from the settings. What a flow does
with them is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from toolformer_core.tools.base import Tool
from toolformer_core.tools.build import ToolSettings, build_tools
from toolformer_core.tools.custom.reference import parse_reference

__all__ = ["NamesTools", "chosen_tools"]


class NamesTools(Protocol):
    """Parameters that name tools; `flows.forms` says what each of them means."""

    @property
    def tools(self) -> Sequence[str]: ...
    @property
    def tool(self) -> Sequence[str]: ...
    @property
    def passages(self) -> str | None: ...
    @property
    def phrases(self) -> str | None: ...
    @property
    def index(self) -> str | None: ...
    @property
    def qa_reader(self) -> str | None: ...
    @property
    def translator(self) -> str | None: ...


def chosen_tools(p: NamesTools) -> tuple[dict[str, Tool], ToolSettings]:
    """Return the tools by key, and settings from which a process anywhere builds the same ones.

    Raises:
        UsageError: a name is not known, two tools have one name, or something that a tool needs is missing.
        ToolError: a tool's server does not answer.
    """
    settings = ToolSettings(
        passages=_absolute(p.passages),
        phrases=_absolute(p.phrases),
        index=_absolute(p.index),
        qa_reader=_folder_or_name(p.qa_reader),
        translator=_folder_or_name(p.translator),
    )
    given = [str(parse_reference(text).absolute(Path.cwd())) for text in p.tool]
    built = build_tools([*p.tools, *given], settings)
    named = list(dict.fromkeys([*(name.strip().lower() for name in p.tools), *given]))
    references = tuple((key, name) for key, name in zip(built, named, strict=True) if key != name)
    return built, replace(settings, references=references)


def _absolute(path: str | None) -> Path | None:
    return Path(path).expanduser().absolute() if path else None


def _folder_or_name(text: str | None) -> str | None:
    """Return a folder with its whole path; a hub name or URL as it is."""
    folder = Path(text).expanduser() if text else None
    return str(folder.absolute()) if folder is not None and folder.is_dir() else text
