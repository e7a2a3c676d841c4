"""The interface of a reader: what finds a short answer to a question in retrieved passages.

`qa_readers/` holds the readers: the embedded one, models of the Hugging Face hub, and a server. This module knows none
of them. A reader says how it may be asked (`limits`), because a model is fastest with many questions at a time and a
server with many requests at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from toolformer_core.records import ToolFailure
from toolformer_core.tools.base import ToolLimits
from toolformer_core.tools.search.passages import Hit

Reading: TypeAlias = str | ToolFailure | None  # an answer; why none could be looked for; None: the passages hold none


class Reader(Protocol):
    """Anything that finds a short answer in passages, e.g. a neural reader."""

    @property
    def digest(self) -> str:
        """Digest of everything an answer depends on."""
        ...

    @property
    def limits(self) -> ToolLimits:
        """How it may be asked."""
        ...

    def load(self) -> None:
        """Prepare what answers need, e.g. a model.

        Raises:
            ToolformerError: something cannot be loaded.
        """
        ...

    def read(self, question: str, hits: Sequence[Hit]) -> Reading:
        """Return a short answer from the passages (best first); None if they hold none; a failure if it cannot read.

        Raises:
            ToolformerError: it can read nothing at all, e.g. a server refuses its key.
        """
        ...


@runtime_checkable
class BatchReader(Protocol):
    """A reader that answers many questions faster together. Its `read` gives the same answers."""

    def read_batch(self, questions: Sequence[tuple[str, Sequence[Hit]]]) -> list[Reading]:
        """Answer questions, each from its own passages; one reading for each, in order."""
        ...
