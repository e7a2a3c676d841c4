"""Models: one prompt to two models side by side. What they write is streamed by a script, or shown when it is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.training.registry import finished_finetunes
from toolformer_core.config import TOOL_NAMES
from viewer.data import ViewedData
from viewer.model_servers import ModelServers
from viewer.pages.document import Piece
from viewer.prompting import PromptSettings, Said, written
from viewer.query import Query, WrongQueryError
from viewer.rendering import tool_class

SIDES = ("a", "b")
_MAX_TOKENS, _MAX_CALLS, _MAX_K = 512, 8, 1000
_DEFAULTS: Mapping[str, Any] = {"a": "", "b": "embedded", "ka": 10, "kb": 10, "calls": 1, "tokens": 64}


@dataclass(frozen=True, slots=True)
class Prompter:
    """What prompts are put to.

    Args:
        servers: of models.
        any_model: whether a form may name a model that the page does not offer.
        key: what servers that somebody else started ask of their clients; None: nothing.
    """

    servers: ModelServers
    any_model: bool = True
    key: str | None = None

    def choices(self, viewed: ViewedData) -> dict[str, str]:
        """Return the models that the page offers: what it calls them, and their names for `ModelServers`."""
        jobs = finished_finetunes(Path(viewed.store.root) / "finetunes") if viewed.store.is_local else []
        evaluated = viewed.evaluated() if viewed.snapshot.is_file() else []
        return {
            **{name: name for name in self.servers.given},
            **{job.folder.name: str(job.folder) for job in jobs},
            **{side.model: side.model for side in evaluated},
            "embedded": "embedded",
        }

    def model(self, viewed: ViewedData, name: str) -> str:
        """Return the name for `ModelServers` of a model that a form names.

        Raises:
            WrongQueryError: there is none, or it may not be asked.
        """
        choices = self.choices(viewed)
        if name in choices:
            return choices[name]
        if not name or not self.any_model or name.startswith("-"):
            offered = ", ".join(choices)
            raise WrongQueryError(f"this viewer asks the models {offered}, not {name[:100]!r}")
        return name

    def written(self, model: str, settings: PromptSettings) -> AsyncIterator[Said]:
        """Return what a model writes, see `viewer.prompting`."""
        return written(self.servers, model, settings, self.key)


def page(viewed: ViewedData, query: Query, prompter: Prompter, results: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return what the page shows.

    Args:
        viewed: the data folder.
        query: `prompt`, the models `a` and `b`, `ka` and `kb`, `calls` and `tokens`.
        prompter: what prompts are put to.
        results: what the models wrote, by side, from `result_of`; None: nothing was asked yet.

    Raises:
        WrongQueryError: a value is wrong.
    """
    choices = prompter.choices(viewed)
    values = {**_DEFAULTS, "a": next(iter(choices))} | {name: query.values[name] for name in query.values}
    return {
        "choices": list(choices),
        "values": values,
        "prompt": query.text("prompt"),
        "any_model": prompter.any_model,
        "results": results,
        "names": names_of(viewed),
        "limits": {"tokens": _MAX_TOKENS, "calls": _MAX_CALLS, "k": _MAX_K},
    }


def side_of(viewed: ViewedData, form: Query, prompter: Prompter, side: str) -> tuple[str, PromptSettings]:
    """Return the model of one side of a form, and what it is asked.

    Raises:
        WrongQueryError: a value is wrong.
    """
    prompt = form.text("prompt").replace("\r\n", "\n")  # forms send line ends as networks have them
    if not prompt:
        raise WrongQueryError("write a prompt first")
    numbers = {
        name: _DEFAULTS[name] if (value := form.whole(name, low)) is None else value
        for name, low in ((f"k{side}", 0), ("calls", 0), ("tokens", 1))
    }
    for name, most in ((f"k{side}", _MAX_K), ("calls", _MAX_CALLS), ("tokens", _MAX_TOKENS)):
        if numbers[name] > most:
            raise WrongQueryError(f"{name} is at most {most}")
    model = prompter.model(viewed, form.text(side))
    return model, PromptSettings(prompt, numbers[f"k{side}"], numbers["calls"], numbers["tokens"])


async def streamed(events: AsyncIterator[Said], names: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yield events as server-sent ones, each with the class of its tool's colour."""
    async for said in events:
        event = {"kind": said.kind, "text": said.text, "problem": said.problem}
        if said.tool:
            event["class"] = tool_class(said.tool, names)
        yield b"data: " + json.dumps(event).encode() + b"\n\n"


async def results_of(prompter: Prompter, asked: Mapping[str, tuple[str, PromptSettings]]) -> dict[str, Any]:
    """Return what the models wrote, by side: pieces, and how it ended in words."""

    async def whole(model: str, settings: PromptSettings) -> dict[str, Any]:
        return _result([said async for said in prompter.written(model, settings)])

    found = await asyncio.gather(*(whole(*one) for one in asked.values()))
    return dict(zip(asked, found, strict=True))


def _result(events: list[Said]) -> dict[str, Any]:
    pieces: list[Piece] = []
    problems = []
    for said in events:
        if said.kind == "more" and pieces:
            pieces[-1] = pieces[-1]._replace(text=pieces[-1].text + said.text)
        elif said.kind in ("text", "call"):
            pieces.append(Piece(said.text, said.tool))
        problems += [said.problem] if said.problem else []
    last = events[-1] if events else Said("error", "nothing was written")
    return {"pieces": pieces, "problems": problems, "last": last}


def names_of(viewed: ViewedData) -> dict[str, str]:
    """Return the tools' names in calls, by key; their order gives them their colours."""
    return viewed.names() if viewed.snapshot.is_file() else dict(TOOL_NAMES)
