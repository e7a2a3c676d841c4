"""The data folder that the pages show, and what is asked again and again about one snapshot of it.

Every request opens the published snapshot anew; answers that cost time are kept until it is replaced.
"""

import json
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from flows.build_dataset.what_if_query import WhatIfQuery, ask
from toolformer_core.config import TOOL_NAMES
from warehouse.errors import SnapshotError
from warehouse.indexed_calls import IndexedCalls
from warehouse.queries.builds import CurrentBuild, Yield, current_build
from warehouse.queries.calls import GainBin, gain_histogram, tool_names
from warehouse.queries.item_changes import ChangeCount, EvaluatedSide, count_changes, evaluated_sides
from warehouse.queries.rows import low_memory, open_snapshot, rows_of, snapshot_identity
from warehouse.snapshot.publish import SNAPSHOT
from warehouse.snapshot.views import queries_beside
from warehouse.store import Store

Answer = TypeVar("Answer")

_SQL = queries_beside(__file__)
_MEMORY = "80MB"  # of the connection to the snapshot
_MAX_ANSWERS = 64
_MAX_WAIT_S = 5.0  # for pages that show an older snapshot; then that one is shown


class ViewedData:
    def __init__(self, data: str) -> None:
        self.data = data
        self.store = Store(data)
        self.snapshot: Path = self.store.local_folder / SNAPSHOT
        self._answers: dict[Hashable, Any] = {}
        self._of: tuple[int, int] | None = None  # the snapshot that the answers are about
        self._readers = 0  # blocks in which the snapshot is open
        self._opened: tuple[int, int] | None = None  # the snapshot that they have
        self._turn = threading.Condition()
        self._reading = threading.Lock()
        self._files = Path(tempfile.mkdtemp(prefix="toolformer-viewer-"))  # for what does not fit into memory
        weakref.finalize(self, shutil.rmtree, self._files, ignore_errors=True)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the snapshot open while the block runs: all its queries see the same one, and open it quickly.

        DuckDB opens a path once in a process: who opens it while it is open gets the same file, even if another one has
        been published there. So who comes after a publication waits for those who came before it.
        """
        with self._turn:
            current = snapshot_identity(self.snapshot)
            self._turn.wait_for(lambda: not self._readers or self._opened == current, _MAX_WAIT_S)
            self._readers += 1
            self._opened = current
        self._files.mkdir(mode=0o700, exist_ok=True)  # something may have swept it away
        try:
            with low_memory(_MEMORY, self._files), open_snapshot(self.snapshot) if current else nullcontext():
                yield
        finally:
            with self._turn:
                self._readers -= 1
                self._turn.notify_all()

    def build(self) -> CurrentBuild | None:
        return self._known("build", lambda: current_build(self.snapshot))

    def names(self) -> dict[str, str]:
        return self._known("names", lambda: {**TOOL_NAMES, **tool_names(self.snapshot)})

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query of `data.sql`."""
        return self._known(query, lambda: rows_of(self.snapshot, _SQL[query]))

    def versions(self) -> list[dict[str, Any]]:
        said = ("counts", "thresholds")
        return [{**row, **{name: json.loads(row[name]) for name in said}} for row in self.rows("versions")]

    def random_document(self) -> str | None:
        """Return the id of a document with a kept call, another one each time; None if there is none."""
        return next((row["doc_id"] for row in rows_of(self.snapshot, _SQL["random_document"])), None)

    def histogram(self) -> list[GainBin]:
        """Return how many scored calls of each tool gain how much."""
        return self._known("histogram", lambda: gain_histogram(self.snapshot))

    def thresholds(self) -> WhatIfQuery:
        """Return the thresholds of the current C*; raise `UsageError` if nothing was scored yet."""
        return self._known("thresholds", lambda: ask(self.snapshot, {}))

    def calls(self) -> IndexedCalls:
        with self._reading:  # it takes long, and two would take twice the memory
            return self._known("calls", lambda: IndexedCalls(self.snapshot))

    def yields_now(self) -> list[Yield]:
        return self._known("yields", lambda: self.calls().yields(self.thresholds().before))

    def evaluated(self) -> list[EvaluatedSide]:
        return self._known("evaluated", lambda: evaluated_sides(self.snapshot))

    def changes(self, first: EvaluatedSide, second: EvaluatedSide) -> list[ChangeCount]:
        key = "changes", *(tuple(side.evaluations.items()) for side in (first, second))
        return self._known(key, lambda: count_changes(self.snapshot, first, second))

    def _known(self, question: Hashable, answer: Callable[[], Answer]) -> Answer:
        if (current := snapshot_identity(self.snapshot)) is None:
            raise SnapshotError(f"there is no snapshot at {self.snapshot} yet; build a dataset, or reconcile")
        with self._turn:
            if current != self._of or len(self._answers) > _MAX_ANSWERS:
                self._answers, self._of = {}, current
            if question in self._answers:
                known: Answer = self._answers[question]
                return known
        found = answer()  # two requests may both work it out
        with self._turn:
            if current == self._of:
                self._answers[question] = found
        return found
