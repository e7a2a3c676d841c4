"""Every error that this library raises deliberately, as one tree.

A tool that fails on an input raises nothing: it returns a `ToolFailure` (see `records`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ToolformerError(Exception):
    """The root: `except ToolformerError` catches everything raised deliberately."""


class UsageError(ToolformerError):
    """The user's input is wrong; the message says in one line what is wrong and how to correct it."""


class UnknownNameError(UsageError):
    """A name that is not among the valid ones of a kind of thing, e.g. `"tool"`."""

    def __init__(self, kind: str, name: str, valid: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.valid = tuple(sorted(valid))
        near = difflib.get_close_matches(name.lower(), [v.lower() for v in self.valid], n=1, cutoff=0.5)
        match = next((v for v in self.valid if near and v.lower() == near[0]), None)
        hint = f" Did you mean {match!r}?" if match else ""
        listed = ", ".join(self.valid) or "(none)"
        super().__init__(f"unknown {kind} {name!r}.{hint} Valid: {listed}.")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, tuple[str, ...]]]:
        return (type(self), (self.kind, self.name, self.valid))


class CorpusError(UsageError):
    """A corpus that cannot be read at all: no such path, no rows, an unknown format."""


class PromptError(UsageError):
    """An annotation prompt that cannot be used."""


class EngineStoppedError(UsageError):
    """The decoding engine has been stopped, or has failed; another one takes sequences."""


class ModelError(UsageError):
    """A model that cannot be loaded, or that cannot be used for the task."""


class ContextError(ModelError):
    """A model whose context is too short for the prompt and a useful part of a document."""


class TokenizerError(ModelError):
    """A model whose tokenizer cannot write " [", or a call that decoding finds, so that it can never call a tool."""


class ServerRefusalError(ModelError):
    """A server's answer that a request is wrong, e.g. for more log-probabilities than it allows."""


class ToolError(ToolformerError):
    """A tool that does not answer at all, so that its failures say nothing about its inputs."""


class RunnerError(ToolformerError):
    """What runs a flow's tasks ended, or gave one up; the same command goes on from there."""


class CallSyntaxError(ToolformerError):
    """A text that does not parse as a call."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
