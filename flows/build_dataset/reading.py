"""The parts of a corpus as tasks, as many at a time as the build has workers; `ingest` then puts them together.

With a limit of documents `ingest` reads part by part itself, and no further than it must; so it does with workers of a
scheduler elsewhere, as only the flow is promised the corpus. Which parts there are is not decided here.
"""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed

from flows.runners import tasks_at_once, workers_are_here
from tasks.build_spec import BuildSpec
from tasks.corpus import PartSpec, part_specs
from tasks.reading import read_in_process
from tasks.stage import Inputs
from tasks.stages.ingest import CORPUS, INGEST, READ


@task(name=READ.name, cache_policy=NO_CACHE)
def _read(parts: list[PartSpec]) -> None:
    read_in_process(parts)


def read_corpus_parts(spec: BuildSpec, workers: int) -> None:
    """Read the parts of a corpus that were not read before, unless its ingest is finished; inside `use_runner`."""
    if spec.ingest.limit is not None or not workers_are_here():
        return
    if spec.store().read_commit(INGEST.shard_spec(Inputs(spec, CORPUS)).key) is not None:
        return
    parts = part_specs(spec)
    at_once = min(tasks_at_once(workers), len(parts))
    if at_once > 1:
        for future in as_completed([_read.submit(parts[first::at_once]) for first in range(at_once)]):
            future.result()
