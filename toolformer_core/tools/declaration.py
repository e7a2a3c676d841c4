"""What a tool declares besides its answers: how it is taught, and by which examples it is chosen for a query.

A user's tool declares its annotation prompt, the documents worth trying and its thresholds. Of the paper's five the
prefilters are those of App. A.1, and the thresholds stand in `config`. No answer depends on it, so no fingerprint does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex

from toolformer_core.config import NUMERIC_TOOLS, canonical_json, keeps_repeats
from toolformer_core.errors import PromptError, UsageError
from toolformer_core.records import Call, digest_of, unencodable
from toolformer_core.syntax import find_calls, linearize
from toolformer_core.tools.base import Tool

DRAFT = "(a sentence of your corpus in which the response occurs)"  # stands in a prompt that nobody has written yet


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """The documents that a tool is tried on: those that meet every condition given. Without one, all are."""

    patterns: tuple[str, ...] = ()  # regular expressions; one of them, or one of the keywords, must occur
    keywords: tuple[str, ...] = ()  # whole words or phrases, in any case
    language: str | None = None  # ISO 639-1 code of the document's language
    min_chars: int = 0
    max_chars: int | None = None  # None: any number

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            try:
                regex.compile(pattern)
            except regex.error as exc:
                raise UsageError(f"{pattern!r} is not a regular expression: {exc}") from exc
        if any(not keyword.strip() for keyword in self.keywords):
            raise UsageError("a keyword is empty")
        if self.language is not None and not regex.fullmatch("[a-z]{2,3}", self.language):
            raise UsageError(f"{self.language!r} is no ISO 639 code of a language; write e.g. en")
        if self.min_chars < 0 or (self.max_chars is not None and self.max_chars < self.min_chars):
            raise UsageError(f"min_chars {self.min_chars} and max_chars {self.max_chars} leave no document")

    def __bool__(self) -> bool:
        return self != DocumentFilter()

    @property
    def digest(self) -> str:
        return digest_of("filter", canonical_json(self))


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """How a tool is taught and grounded. None means the value of most of the paper's tools (see `config`).

    A `UsageError` if an example or the mock response cannot be used.
    """

    origin: str = "built in"  # where the tool comes from, for people
    prompt: str = ""  # the annotation prompt, with one `{text}`; "": there is none, and it cannot be taught yet
    prompt_source: str = ""  # the file that the prompt was read from, or would be read from, for messages
    filter: DocumentFilter = field(default_factory=DocumentFilter)  # the documents that the tool is tried on
    tau_s: float | None = None  # smallest p(" [") of a position
    top_k: int | None = None  # most likely positions per document
    samples: int | None = None  # calls drawn per position
    tau_f: float | None = None  # smallest L- - L+ of a call that is kept, in nats
    keep_repeats: bool = False  # of equal calls within five tokens of each other all are kept; else the best one
    numeric: bool = False  # its responses are numbers, or begin with one: its calls stand in front of numbers
    examples: tuple[tuple[str, str], ...] = ()  # 3 to 5 questions, each with the input of the call that answers it
    mock_response: str = ""  # an example of a response, by which it can be ranked without being run; "": none

    def __post_init__(self) -> None:
        for question, input_ in self.examples:
            _check_example(question, input_)
        if self.mock_response and (wrong := _not_a_line(self.mock_response)):
            raise UsageError(f"mock_response {self.mock_response[:80]!r} {wrong}; write one line, as the tool answers")

    def sampling(self) -> dict[str, Any]:
        """Return the declared settings of `SampleConfig`."""
        named = {"tau_s": self.tau_s, "top_k": self.top_k, "samples": self.samples}
        return {name: value for name, value in named.items() if value is not None}

    def check_prompt(self, name: str) -> str:
        """Return the prompt; a `PromptError` if there is none, it is a draft, or it shows no call of the tool."""
        if not self.prompt:
            place = f"write one to {self.prompt_source}" if self.prompt_source else "name a file with `prompt`"
            raise PromptError(
                f"the tool {name} has no annotation prompt; {place}: what the tool does, then 3 to 5 demonstrations "
                "with calls, then `Input: {text}` and `Output:`"
            )
        shown = f"the prompt of {name} ({self.prompt_source or 'given as text'})"
        if DRAFT in self.prompt:
            raise PromptError(f"{shown} is still the draft: put 3 to 5 demonstrations with calls in place of {DRAFT!r}")
        if f"[{name}(" not in self.prompt:
            raise PromptError(f"{shown} shows no call; its demonstrations must write the tool's name: [{name}(...)]")
        return self.prompt


def read_prompt(path: Path, *, required: bool) -> str:
    """Return the text of a prompt's file, "" if there is none and none is required; else a `PromptError`."""
    if "\n" in str(path):  # a prompt was given where a path may stand, too
        raise PromptError("the prompt has no {text}; put it where the document is inserted")
    if not required and not path.is_file():
        return ""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise PromptError(f"cannot read the prompt {path}: {exc}") from exc


@lru_cache(maxsize=1)
def _of_the_paper() -> dict[str, Any]:
    """Return each tool's examples (question, the call's input that answers it) and mock response, by key."""
    tools: dict[str, Any] = json.loads((Path(__file__).parent / "assets" / "examples.json").read_text("utf-8"))
    return tools


def declaration_of(tool: Tool) -> ToolDeclaration:
    """Return what a tool declares; of the paper's tools, examples, mock responses, `numeric` and `keep_repeats`."""
    declared: ToolDeclaration | None = getattr(tool, "declaration", None)
    shown = _of_the_paper().get(tool.key, {"examples": (), "mock_response": ""})
    return declared or ToolDeclaration(
        keep_repeats=keeps_repeats(tool.key),
        numeric=tool.key in NUMERIC_TOOLS,
        examples=tuple((question, given) for question, given in shown["examples"]),
        mock_response=shown["mock_response"],
    )


def repeating_tools(tools: Mapping[str, Tool], keep_repeats: bool | None = None) -> frozenset[str]:
    """Return the keys of the tools of which equal calls nearby are all kept; None: as each tool declares."""
    if keep_repeats is not None:
        return frozenset(tools if keep_repeats else ())
    return frozenset(key for key, one in tools.items() if declaration_of(one).keep_repeats)


def _check_example(question: str, input_: str) -> None:
    if wrong := _not_a_line(question):
        raise UsageError(
            f"the question of an example, {question[:80]!r}, {wrong}; write one line, e.g. 'How far is it?'"
        )
    if input_ and (wrong := _not_a_line(input_)):
        raise UsageError(f"the input of the example {question[:80]!r} {wrong}; write one line, or '' for no input")
    written = linearize(Call("Tool", input_), "response")
    found = list(find_calls(written))
    if len(found) != 1 or found[0].call.input != input_ or found[0].end != len(written):
        raise UsageError(
            f"the input {input_[:80]!r} of the example {question[:80]!r} would not be read from a call as it stands; "
            "write it without spaces at its ends, without quotes around all of it, and close every bracket in it"
        )


def _not_a_line(text: str) -> str | None:
    if not text.strip():
        return "is empty"
    if len(text.splitlines()) > 1:
        return "has several lines"
    return f"is not UTF-8 text ({problem})" if (problem := unencodable(text)) else None
