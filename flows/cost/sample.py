"""What a finished build says of its costs: counters of its commits, added up per stage and tool, as rates.

Rates are per unit of work (a document, a draw, a call), so that a build of another size, or with other k and m, can be
told from them. The commits of the last completed build count, those that it reused included. No data file is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.cpu_time import CPU_SECONDS, MODEL_CPU_SECONDS
from tasks.stage import LM_TOKENS
from toolformer_core.errors import UsageError
from warehouse.commits import Commit
from warehouse.store import Store

__all__ = ["Sample", "StageTotals", "read_sample"]

_ANNOTATION = "sample"  # the stage without which there is nothing to learn from


@dataclass(slots=True)
class StageTotals:
    """Sums over the commits of one stage and tool."""

    commits: int = 0
    seconds: float = 0.0  # on the clock, without waiting for the model
    own_cpu: float = 0.0  # seconds; all `seconds` where a commit is older than this counter
    model_cpu: float = 0.0  # seconds
    lm_tokens: float = 0.0
    bytes: float = 0.0  # of data files, rejects included
    counters: dict[str, float] = field(default_factory=dict)
    rows_in: dict[str, int] = field(default_factory=dict)  # unit -> rows
    kept: dict[str, int] = field(default_factory=dict)  # unit -> rows
    k_times_m: int = 0  # draws that a document may have, of `sample`
    positions: str = "trigger"  # what these are chosen by, of `sample`
    draw_form: str = "free"  # of `sample`

    def add(self, commit: Commit) -> None:
        """Add a commit."""
        self.commits += 1
        self.seconds += commit.seconds
        self.own_cpu += commit.counters.get(CPU_SECONDS, commit.seconds)
        self.model_cpu += commit.counters.get(MODEL_CPU_SECONDS, 0.0)
        self.lm_tokens += commit.counters.get(LM_TOKENS, 0)
        self.bytes += sum(file.bytes for file in commit.files)
        for name, value in commit.counters.items():
            self.counters[name] = self.counters.get(name, 0.0) + value
        for counts in commit.balances:
            self.rows_in[counts.unit] = self.rows_in.get(counts.unit, 0) + counts.rows_in
            self.kept[counts.unit] = self.kept.get(counts.unit, 0) + counts.kept
        self.k_times_m = max(self.k_times_m, _k_times_m(commit.config))
        self.positions = commit.config.get("positions", self.positions)
        self.draw_form = commit.config.get("draw_form", self.draw_form)


@dataclass(frozen=True, slots=True)
class Sample:
    """A finished build."""

    source: str  # for people: which folder and run
    model: str  # as the build named it
    totals: Mapping[tuple[str, str], StageTotals]  # by stage and tool
    documents: int
    examples: Mapping[str, int]  # tool -> documents of C* with a call of it

    def of(self, stage: str, tool: str = "") -> StageTotals | None:
        """Return the sums of a stage for a tool; None if the build had none, or it had nothing to do."""
        return self.totals.get((stage, tool))

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that were annotated."""
        return tuple(tool for stage, tool in self.totals if stage == _ANNOTATION)


def read_sample(data: str) -> Sample | None:
    """Return the last completed build of a data folder or URL; None if nothing was built there.

    Raises:
        UsageError: builds were begun there and none was completed.
    """
    store = Store(data)
    runs = [run for run in store.runs() if any(key.stage == _ANNOTATION for key in run.commits)]
    completed = [run for run in runs if run.state == "completed"]
    if not completed:
        if runs:
            raise UsageError(f"no build in {store.root} was completed: end it (the same toolformer build), then plan")
        return None
    run = completed[-1]
    totals = total(store.commits_by_id(key.id for key in run.commits))
    documents = max(
        (t.rows_in.get("documents", 0) for (stage, _), t in totals.items() if stage == "prefilter"), default=0
    )
    examples = {
        tool: n
        for dataset in store.datasets([run.dataset] if run.dataset else [])
        for tool, n in dataset.counts.items()
    }
    source = f"{documents:,} documents in {store.root}, run {run.run_id}"
    return Sample(source, run.model, totals, documents, examples)


def total(commits: Iterable[Commit]) -> dict[tuple[str, str], StageTotals]:
    """Return the sums of some commits by stage and tool."""
    totals: dict[tuple[str, str], StageTotals] = {}
    for commit in commits:
        totals.setdefault((commit.stage, commit.tool), StageTotals()).add(commit)
    return totals


def _k_times_m(config: Mapping[str, Any]) -> int:
    return int(config.get("top_k", 0)) * int(config.get("draws", 0))
