"""What a simulated build is of, what it runs on, and what comes of it. How it runs is in `simulation`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Outcome", "Stage", "World"]


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage takes for one tool; seconds are per document of the corpus."""

    name: str
    tool: str  # "" where the stage runs once for all tools
    cpu_s: float = 0.0
    model_s: float = 0.0  # of one card
    calls: float = 0.0  # of the tool, per document
    call_s: float = 0.0  # a call


@dataclass(frozen=True, slots=True)
class World:
    """A build and its machines; seconds throughout.

    Args:
        documents: of the corpus.
        shard_documents: in a shard.
        stages: for each tool in order; then those without a tool.
        cards: models that work at a time; each serves one task at a time.
        card_tasks: places for tasks beside each card. A task that asks the model runs there alone; another one does
            where no other place is free.
        workers: places for tasks elsewhere.
        shared: all tasks run in the places of `workers`, as with threads.
        dask: whether the flow cuts for Dask's threads.
        submit_s: for which the flow's process hands over a task, one after another.
        task_s: between a task's readiness and its first shard.
        task_cpu_s: CPU time of a task beside its work, in all processes: Prefect, the flow, Dask.
        cores: on which all processes share that time; 0: each has enough of its own.
        request_s: mean of a request to the object store; 0: a local disk.
        requests: to it, for a shard of a stage.
        note_s: for which the flow's process is busy with each commit.
        slow_tool: calls take so many times their `call_s`.
        at_once: calls at a time in a task.
        fail_per_hour: deaths of a place in an hour; what runs there is lost but for the shards it committed.
        restart_s: until the place is there again.
        claims: whether a dead worker's shard is held until its lease ends.
        straggler_share: of chunks that take `straggler_factor` times as long.
        start_s: before the first task, with ingest.
        end_s: after the last one.
        all_scores_first: assembly is submitted once all scores are there, as a limit of examples needs.
    """

    documents: float
    shard_documents: int
    stages: tuple[Stage, ...]
    cards: int = 1
    card_tasks: int = 3
    workers: int = 1
    shared: bool = False
    dask: bool = True
    submit_s: float = 0.0
    task_s: float = 0.0
    task_cpu_s: float = 0.0
    cores: int = 0
    request_s: float = 0.0
    requests: float = 7.0
    note_s: float = 0.0
    slow_tool: float = 1.0
    at_once: int = 32
    fail_per_hour: float = 0.0
    restart_s: float = 0.0
    claims: bool = False
    straggler_share: float = 0.0
    straggler_factor: float = 1.0
    start_s: float = 0.0
    end_s: float = 0.0
    all_scores_first: bool = False
    seed: int = 0

    @property
    def places(self) -> int:
        """Tasks at a time, in all."""
        return self.workers if self.shared else self.cards * self.card_tasks + self.workers


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened; seconds and shares."""

    makespan_s: float
    work_s: float  # from the first task's start to the last one's end
    tasks: int
    commits: float
    deaths: int
    card_span_s: float  # from the first model work to the last
    card_busy: float  # share of the time of all cards in it
    worker_busy: float  # share of the time of all places for tasks, from the first task to the last
    flow_busy_s: float  # the flow's process with commits
    submitting_s: float  # the flow's process with handing over tasks
