"""A step of the chain from a corpus to what is made of it: a job's run, with what it read and wrote."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Data", "Kind", "Step"]

Kind = Literal["FLOW", "STAGE", "VERSION", "TRAINING", "EXPORT"]


@dataclass(frozen=True, slots=True)
class Data:
    """A dataset that a step reads or writes. Name and namespace identify it, the version tells its contents apart."""

    namespace: str
    name: str
    kind: Literal["TABLE", "FILE", "MODEL"]
    version: str = ""  # a digest; "" if it is unknown
    rows: int | None = None  # read or written in this step
    bytes: int | None = None
    files: int | None = None
    columns: tuple[tuple[str, str], ...] = ()  # name and type
    facts: Mapping[str, Any] = field(default_factory=dict)  # further values, JSON

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Step:
    """A run of a job."""

    job: str
    run: str  # with the job it identifies the run
    kind: Kind
    about: str  # one sentence on the job
    state: str  # running | completed | failed | cancelled
    started: str  # ISO UTC
    ended: str  # ISO UTC; "" while it goes on
    inputs: tuple[Data, ...] = ()
    outputs: tuple[Data, ...] = ()
    parent: tuple[str, str] | None = None  # job and run of the step that it is a part of
    program: str = ""  # version of this program, where it is recorded
    facts: Mapping[str, Any] = field(default_factory=dict)  # further values, JSON
