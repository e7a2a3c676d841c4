"""A worker's death counts against what ran there; workers on this machine are pinned to cores."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from flows.runtime.runners import TASK
from flows.runtime.stage_tasks import _run_group
from flows.runtime.worker_failures import BlameRunning


@dataclass
class FakeScheduler:
    """What Dask's scheduler counts: all tasks that were at a worker are suspicious once more."""

    tasks: dict[str, Any] = field(default_factory=dict)

    def lose(self, plugin: BlameRunning, worker: str, *keys: str) -> dict[str, int]:
        for key in keys:
            self.tasks.setdefault(key, SimpleNamespace(suspicious=0)).suspicious += 1
        plugin.remove_worker(self, worker, stimulus_id="test")
        return {key: task.suspicious for key, task in self.tasks.items()}


def begin(plugin: BlameRunning, key: str, worker: str) -> None:
    plugin.log_event("toolformer-began", {"key": key, "worker": worker})


def test_only_what_ran_on_a_dead_worker_is_blamed() -> None:
    """Worker a dies with 1 running and 2 waiting; b dies with 2 running, 1 waiting; others' tasks keep their counts."""
    plugin, scheduler = BlameRunning("_ours"), FakeScheduler()
    begin(plugin, "_ours-1", "a")
    assert scheduler.lose(plugin, "a", "_ours-1", "_ours-2", "theirs-3") == {"_ours-1": 1, "_ours-2": 0, "theirs-3": 1}
    begin(plugin, "_ours-2", "b")
    assert scheduler.lose(plugin, "b", "_ours-1", "_ours-2", "theirs-3") == {"_ours-1": 1, "_ours-2": 1, "theirs-3": 2}


def test_what_has_finished_is_not_blamed_where_it_waits_to_be_done_again() -> None:
    plugin, scheduler = BlameRunning("_ours"), FakeScheduler()
    begin(plugin, "_ours-1", "a")
    plugin.transition("_ours-1", "processing", "memory")
    assert scheduler.lose(plugin, "a", "_ours-1") == {"_ours-1": 0}


def test_three_deaths_are_counted_as_three() -> None:
    plugin, scheduler = BlameRunning("_ours"), FakeScheduler()
    for number, worker in enumerate("abc", start=1):
        begin(plugin, "_ours-1", worker)
        assert scheduler.lose(plugin, worker, "_ours-1") == {"_ours-1": number}


def test_tasks_have_the_name_that_the_plugin_knows() -> None:
    assert _run_group.fn.__name__ == TASK
