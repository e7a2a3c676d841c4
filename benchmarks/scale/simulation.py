"""A build as discrete events: when its tasks are submitted, run, fail and end, on any number of workers.

The shards are cut into as many groups as the flow's own code says (`flows.build_dataset.groups`), and a shard whose
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.scale.world import Outcome, Stage, World
from flows.build_dataset.groups import group_count
from flows.cutting import tasks_allowed
from warehouse.claims import LEASE_S, RENEWALS, pauses

__all__ = ["retry_delay", "simulate"]

_CHUNKS = 8  # of a task at most; more only make the simulation slower
_CARD, _WORKER = "card", "worker"  # places, and queues of tasks for them


def simulate(world: World) -> Outcome:
    """Return what becomes of a build; the same world gives the same outcome."""
    return _Simulation(world).run()


def retry_delay(lease_left_s: float) -> float:
    """Return when somebody who polls for a claim from now on gets it, if its lease ends after so many seconds."""
    waited = 0.0
    for pause in pauses():
        if waited >= lease_left_s:
            break
        waited += pause
    return waited


@dataclass(slots=True, eq=False)
class _Task:
    """A task, or what is left of it."""

    number: int  # order of submission
    stage: Stage
    documents: float
    chunk: float  # documents
    left: float  # documents whose shards are not committed
    waits_for: int = 0  # tasks
    then: list[_Task] = field(default_factory=list)  # tasks that wait for this one
    submitted: bool = False
    is_scored: bool = False  # the last stage of a tool
    held_until: float = 0.0  # the claim of a dead worker's shard

    @property
    def ready(self) -> bool:
        return self.submitted and self.waits_for == 0

    @property
    def unfinished(self) -> bool:
        return self.left > 1e-6 * self.documents  # floats


@dataclass(slots=True)
class _Attempt:
    """A task at a place, until it is finished or its worker dies."""

    task: _Task
    place: str
    card: int  # whose turn it waits for; -1: it asks no model
    began: float

    @property
    def documents(self) -> float:
        """Of the next chunk."""
        return min(self.task.chunk, self.task.left)


class _Simulation:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random.Random(world.seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = itertools.count()
        self.free = {_CARD: world.cards * world.card_tasks, _WORKER: world.workers}
        if world.shared:
            self.free = {_CARD: world.workers, _WORKER: 0}
        self.queues: dict[str, list[tuple[int, _Task]]] = {_CARD: [], _WORKER: []}
        self.core_free = [0.0] * world.cores  # heap: when each core is free
        self.card_free = [0.0] * world.cards  # when each card's turn is free
        self.at_card = [(0, card) for card in range(world.cards)]  # heap: tasks at a card, the card
        self.assembly: list[_Task] = []  # submitted once all scores are there; the last of all tasks
        self.unscored = 0
        self.model_s = self.place_s = 0.0
        self.model_first, self.model_last = math.inf, 0.0
        self.first, self.last = math.inf, 0.0
        self.flow_free = 0.0
        self.deaths = 0
        self.commits = 0.0
        self.flow_busy = 0.0

    def run(self) -> Outcome:
        world = self.world
        tasks = self._tasks()
        self._submit(tasks[: len(tasks) - len(self.assembly)], world.start_s)
        while self.events:
            self.now, _, action = heapq.heappop(self.events)
            action()
        span = self.last - self.first
        model_span = max(self.model_last - self.model_first, 0.0)
        return Outcome(
            makespan_s=max(self.last, self.flow_free) + world.end_s,
            work_s=span,
            tasks=len(tasks),
            commits=self.commits,
            deaths=self.deaths,
            card_span_s=model_span,
            card_busy=self.model_s / (world.cards * model_span) if model_span > 0 else 0.0,
            worker_busy=self.place_s / (world.places * span) if span else 0.0,
            flow_busy_s=self.flow_busy,
            submitting_s=len(tasks) * world.submit_s,
        )

    # What is to be done, and in which order

    def _tasks(self) -> list[_Task]:
        """Return the tasks of all groups in the order in which the flow submits them."""
        world = self.world
        by_tool = {tool: list(stages) for tool, stages in itertools.groupby(world.stages, key=lambda s: s.tool)}
        last = by_tool.pop("", [])
        tasks: list[_Task] = []

        def add(stage: Stage, documents: float, before: Sequence[_Task]) -> _Task:
            chunks = min(_CHUNKS, math.ceil(documents / world.shard_documents))
            task = _Task(len(tasks), stage, documents, documents / chunks, documents, waits_for=len(before))
            for other in before:
                other.then.append(task)
            tasks.append(task)
            return task

        groups = self._groups()
        for documents in groups:
            ends = []
            for stages in by_tool.values():
                before: list[_Task] = []
                for stage in stages:
                    before = [add(stage, documents, before)]
                ends += before
            if world.all_scores_first:
                self.unscored += len(ends)
                for task in ends:
                    task.is_scored = True
            else:
                for stage in last:
                    add(stage, documents, ends)
        if world.all_scores_first:
            self.assembly = [add(stage, documents, []) for documents in groups for stage in last]
        return tasks

    def _groups(self) -> list[float]:
        """Return the documents of each group, as the flow cuts them."""
        world = self.world
        shards = math.ceil(world.documents / world.shard_documents)
        groups = group_count(
            shards,
            world.documents * max(stage.cpu_s + stage.model_s for stage in world.stages),
            at_once=world.places,
            tasks_a_group=len(world.stages),
            tasks_at_most=tasks_allowed(world.places if world.dask else 0),
        )
        ends = [shards * number // groups for number in range(groups + 1)]
        return [(end - start) * world.documents / shards for start, end in itertools.pairwise(ends)]

    # The flow's process

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time, next(self.count), action))

    def _submit(self, tasks: Sequence[_Task], start: float) -> None:
        """Hand tasks over, one after another."""

        def submitted(task: _Task) -> None:
            task.submitted = True
            self._offer(task)

        for number, task in enumerate(tasks, start=1):
            self._at(start + number * self.world.submit_s, partial(submitted, task))

    def _note(self, commits: int) -> None:
        """Keep the flow's process busy with commits, as soon as it is free."""
        busy = commits * self.world.note_s
        self.commits += commits
        self.flow_busy += busy
        self.flow_free = max(self.flow_free, self.now) + busy

    # Tasks and places

    def _offer(self, task: _Task) -> None:
        """Put a task into the queue for its places, if it is ready."""
        if task.ready:
            queue = _CARD if self.world.shared or task.stage.model_s else _WORKER
            heapq.heappush(self.queues[queue], (task.number, task))
            self._assign()

    def _assign(self) -> None:
        """Begin waiting tasks where places are free: at cards those that ask the model first."""
        for queue, places in ((_CARD, (_CARD,)), (_WORKER, (_WORKER, _CARD))):
            for place in places:
                while self.free[place] and self.queues[queue]:
                    self._begin(heapq.heappop(self.queues[queue])[1], place)

    def _begin(self, task: _Task, place: str) -> None:
        self.free[place] -= 1
        self.first = min(self.first, self.now)
        card = self._least_busy_card() if task.stage.model_s else -1
        held = retry_delay(task.held_until - self.now) if task.held_until > self.now else 0.0
        self._next_chunk(_Attempt(task, place, card, self.now), self._after_overhead() + self.world.task_s + held)

    def _after_overhead(self) -> float:
        """Return when a core has done what a task costs beside its work."""
        if not self.core_free:
            return self.now
        end = max(self.now, self.core_free[0]) + self.world.task_cpu_s
        heapq.heapreplace(self.core_free, end)
        return end

    def _least_busy_card(self) -> int:
        """Return the card with the fewest tasks; it has one more from now on."""
        tasks, card = heapq.heappop(self.at_card)
        heapq.heappush(self.at_card, (tasks + 1, card))
        return card

    def _leave(self, attempt: _Attempt) -> None:
        """End an attempt; its place is not free yet."""
        self.place_s += self.now - attempt.began
        if attempt.card >= 0:
            self.at_card = [(tasks - (card == attempt.card), card) for tasks, card in self.at_card]
            heapq.heapify(self.at_card)

    def _free(self, place: str) -> None:
        self.free[place] += 1
        self._assign()

    def _finished(self, attempt: _Attempt) -> None:
        task = attempt.task
        self._leave(attempt)
        self.last = max(self.last, self.now)
        self._note(math.ceil(task.documents / self.world.shard_documents))
        for other in task.then:
            other.waits_for -= 1
            self._offer(other)
        if task.is_scored:
            self.unscored -= 1
            if self.unscored == 0:
                self._submit(self.assembly, self.now)
        self._free(attempt.place)

    def _died(self, attempt: _Attempt) -> None:
        """A worker dies: its place is free after a restart, and its task is queued for others."""
        world, task = self.world, attempt.task
        self._leave(attempt)
        self.deaths += 1
        if world.claims:  # it renewed its lease at most a renewal's interval ago
            task.held_until = self.now + LEASE_S - self.random.uniform(0, LEASE_S / RENEWALS)
        self._at(self.now + world.restart_s, lambda: self._free(attempt.place))
        self._offer(task)

    # Chunks of a task

    def _next_chunk(self, attempt: _Attempt, start: float) -> None:
        """Begin the next chunk at `start`, or finish the task."""
        if not attempt.task.unfinished:
            self._at(start, lambda: self._finished(attempt))
            return
        seconds, death = self._beside_model(attempt), start + self._life()
        if attempt.card >= 0:
            self._at(start + seconds, lambda: self._take_card(attempt, death))
        else:
            self._end_chunk(attempt, start, start + seconds, death)

    def _beside_model(self, attempt: _Attempt) -> float:
        """Return the seconds in which a chunk computes, reads, writes and asks the tool."""
        world, stage, documents = self.world, attempt.task.stage, attempt.documents
        requests = max(1, round(documents / world.shard_documents * world.requests)) if world.request_s else 0
        waits = self.random.gammavariate(requests, world.request_s) if requests else 0.0
        calls = math.ceil(documents * stage.calls / world.at_once) * stage.call_s * world.slow_tool
        return (documents * stage.cpu_s + calls) * self._straggling() + waits

    def _straggling(self) -> float:
        world = self.world
        if world.straggler_share and self.random.random() < world.straggler_share:
            return world.straggler_factor
        return 1.0

    def _life(self) -> float:
        """Return how long a worker lives from now on."""
        return self.random.expovariate(self.world.fail_per_hour / 3600) if self.world.fail_per_hour else math.inf

    def _take_card(self, attempt: _Attempt, death: float) -> None:
        """Wait for the card's turn, and hold it for a chunk's model work."""
        card = attempt.card
        begin = max(self.now, self.card_free[card])
        end = begin + attempt.documents * attempt.task.stage.model_s * self._straggling()
        until = min(end, max(begin, death))  # a dead worker holds its card no longer
        self.card_free[card] = until
        self.model_s += until - begin
        self.model_first, self.model_last = min(self.model_first, begin), max(self.model_last, until)
        self._end_chunk(attempt, begin, end, death)

    def _end_chunk(self, attempt: _Attempt, start: float, end: float, death: float) -> None:
        """End a chunk that is worked on from `start` to `end`; if its worker dies before, its whole shards count."""
        task, documents, shard = attempt.task, attempt.documents, self.world.shard_documents
        if death < end:
            task.left -= documents * max(0.0, death - start) / (end - start) // shard * shard
            self._at(max(self.now, death), lambda: self._died(attempt))
            return

        def ended() -> None:
            task.left -= documents
            self._next_chunk(attempt, self.now)

        self._at(end, ended)
