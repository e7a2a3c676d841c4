"""New versions of C*, made one at a time in a thread by the flow that the command line calls, while pages are shown."""

import threading
from dataclasses import dataclass, replace

from flows.build_dataset.what_if_query import WhatIfQuery
from toolformer_core.errors import ToolformerError, UsageError
from warehouse.commits import check_name
from warehouse.errors import StoreError, WarehouseError
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class Materialisation:
    name: str
    state: str  # running, completed or failed
    version: str = ""  # name@version, once it is completed
    problem: str = ""  # why it failed


class Materialiser:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = threading.Lock()
        self.last: Materialisation | None = None

    def start(self, query: WhatIfQuery, name: str) -> None:
        """Begin to make a version; raise `UsageError` if the name is unsafe, or another version is being made."""
        try:
            check_name("dataset", name)
        except StoreError as exc:
            raise UsageError(str(exc)) from exc
        with self._turn:
            if self.last is not None and self.last.state == "running":
                raise UsageError(f"a version of {self.last.name} is being made: wait until it is done")
            self.last = Materialisation(name, "running")
        threading.Thread(target=self._make, args=(query, name), name="materialise", daemon=True).start()

    def _make(self, query: WhatIfQuery, name: str) -> None:
        outcome = Materialisation(name, "failed", problem="the viewer's log says why")
        try:
            from flows.build_dataset.what_if import materialise  # imports Prefect, which takes seconds

            dataset = materialise(self._store, query, name)
            outcome = Materialisation(name, "completed", f"{dataset.name}@{dataset.version}")
        except (ToolformerError, WarehouseError, OSError) as exc:
            outcome = replace(outcome, problem=str(exc))
        finally:
            with self._turn:
                self.last = outcome
