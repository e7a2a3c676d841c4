"""The interface of a tool: a name, a fingerprint, and a function from an input text to a response text.

It never raises for a bad input; it returns a `ToolFailure` with a short stable reason. A `ToolformerError` means that
the tool cannot answer any input and ends the run. `responses.run_guarded` handles tools that raise anything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from toolformer_core.errors import UsageError
from toolformer_core.records import ToolResult

__all__ = ["REMOTE_TTL_S", "BatchTool", "Engine", "Tool", "ToolLimits", "limits_of", "ttl_of"]

REMOTE_TTL_S = 24 * 3600.0  # a remote index or model changes with its releases, rarely during a day of builds


@runtime_checkable
class Tool(Protocol):
    """Anything that turns an input text, and possibly some context, into a response text."""

    @property
    def key(self) -> str:
        """The name a user types, e.g. `calculator`."""

    @property
    def name(self) -> str:
        """The name written in calls, e.g. `Calculator`."""

    @property
    def description(self) -> str:
        """One sentence, for users and for tool selection."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything a response depends on: code version, index, table, model."""

    def load(self) -> None:
        """Prepare what responses need (an index, a model); a `ToolformerError` if it cannot be loaded."""

    def run(self, input: str, context: str = "") -> ToolResult:
        """Answer one input, as the model wrote it; the context is what the tool may know of the document: its date."""


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """The limits of a tool while a corpus is annotated. None of it changes a response, so none is in a fingerprint.

    A `UsageError` if a limit makes no sense.
    """

    at_once: int = 32  # calls (of a `BatchTool`: batches) in progress in one process; no more processes than cores
    # threads for tools that wait (network, disk), processes for pure Python that computes: the tool is pickled once for
    # each, so its class must lie in a module that can be imported
    pool: Literal["threads", "processes"] = "threads"
    batch: int = 1  # questions handed to a `BatchTool` together, at most
    per_second: float | None = None  # calls (batches) that may begin in a second, in one process; None: any number
    timeout_s: float | None = None  # seconds a call may take; None: the stage's own limit
    tries: int = 2  # of a question whose failure is retryable, the first included
    cost: float = 0.0  # of one call (of each question of a batch), in the user's own unit; it is only summed up

    def __post_init__(self) -> None:
        for name in ("at_once", "batch", "tries"):
            if getattr(self, name) < 1:
                raise UsageError(f"a tool's limit {name} must be at least 1, got {getattr(self, name)}")
        for name, value in (("per_second", self.per_second), ("timeout_s", self.timeout_s)):
            if value is not None and not value > 0:
                raise UsageError(f"a tool's limit {name} must be positive, got {value}")
        if self.pool not in ("threads", "processes"):
            raise UsageError(f"a tool's limit pool must be threads or processes, got {self.pool!r}")


@runtime_checkable
class BatchTool(Protocol):
    """A tool that answers many questions faster together, e.g. on a GPU. Its `run` gives the same responses."""

    def run_batch(self, questions: Sequence[tuple[str, str]]) -> list[ToolResult]:
        """Answer questions (input, context); one result for each, in order."""


class Engine(Protocol):
    """What answers for a tool: a reader of QA, a translator of MT."""

    @property
    def digest(self) -> str:
        """Digest of everything an answer depends on."""

    @property
    def limits(self) -> ToolLimits: ...

    def load(self) -> object:
        """Prepare what answers need, e.g. a model; a `ToolformerError` if something cannot be loaded."""


def limits_of(tool: object) -> ToolLimits:
    """Return how a tool may be called: as its attribute `limits` says, else as `ToolLimits()` does."""
    limits: ToolLimits = getattr(tool, "limits", ToolLimits())
    return limits


def ttl_of(tool: object) -> float | None:
    """Return for how many seconds a tool's (or a reader's) responses may be reused, as its attribute `ttl_s` says.

    None, and no attribute: as long as its fingerprint, which then covers all that responses depend on, stays the same.
    """
    ttl_s: float | None = getattr(tool, "ttl_s", None)
    return ttl_s
