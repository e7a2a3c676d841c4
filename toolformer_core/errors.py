"""Every error this library raises on purpose, as one tree.

    ToolformerError
    ├── UsageError             the user can mend it: a wrong value, path or file
    │   ├── UnknownNameError   a name that is not among the valid ones ("did you mean ...?")
    │   ├── CorpusError        a corpus that cannot be read at all (single bad rows are counted, not raised)
    │   ├── PromptError        an annotation prompt without its placeholder
    │   └── ModelError         a model that cannot be loaded or cannot do what is asked of it
    │       └── TokenizerError its tokenizer cannot write a call
    ├── ToolError              a tool that does not answer at all
    ├── CallSyntaxError        a text that is not a call
    └── ScriptError            a `ScriptedLM` was asked something its script does not hold

A tool that fails on an input raises nothing: it returns a `ToolFailure` (see `records`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CallSyntaxError",
    "ContextError",
    "CorpusError",
    "ModelError",
    "PromptError",
    "ScriptError",
    "TokenizerError",
    "ToolError",
    "ToolformerError",
    "UnknownNameError",
    "UsageError",
]


class ToolformerError(Exception):
    """The root: `except ToolformerError` catches everything raised on purpose."""


class UsageError(ToolformerError):
    """Something the user gave is wrong; the message says what and how to mend it, in one line."""


class UnknownNameError(UsageError):
    """A name that is not among the valid ones.

    Args:
        kind: what was named, e.g. `"tool"`.
        name: the name given.
        valid: the names that would have been right.
    """

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


class ModelError(UsageError):
    """A model that cannot be loaded, or that cannot do what is asked (e.g. a context too short)."""


class ContextError(ModelError):
    """A model whose context holds too little of a document beside the prompt."""


class TokenizerError(ModelError):
    """A model whose tokenizer cannot write " [": it can write no call, whatever its weights."""


class ToolError(ToolformerError):
    """A tool that does not answer at all, so that its failures say nothing of its inputs."""


class CallSyntaxError(ToolformerError):
    """A text that does not parse as a call."""


class ScriptError(ToolformerError):
    """A `ScriptedLM` was asked something its script does not hold."""
