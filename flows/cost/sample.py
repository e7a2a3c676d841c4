"""What a finished build says of its costs: counters of its commits, also reused ones, as rates by stage and tool.

Rates are per unit of work (a document, a draw, a call), so that other sizes, k and m can be computed from them.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.shards.cpu_time import CPU_SECONDS, MODEL_CPU_SECONDS
from tasks.shards.stage import LM_TOKENS
from toolformer_core.errors import UsageError
from warehouse.store import Store

# Stage -> the sum that says how much work it had.
_UNITS = {"prefilter": "documents in", "sample": "documents in", "execute": "calls", "score": "calls kept"}


@dataclass(slots=True)
class _Totals:
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # counters, and rows as `calls kept`
    config: Mapping[str, Any] = field(default_factory=dict)  # of the last commit


@dataclass(frozen=True, slots=True)
class SampleBuild:
    source: str  # for people: which folder and run
    model: str  # as the build named it
    totals: Mapping[tuple[str, str], _Totals]  # by stage and tool
    documents: int
    examples: Mapping[tuple[str, float], int]  # tool, tau_f -> documents of C* with a call of it

    def _of(self, stage: str, tool: str) -> _Totals:
        return self.totals.get((stage, tool), _Totals())

    def scan_tokens(self, tool: str, draw_tokens: float) -> float:
        """Return the LM tokens of a document's scan: all but those of its samples, and at least half; 0 if unknown."""
        sums = self._of("sample", tool).sums
        tokens = max(sums[LM_TOKENS] - sums["samples in"] * draw_tokens, sums[LM_TOKENS] / 2)
        return tokens / sums["documents in"] if sums["documents in"] else 0.0

    def text_tokens(self, draw_tokens: float) -> float:
        """Return the tokens of a document, from its scans, which read it twice; 0 if unknown."""
        scans = [self.scan_tokens(tool, draw_tokens) for stage, tool in self.totals if stage == "sample"]
        texts = [scan / 2 for scan in scans if scan]
        return sum(texts) / max(1, len(texts))

    def sampled_alike(self, tool: str, model: str, draw_form: str, decoys: int) -> bool:
        """Return whether a tool's calls were drawn and scored so."""
        drawn, scored = self._of("sample", tool).config, self._of("score", tool).config
        return (self.model, drawn.get("draw_form", "free"), scored.get("decoys", 0)) == (model, draw_form, decoys)

    def rates(self, tool: str, tau_f: float, draw_tokens: float, same_samples: bool) -> dict[str, float]:
        """Return a tool's rates by assumptions, as far as known; none of samples and tokens without `same_samples`."""
        if ("sample", tool) not in self.totals:
            return {}
        found: dict[str, tuple[float, float]] = {}  # name -> dividend, divisor; none where the latter is 0
        sums = {stage: self._of(stage, tool).sums for stage in _UNITS}
        for stage, unit in _UNITS.items():
            found[f"{stage}_ms"] = 1000 * sums[stage][CPU_SECONDS], sums[stage][unit]
        filtered, drawn, executed, scored = sums.values()
        ok = drawn["samples kept"]
        found["kept_share"] = filtered["documents kept"], filtered["documents in"]
        found["call_seconds"] = executed["tool_seconds"], executed["calls"]
        found["calls_per_ok_draw"] = executed["calls"], ok
        found["scored_per_ok_draw"] = scored["calls kept"], ok
        if same_samples and drawn["documents in"] and drawn["samples in"]:
            config = self._of("sample", tool).config
            found["scan_tokens"] = self.scan_tokens(tool, draw_tokens), 1
            found["ok_share"] = ok, drawn["samples in"]
            found["samples_of_km"] = drawn["samples in"], drawn["documents in"] * config["top_k"] * config["samples"]
            found["score_tokens"] = scored[LM_TOKENS], scored["calls kept"]
            for stage in ("sample", "score"):
                found[f"{stage}_model_us"] = 1e6 * sums[stage][MODEL_CPU_SECONDS], sums[stage][LM_TOKENS]
        counts = {tau: count for (owner, tau), count in self.examples.items() if owner == tool}
        if counts:
            nearest = min(counts, key=lambda tau: (abs(tau - tau_f), tau))
            found["examples"] = counts[nearest], self.documents
        return {name: dividend / divisor for name, (dividend, divisor) in found.items() if divisor}


def read_sample(data: str) -> SampleBuild | None:
    """Return the last completed build of a data folder or URL; None if nothing was built there."""
    store = Store(data)
    runs = [run for run in store.runs() if any(key.stage == "sample" for key in run.commits)]
    completed = [run for run in runs if run.state == "completed"]
    if not completed:
        if runs:
            raise UsageError(f"no build in {store.root} was completed: end it (the same toolformer build), then plan")
        return None
    run = completed[-1]
    totals: dict[tuple[str, str], _Totals] = defaultdict(_Totals)
    for commit in store.commits_by_id(key.id for key in run.commits):
        total = totals[commit.stage, commit.tool]
        total.config = commit.config
        for name, value in commit.counters.items():
            total.sums[name] += value
        for counts in commit.balances:
            total.sums[f"{counts.unit} in"] += counts.rows_in
            total.sums[f"{counts.unit} kept"] += counts.kept
    filtered = [int(total.sums["documents in"]) for (stage, _), total in totals.items() if stage == "prefilter"]
    documents = max(filtered, default=0)
    examples: dict[tuple[str, float], int] = {}
    for card in store.datasets([run.dataset] if run.dataset else []):
        examples |= {(tool, tau_f): count for tool, tau_f, count in card.yields}
        examples |= {(tool, card.thresholds[tool]): n for tool, n in card.counts.items() if tool in card.thresholds}
    return SampleBuild(
        f"{documents:,} documents in {store.root}, run {run.run_id}", run.model, totals, documents, examples
    )
