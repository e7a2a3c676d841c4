"""Carries jobs out in threads, one for each job at a time; each thread has a worker of its own.

The thread of an abandoned job ends when its call returns, if ever; it does not keep the process alive.
"""

import threading
from collections import deque
from collections.abc import Callable

from toolformer_core.tools.base import Tool
from toolformer_core.tools.execution.asking import Job, Outcome
from toolformer_core.tools.responses import run_questions


class Worker:
    """Carries out one job after another, in the thread that calls it. It asks the tool there, uninterrupted."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def answer(self, job: Job) -> Outcome:
        job.begin()
        return run_questions(self._tool, job.questions)

    def stop(self) -> None:
        """Interrupt the job that is under way, if that can be done, for good; called from any thread."""

    def close(self) -> None:
        """Free what it holds; called by its own thread."""


class ThreadWorkers:
    """Threads that carry out jobs."""

    def __init__(self, name: str, make_worker: Callable[[], Worker]) -> None:
        self._name = name
        self._make_worker = make_worker
        self._jobs: deque[Job] = deque()
        self._under_way: set[Job] = set()
        self._ready = threading.Condition()
        self._free = 0  # threads that are idle or about to look for a job
        self._closed = False

    def start(self, job: Job) -> None:
        """Have a job carried out; return at once."""
        with self._ready:
            self._jobs.append(job)
            if len(self._jobs) <= self._free:
                self._ready.notify()
                return
            self._free += 1
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def abandon(self, job: Job) -> None:
        """Give a job up: its `finish` need not be called, and what carried it out is replaced."""
        with self._ready:
            job.abandoned = True
            if job in self._jobs:
                self._jobs.remove(job)
            self._under_way.discard(job)
        if job.worker is not None:
            job.worker.stop()

    def close(self) -> None:
        with self._ready:
            self._closed = True
            jobs = [*self._jobs, *self._under_way]
            self._ready.notify_all()
        for job in jobs:
            self.abandon(job)

    def _work(self) -> None:
        worker = self._make_worker()
        try:
            while (job := self._next_job(worker)) is not None:
                outcome = worker.answer(job)
                with self._ready:
                    if job.abandoned:
                        return
                    self._under_way.discard(job)
                    self._free += 1
                job.finish(outcome)
                del job, outcome  # an idle thread holds no answers
        finally:
            worker.close()

    def _next_job(self, worker: Worker) -> Job | None:
        with self._ready:
            self._ready.wait_for(lambda: self._jobs or self._closed)
            self._free -= 1
            if self._closed:
                return None
            job = self._jobs.popleft()
            job.worker = worker
            self._under_way.add(job)
            return job
