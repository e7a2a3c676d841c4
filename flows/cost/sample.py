"""What a finished build says of its costs: counters of its commits, added up per stage and tool, as rates.

Rates are per unit of work (a document, a draw, a call), so that a build of another size, or with other k and m, can be
computed from them. The commits of the last completed build count, those that it reused included. No data file is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.cpu_time import CPU_SECONDS, MODEL_CPU_SECONDS
from tasks.stage import LM_TOKENS
from toolformer_core.errors import UsageError
from warehouse.commits import Commit
from warehouse.store import Store

_ANNOTATION = "sample"  # the stage without which there is nothing to learn from


@dataclass(slots=True)
class StageTotals:
    """Sums over the commits of one stage and tool."""

    counters: dict[str, float] = field(default_factory=dict)
    rows_in: dict[str, int] = field(default_factory=dict)  # unit -> rows
    kept: dict[str, int] = field(default_factory=dict)  # unit -> rows
    config: Mapping[str, Any] = field(default_factory=dict)  # of the last commit

    def add(self, commit: Commit) -> None:
        """Add a commit."""
        self.config = commit.config
        for name, value in commit.counters.items():
            self.counters[name] = self.counters.get(name, 0.0) + value
        for counts in commit.balances:
            self.rows_in[counts.unit] = self.rows_in.get(counts.unit, 0) + counts.rows_in
            self.kept[counts.unit] = self.kept.get(counts.unit, 0) + counts.kept

    def scanned_tokens(self, draw_tokens: float) -> float:
        """Return the tokens of the scans of `sample`: all but those of its draws, and at least half.

        Args:
            draw_tokens: of a draw; commits count the draws, not their tokens.
        """
        tokens = self.counters.get(LM_TOKENS, 0.0)
        return max(tokens - self.rows_in.get("draws", 0) * draw_tokens, tokens / 2)

    def units(self, stage: str) -> float:
        """Return how much work the stage had: documents, calls of the tool, or scored calls."""
        if stage == "execute":
            return self.counters.get("calls", 0)
        return self.kept.get("calls", 0) if stage == "score" else self.rows_in.get("documents", 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """A finished build."""

    source: str  # for people: which folder and run
    model: str  # as the build named it
    totals: Mapping[tuple[str, str], StageTotals]  # by stage and tool
    documents: int
    examples: Mapping[tuple[str, float], int]  # tool, tau_f -> documents of C* with a call of it

    def text_tokens(self, draw_tokens: float) -> float | None:
        """Return the tokens of a document, from its scans: they read it twice."""
        texts = []
        for (stage, _), totals in self.totals.items():
            documents = totals.rows_in.get("documents", 0)
            if stage == _ANNOTATION and documents and totals.counters.get(LM_TOKENS):
                texts.append(totals.scanned_tokens(draw_tokens) / documents / 2)
        return sum(texts) / len(texts) if texts else None

    def sampled_alike(self, tool: str, planned: Mapping[str, Any]) -> bool:
        """Return whether a tool's calls were drawn as planned: with this model, with these settings."""
        config, scoring = (
            self.totals[stage, tool].config if (stage, tool) in self.totals else {} for stage in (_ANNOTATION, "score")
        )
        had = {
            "model": self.model,
            "draw_form": config.get("draw_form", "free"),
            "decoys": scoring.get("decoys", 0),
        }
        return had == planned

    def rates(self, tool: str, tau_f: float, draw_tokens: float, same_draws: bool) -> dict[str, float]:
        """Return a tool's rates by the names of the plan's assumptions; those that the build cannot tell are missing.

        Args:
            tool: its key.
            tau_f: the threshold; examples are those of the nearest one on the dataset's card.
            draw_tokens: of a draw.
            same_draws: whether it was sampled as it is planned; if not, nothing is told of draws and LM tokens.
        """
        of = {stage: totals for (stage, owner), totals in self.totals.items() if owner == tool}
        if _ANNOTATION not in of:
            return {}
        rates: dict[str, float] = {}
        for stage in ("prefilter", "sample", "execute", "score"):
            if stage in of and (units := of[stage].units(stage)):
                rates[f"{stage}_ms"] = 1000 * of[stage].counters.get(CPU_SECONDS, 0.0) / units
        if "prefilter" in of and (read := of["prefilter"].rows_in.get("documents")):
            rates["kept_share"] = of["prefilter"].kept.get("documents", 0) / read
        sampled, scored = of["sample"], of.get("score", StageTotals())
        documents, draws = sampled.rows_in.get("documents", 0), sampled.rows_in.get("draws", 0)
        ok, calls = sampled.kept.get("draws", 0), of.get("execute", StageTotals()).counters.get("calls", 0)
        if calls:
            rates["call_seconds"] = of["execute"].counters.get("tool_seconds", 0.0) / calls
        if ok:
            rates["calls_per_ok_draw"] = calls / ok
            rates["scored_per_ok_draw"] = scored.units("score") / ok
        if same_draws and documents and draws:
            rates["scan_tokens"] = sampled.scanned_tokens(draw_tokens) / documents
            rates["ok_share"] = ok / draws
            rates["draws_of_km"] = draws / documents / (sampled.config["top_k"] * sampled.config["draws"])
            if scored.units("score"):
                rates["score_tokens"] = scored.counters.get(LM_TOKENS, 0.0) / scored.units("score")
            for stage, totals in (("sample", sampled), ("score", scored)):
                if tokens := totals.counters.get(LM_TOKENS, 0.0):
                    rates[f"{stage}_model_us"] = 1e6 * totals.counters.get(MODEL_CPU_SECONDS, 0.0) / tokens
        counts = {tau: count for (owner, tau), count in self.examples.items() if owner == tool}
        if counts and self.documents:
            nearest = min(counts, key=lambda tau: (abs(tau - tau_f), tau))
            rates["examples"] = counts[nearest] / self.documents
        return rates


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
    totals: dict[tuple[str, str], StageTotals] = {}
    for commit in store.commits_by_id(key.id for key in run.commits):
        totals.setdefault((commit.stage, commit.tool), StageTotals()).add(commit)
    filtered = [t.rows_in.get("documents", 0) for (stage, _), t in totals.items() if stage == "prefilter"]
    documents = max(filtered, default=0)
    examples: dict[tuple[str, float], int] = {}
    for card in store.datasets([run.dataset] if run.dataset else []):
        examples |= {(tool, tau_f): count for tool, tau_f, count in card.yields}
        examples |= {(tool, card.thresholds[tool]): n for tool, n in card.counts.items() if tool in card.thresholds}
    return Sample(f"{documents:,} documents in {store.root}, run {run.run_id}", run.model, totals, documents, examples)
