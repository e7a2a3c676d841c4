"""What a tool is: a name, a fingerprint, and a text for a text.

A tool does not know documents, models or where results are stored. It never raises for a bad input: it returns a
`ToolFailure` with a short stable reason. A `ToolformerError` says that no input could be answered (its data is broken)
and ends the run; `execute` guards against the tools that raise anything else.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from toolformer_core.records import ToolResult

__all__ = ["REMOTE_S", "Perishable", "Tool", "lifetime_s"]

REMOTE_S = 24 * 3600.0  # an index or a model behind a service changes with its releases, hardly within a day's builds


class Tool(Protocol):
    """Anything that turns an input text, and at most a piece of context, into one text."""

    @property
    def key(self) -> str:
        """The name a user types: `calculator`."""
        ...

    @property
    def name(self) -> str:
        """The name as it stands in a call: `Calculator`."""
        ...

    @property
    def description(self) -> str:
        """One sentence, for people and for tool selection."""
        ...

    @property
    def fingerprint(self) -> str:
        """Digest of everything an answer depends on: code version, index, table, model. Changes when answers may."""
        ...

    def load(self) -> None:
        """Make ready whatever answers need (an index, a model), so that no call's time is spent on it.

        Raises:
            ToolformerError: it cannot be made ready.
        """
        ...

    def run(self, input: str, context: str = "") -> ToolResult:
        """Answer one input.

        Args:
            input: the call's input text, as the model wrote it.
            context: what the tool must know of the document; only the calendar reads it (an ISO date).
        """
        ...


@runtime_checkable
class Perishable(Protocol):
    """A tool whose answers may change though its fingerprint does not: it asks somebody else, e.g. over a network."""

    @property
    def answers_last_s(self) -> float:
        """For how many seconds an answer may be used again instead of asking; `REMOTE_S` where nothing is known."""
        ...


def lifetime_s(tool: Tool) -> float | None:
    """Return for how many seconds a tool's answers may be used again; None: as long as its fingerprint stays.

    A tool that says nothing of it is taken at the word of its fingerprint, which holds all that its answers depend on.
    """
    return float(tool.answers_last_s) if isinstance(tool, Perishable) else None
