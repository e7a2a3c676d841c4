"""A call in progress, and the protocol of what carries it out: threads, or processes.

A job is one question, or a batch of them. Whoever carries it out calls `begin` when the tool is asked and `finish` with
what came of it; whoever gave it may abandon it at any time. Why a job is given or abandoned is decided in `pool`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolformer_core.errors import ToolformerError
from toolformer_core.records import ToolFailure, ToolResult

Question = tuple[str, str]  # input and context

# One result for each question; why a whole call gave none; or why the tool can answer nothing at all.
Outcome = list[ToolResult] | ToolFailure | ToolformerError


@dataclass(slots=True, eq=False)
class Job:
    """A call of a tool.

    Args:
        questions: one, or a batch for a `BatchTool`.
        begin: called when the tool is asked; the time that a call may take runs from here.
        finish: called with the outcome.
        abandoned: nobody waits for the outcome any more.
        worker: what is at it.
    """

    questions: Sequence[Question]
    begin: Callable[[], None]
    finish: Callable[[Outcome], None]
    abandoned: bool = False
    worker: Worker | None = None


class Worker(Protocol):
    """Carries out one job after another, in the thread that calls it."""

    def answer(self, job: Job) -> Outcome:
        """Begin the job, and return its outcome."""
        ...

    def stop(self) -> None:
        """Interrupt the job that is under way, if that can be done, for good; called from any thread."""
        ...

    def close(self) -> None:
        """Free what it holds; called by its own thread."""
        ...


class Workers(Protocol):
    """Carries out any number of jobs at a time."""

    def start(self, job: Job) -> None:
        """Have a job carried out; return at once."""
        ...

    def abandon(self, job: Job) -> None:
        """Give a job up: its `finish` need not be called, and what carried it out is replaced."""
        ...

    def close(self) -> None:
        """Give all jobs up."""
        ...
