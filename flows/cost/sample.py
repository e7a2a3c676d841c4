"""What a finished build says of its costs: counters of its commits, added up per stage and tool, as rates.

Rates are per unit of work (a document, a draw, a call), so that a build of another size, or with other k and m, can be
told from them. The commits of the last completed build count, those that it reused included. No data file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tasks.cpu_time import CPU_SECONDS, MODEL_CPU_SECONDS
from tasks.stage import LM_TOKENS
from toolformer_core.errors import UsageError
from warehouse.commits import Commit
from warehouse.store import Store

__all__ = ["UNITS", "MeasuredTool", "Sample", "StageTotals", "read_sample"]

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
    wordings: int = 1  # of the prompt, of `sample`

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
        self.k_times_m = max(self.k_times_m, int(commit.config.get("top_k", 0)) * int(commit.config.get("draws", 0)))
        self.positions = commit.config.get("positions", self.positions)
        self.draw_form = commit.config.get("draw_form", self.draw_form)
        self.wordings = max(self.wordings, len(commit.config.get("wordings", ())))

    def scanned_tokens(self, draw_tokens: float) -> float:
        """Return the tokens of the scans of `sample`: all but those of its draws, and at least half.

        Args:
            draw_tokens: of a draw; commits count the draws, not their tokens.
        """
        return max(self.lm_tokens - self.rows_in.get("draws", 0) * draw_tokens, self.lm_tokens / 2)


@dataclass(frozen=True, slots=True)
class Sample:
    """A finished build."""

    source: str  # for people: which folder and run
    model: str  # as the build named it
    totals: Mapping[tuple[str, str], StageTotals]  # by stage and tool
    documents: int
    examples: Mapping[tuple[str, float], int]  # tool, tau_f -> documents of C* with a call of it

    def of(self, stage: str, tool: str = "") -> StageTotals | None:
        """Return the sums of a stage for a tool; None if the build had none, or it had nothing to do."""
        return self.totals.get((stage, tool))

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that were annotated."""
        return tuple(tool for stage, tool in self.totals if stage == _ANNOTATION)


# Stage -> the unit of its rows in that its work grows with.
UNITS = {
    "prefilter": "documents",
    "relevance": "documents",
    "sample": "documents",
    "execute": "calls",
    "score": "calls",
}


class MeasuredTool:
    """A tool's rates in a sample build; None where it has none."""

    def __init__(self, sample: Sample | None, tool: str) -> None:
        self._sample = sample if sample is not None and tool in sample.tools else None
        self._tool = tool

    def stage(self, name: str) -> StageTotals | None:
        return self._sample.of(name, self._tool) if self._sample is not None else None

    def units(self, stage: str) -> float:
        """Return how much work a stage had: documents, calls of the tool, or scored calls."""
        totals = self.stage(stage)
        if totals is None:
            return 0
        if stage == "execute":
            return totals.counters.get("calls", 0)
        if stage == "score":
            return totals.kept.get("calls", 0)
        return totals.rows_in.get(UNITS[stage], 0)

    def per_unit(self, stage: str, figure: Callable[[StageTotals], float]) -> float | None:
        totals, units = self.stage(stage), self.units(stage)
        return figure(totals) / units if totals is not None and units else None

    def beyond(self, stage: str, figure: Callable[[StageTotals], float], fixed: float) -> float | None:
        """Return a figure per unit of work, without what each commit costs whatever it holds."""
        return self.per_unit(stage, lambda totals: max(0.0, figure(totals) - fixed * totals.commits))

    def kept_share(self, stage: str, unit: str) -> float | None:
        """Return the share of a stage's rows that it kept."""
        totals = self.stage(stage)
        rows = totals.rows_in.get(unit, 0) if totals is not None else 0
        return totals.kept.get(unit, 0) / rows if totals is not None and rows else None

    def ok_share(self, draw_form: str) -> float | None:
        """Return the share of draws that are calls; None if the build drew them in the other form."""
        totals = self.stage("sample")
        same = totals is not None and totals.draw_form == draw_form
        return self.kept_share("sample", "draws") if same else None

    def draws(self, k_times_m: int, positions: str) -> float | None:
        """Return the draws per document sampled, in proportion to k * m if the build had others.

        None if only one of the build and the plan chooses positions by need alone, since there tau_s excludes none.
        """
        totals, documents = self.stage("sample"), self.units("sample")
        if totals is None or not documents or (totals.positions == "need") != (positions == "need"):
            return None
        per_document = totals.rows_in.get("draws", 0) / documents
        return per_document * (k_times_m / totals.k_times_m if totals.k_times_m else 1.0)

    def per_ok_draw(self, stage: str, counter: str = "") -> float | None:
        """Return a stage's calls per draw that is a call; of a counter, or of its units."""
        sampled, totals = self.stage("sample"), self.stage(stage)
        ok = sampled.kept.get("draws", 0) if sampled is not None else 0
        if totals is None or not ok:
            return None
        return (totals.counters.get(counter, 0) if counter else self.units(stage)) / ok

    def examples(self, tau_f: float) -> float | None:
        """Return the examples of C* per document, at the tau_f on the dataset's card that is nearest."""
        sample = self._sample
        if sample is None or not sample.documents:
            return None
        counts = {tau: count for (tool, tau), count in sample.examples.items() if tool == self._tool}
        nearest = min(counts, key=lambda tau: (abs(tau - tau_f), tau), default=None)
        return None if nearest is None else counts[nearest] / sample.documents

    def call_seconds(self) -> float | None:
        totals = self.stage("execute")
        calls = totals.counters.get("calls", 0) if totals is not None else 0
        return totals.counters.get("tool_seconds", 0) / calls if totals is not None and calls else None


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
    examples: dict[tuple[str, float], int] = {}
    for card in store.datasets([run.dataset] if run.dataset else []):
        examples |= {(tool, tau_f): count for tool, tau_f, count in card.yields}
        examples |= {
            (tool, card.thresholds[tool]): count for tool, count in card.counts.items() if tool in card.thresholds
        }
    source = f"{documents:,} documents in {store.root}, run {run.run_id}"
    return Sample(source, run.model, totals, documents, examples)


def total(commits: Iterable[Commit]) -> dict[tuple[str, str], StageTotals]:
    """Return the sums of some commits by stage and tool."""
    totals: dict[tuple[str, str], StageTotals] = {}
    for commit in commits:
        totals.setdefault((commit.stage, commit.tool), StageTotals()).add(commit)
    return totals
