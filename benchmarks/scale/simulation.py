"""A build as discrete events: when its tasks are submitted, run, fail and end, on any number of workers.

The shards are cut into tasks by the flow's own code (`flows.build_dataset.groups.shard_groups`), and a shard whose
worker died can be claimed again when `warehouse.claims` lets it. A task is one stage for one tool and one group. It
goes through its shards in some chunks; each chunk reads and writes the store, computes, asks the tool, or waits for its
card's turn and holds it. What a dead worker had committed is skipped by whoever does the task again.

Events are a heap of (time, number, what is to do). It knows no Prefect, and nothing of what stages compute.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from flows.build_dataset.groups import shard_groups
from flows.cutting import tasks_allowed
from warehouse.claims import LEASE_S, RENEWALS, pauses

__all__ = ["Outcome", "Stage", "World", "retry_delay", "simulate"]

_CHUNKS = 8  # of a task at most; more only make the simulation slower
_BUNDLES = 20_000  # shards are bundled into so many at most for the cutting, which goes by their documents


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage takes for one tool; seconds are per document of the corpus."""

    name: str
    tool: str
    cpu_s: float = 0.0
    model_s: float = 0.0  # of one card
    calls: float = 0.0  # per document
    call_s: float = 0.0


@dataclass(frozen=True, slots=True)
class World:
    """What is built, and on what.

    Args:
        documents: of the corpus.
        shard_documents: in a shard.
        stages: for each tool in order; then those without a tool.
        cards: models that work at a time; each serves one task at a time.
        card_tasks: tasks at a time beside each card.
        workers: tasks at a time elsewhere.
        shared: one pool of `workers` for all tasks, as with threads.
        dask: whether the flow cuts for Dask's threads.
        submit_s: the flow needs to hand over a task.
        task_s: between a task's readiness and its first shard.
        request_s: mean of a request to the object store; 0: a local disk.
        requests: to it, for a shard of a stage.
        note_s: the flow's process needs for each commit.
        slow_tool: how many times as long as their `call_s` calls take.
        at_once: calls at a time in a task.
        fail_per_hour: how often a worker dies.
        restart_s: until another one is in its place.
        claims: whether a dead worker's shard is held until its lease ends.
        straggler_share: of chunks that take `straggler_factor` times as long.
        start_s: before anything, with ingest.
        end_s: after everything.
        all_scores_first: assembly waits for all scores, as a limit of examples needs.
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
    def threads(self) -> int:
        """Tasks at a time, in all."""
        return self.workers if self.shared else self.cards * self.card_tasks + self.workers


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened."""

    makespan_s: float
    work_s: float  # from the first task's start to the last one's end
    tasks: int
    commits: float
    deaths: int
    card_span_s: float  # from the first model work to the last
    card_busy: float  # share of the time of all cards in it
    worker_busy: float  # share of all places for tasks, from the first task to the last
    flow_busy_s: float  # the flow's process with commits
    submitting_s: float  # the flow's process with handing over tasks


def retry_delay(lease_left_s: float) -> float:
    """Return when somebody who polls for a claim from now on gets it, if its lease ends after so many seconds."""
    waited = 0.0
    for pause in pauses():
        if waited >= lease_left_s:
            break
        waited += pause
    return waited


@dataclass(slots=True)
class _Task:
    """A task, or what is left of it."""

    number: int  # order of submission
    stage: Stage
    documents: float
    chunk: float  # documents
    left: float  # documents whose shards are not committed
    waits_for: int = 0  # tasks
    then: list[_Task] = field(default_factory=list)
    submitted: bool = False
    held_until: float = 0.0  # the claim of a dead worker's shard

    @property
    def ready(self) -> bool:
        return self.submitted and self.waits_for == 0


def simulate(world: World) -> Outcome:
    """Return what becomes of a build; the same world gives the same outcome."""
    return _Simulation(world).run()


class _Simulation:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random.Random(world.seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = itertools.count()
        self.places = {True: world.cards * world.card_tasks, False: world.workers}  # free, for model tasks and others
        if world.shared:
            self.places = {True: world.workers, False: 0}
        self.queues: dict[bool, list[tuple[int, _Task]]] = {True: [], False: []}
        self.card_free = [0.0] * world.cards
        self.at_card = [(0, card) for card in range(world.cards)]  # heap: tasks at a card, the card
        self.model_s = self.place_s = 0.0
        self.model_first, self.model_last = math.inf, 0.0
        self.first, self.last = math.inf, 0.0
        self.flow_free = 0.0
        self.deaths = 0
        self.commits = 0.0
        self.flow_busy = 0.0

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time, next(self.count), action))

    def run(self) -> Outcome:
        world = self.world
        tasks = self._tasks()
        for task in tasks:
            time = world.start_s + (task.number + 1) * world.submit_s
            self.at(time, lambda task=task: self._submitted(task))  # type: ignore[misc] # bound at once
        while self.events:
            self.now, _, action = heapq.heappop(self.events)
            action()
        end = max(self.last, self.flow_free)
        span = self.last - self.first
        model_span = max(self.model_last - self.model_first, 0.0)
        return Outcome(
            makespan_s=end + world.end_s,
            work_s=span,
            tasks=len(tasks),
            commits=self.commits,
            deaths=self.deaths,
            card_span_s=model_span,
            card_busy=self.model_s / (world.cards * model_span) if model_span > 0 else 0.0,
            worker_busy=self.place_s / (world.threads * span) if span else 0.0,
            flow_busy_s=self.flow_busy,
            submitting_s=len(tasks) * world.submit_s,
        )

    def _tasks(self) -> list[_Task]:
        """Return the tasks of all groups in the order in which the flow submits them."""
        world = self.world
        by_tool = {tool: list(stages) for tool, stages in itertools.groupby(world.stages, key=lambda s: s.tool)}
        last = by_tool.pop("", [])
        tasks: list[_Task] = []
        scored: list[list[_Task]] = []
        groups = list(self._groups())

        def add(stage: Stage, documents: float, before: Sequence[_Task]) -> _Task:
            shards = math.ceil(documents / world.shard_documents)
            chunk = documents / min(_CHUNKS, shards)
            task = _Task(len(tasks), stage, documents, chunk, documents, waits_for=len(before))
            for other in before:
                other.then.append(task)
            tasks.append(task)
            return task

        for documents in groups:
            ends = []
            for stages in by_tool.values():
                before: list[_Task] = []
                for stage in stages:
                    before = [add(stage, documents, before)]
                ends += before
            scored.append(ends)
            if not world.all_scores_first:
                for stage in last:
                    add(stage, documents, ends)
        if world.all_scores_first:
            gate = _Task(-1, Stage("gate", ""), 0.0, 0.0, 0.0, waits_for=sum(map(len, scored)), submitted=True)
            for ends in scored:
                for task in ends:
                    task.then.append(gate)
            for documents in groups:
                for stage in last:
                    add(stage, documents, [gate])
        return tasks

    def _groups(self) -> Iterator[float]:
        """Yield the documents of each group, as the flow cuts them."""
        world = self.world
        shards = math.ceil(world.documents / world.shard_documents)
        bundles = min(shards, _BUNDLES)
        one = SimpleNamespace(documents=SimpleNamespace(rows=world.documents / bundles))
        slowest = max(stage.cpu_s + stage.model_s for stage in world.stages)
        cut = shard_groups(
            cast("Any", [one] * bundles),
            slowest,
            at_once=world.threads,
            tasks_a_group=len(world.stages),
            tasks_at_most=tasks_allowed(world.threads if world.dask else 0),
        )
        for group in cut:
            yield len(group) * world.documents / bundles

    def _submitted(self, task: _Task) -> None:
        task.submitted = True
        self._offer(task)

    def _offer(self, task: _Task) -> None:
        """Put a task into the queue of its workers, if it is ready."""
        if task.ready:
            kind = self.world.shared or task.stage.model_s > 0
            heapq.heappush(self.queues[kind], (task.number, task))
            self._assign(kind)

    def _assign(self, kind: bool) -> None:
        while self.places[kind] and self.queues[kind]:
            _, task = heapq.heappop(self.queues[kind])
            self.places[kind] -= 1
            self.first = min(self.first, self.now)
            card = self._least_busy_card() if task.stage.model_s else -1
            held = retry_delay(task.held_until - self.now) if task.held_until > self.now else 0.0
            self._next_chunk(task, kind, card, self.now, self.now + self.world.task_s + held)

    def _least_busy_card(self) -> int:
        """Return the card with the fewest tasks; it has one more from now on."""
        tasks, card = heapq.heappop(self.at_card)
        heapq.heappush(self.at_card, (tasks + 1, card))
        return card

    def _leave_card(self, card: int) -> None:
        if card >= 0:
            self.at_card = [(tasks - (one == card), one) for tasks, one in self.at_card]
            heapq.heapify(self.at_card)

    def _next_chunk(self, task: _Task, kind: bool, card: int, began: float, start: float) -> None:
        """Begin the next chunk at `start`; `began` is when the worker took the task."""
        if task.left < 1e-6 * task.documents:
            self.at(start, lambda: self._finished(task, kind, card, began))
            return
        seconds = self._beside_model(task)
        if task.stage.model_s:
            self.at(start + seconds, lambda: self._take_card(task, kind, card, began, start))
        else:
            self._end_chunk(task, kind, card, began, start, start + seconds, start + self._life())

    def _beside_model(self, task: _Task) -> float:
        """Return the seconds that a chunk computes, reads, writes and asks the tool."""
        world, documents = self.world, min(task.chunk, task.left)
        stage, shards = task.stage, documents / world.shard_documents
        requests = max(1, round(shards * world.requests)) if world.request_s else 0
        waits = self.random.gammavariate(requests, world.request_s) if requests else 0.0
        call_s = stage.call_s * world.slow_tool
        calls = math.ceil(documents * stage.calls / world.at_once) * call_s if stage.calls else 0.0
        return (documents * stage.cpu_s + calls) * self._straggling() + waits

    def _straggling(self) -> float:
        world = self.world
        if world.straggler_share and self.random.random() < world.straggler_share:
            return world.straggler_factor
        return 1.0

    def _take_card(self, task: _Task, kind: bool, card: int, began: float, start: float) -> None:
        seconds = min(task.chunk, task.left) * task.stage.model_s * self._straggling()
        begin = max(self.now, self.card_free[card])
        end = begin + seconds
        death = start + self._life()
        until = min(end, max(begin, death))  # who dies has its card no longer
        self.card_free[card] = until
        self.model_s += until - begin
        self.model_first, self.model_last = min(self.model_first, begin), max(self.model_last, until)
        self._end_chunk(task, kind, card, began, begin, end, death)

    def _life(self) -> float:
        """Return how long a worker lives from now on."""
        return self.random.expovariate(self.world.fail_per_hour / 3600) if self.world.fail_per_hour else math.inf

    def _end_chunk(
        self, task: _Task, kind: bool, card: int, began: float, start: float, end: float, death: float
    ) -> None:
        """End a chunk that is worked on from `start` to `end`; if its worker dies before, its whole shards count."""
        shard, documents = self.world.shard_documents, min(task.chunk, task.left)
        if death < end:
            task.left -= documents * max(0.0, death - start) / (end - start) // shard * shard
            self.at(max(self.now, death), lambda: self._died(task, kind, card, began))
            return

        def ended() -> None:
            task.left -= documents
            self._next_chunk(task, kind, card, began, self.now)

        self.at(end, ended)

    def _died(self, task: _Task, kind: bool, card: int, began: float) -> None:
        """A worker dies: its place is free after a restart, and its task is queued for others."""
        world = self.world
        self._leave_card(card)
        self.deaths += 1
        self.place_s += self.now - began
        if world.claims:  # it renewed its lease at most a renewal's interval ago
            task.held_until = self.now + LEASE_S - self.random.uniform(0, LEASE_S / RENEWALS)
        self.at(self.now + world.restart_s, lambda: self._restarted(kind))
        self._offer(task)

    def _restarted(self, kind: bool) -> None:
        self.places[kind] += 1
        self._assign(kind)

    def _finished(self, task: _Task, kind: bool, card: int, began: float) -> None:
        self._leave_card(card)
        self.place_s += self.now - began
        self.last = max(self.last, self.now)
        shards = math.ceil(task.documents / self.world.shard_documents)
        self.commits += shards
        busy = shards * self.world.note_s
        self.flow_busy += busy
        self.flow_free = max(self.flow_free, self.now) + busy
        self.places[kind] += 1
        for other in task.then:
            other.waits_for -= 1
            if other.number < 0 and other.waits_for == 0:  # all scores are there
                for waiting in other.then:
                    waiting.waits_for -= 1
                    self._offer(waiting)
            else:
                self._offer(other)
        self._assign(kind)
