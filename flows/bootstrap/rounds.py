"""What a round came to: calls drawn and kept, tokens spent, the checkpoint, its answers; and what it gained.

Figures are read from the round's commits and its version of C*, so a round that was found done tells the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc

from flows.build_dataset.flow import BuildResult
from flows.evaluate.metrics import EvaluateResult
from flows.finetune.flow import FinetuneResult
from tasks.stage import LM_TOKENS
from warehouse.commits import DataFile
from warehouse.store import Store

__all__ = ["Answers", "Round", "gain_of", "round_of"]

_MODEL_STAGES = ("sample", "score")


@dataclass(frozen=True, slots=True)
class Answers:
    """How a round's model did on one benchmark; shares in [0, 1]."""

    accuracy: float | None  # with tools; None: the benchmark measures perplexity
    disabled: float | None  # without
    call_rate: float | None  # of items on which a tool was called
    perplexity: float | None  # calls disabled; None: the benchmark has answers


@dataclass(frozen=True, slots=True)
class Round:
    """One round of self-teaching."""

    number: int  # from 0
    sampled_by: str
    scored_by: str
    dataset: str  # name@version
    documents: int  # of the corpus
    examples: int  # documents with a kept call
    draws: int
    well_formed: int  # draws that are a call of their tool
    calls: dict[str, int]  # tool -> calls in C*
    lm_tokens: int  # that sampling and scoring passed through their models, padding included
    checkpoint: str  # folder of the training; "": there was nothing to train on
    dev_perplexity: float | None
    answers: dict[str, Answers] = field(default_factory=dict)  # benchmark -> figures

    @property
    def calls_per_thousand(self) -> float:
        """Kept calls for a thousand documents."""
        return 1000 * sum(self.calls.values()) / self.documents if self.documents else 0.0

    @property
    def calls_per_million_tokens(self) -> float:
        """Kept calls for a million tokens that passed through a model."""
        return 1e6 * sum(self.calls.values()) / self.lm_tokens if self.lm_tokens else 0.0

    @property
    def accuracy(self) -> float | None:
        """The mean accuracy with tools over all benchmarks with answers; None without any."""
        shares = [one.accuracy for one in self.answers.values() if one.accuracy is not None]
        return sum(shares) / len(shares) if shares else None


def round_of(
    store: Store,
    number: int,
    models: tuple[str, str],
    built: BuildResult,
    trained: FinetuneResult | None,
    evaluated: Sequence[EvaluateResult],
) -> Round:
    """Return a finished round.

    Args:
        store: of the data folder.
        number: of the round.
        models: the one that sampled and the one that scored, as the user named them.
        built, trained, evaluated: what its flows returned; no training where nothing was kept.

    Raises:
        StoreError: commits or files of the round cannot be read.
    """
    [run] = store.runs([built.run_id])
    documents = draws = well_formed = tokens = 0
    for key in run.commits:
        commit = store.read_commit(key)
        if commit is None:
            continue
        rows = {one.unit: one for one in commit.balances}
        if key.stage.partition("_")[0] in _MODEL_STAGES:  # at every depth of chains
            tokens += int(commit.counters.get(LM_TOKENS, 0))
        if key.stage == "sample" and "draws" in rows:
            draws, well_formed = draws + rows["draws"].rows_in, well_formed + rows["draws"].kept
        if key.stage == "ingest":
            documents += sum(one.kept for one in commit.balances)
    files = next(d for d in store.datasets() if (d.name, d.version) == (built.dataset, built.version)).files
    return Round(
        number=number,
        sampled_by=models[0],
        scored_by=models[1],
        dataset=f"{built.dataset}@{built.version}",
        documents=documents,
        examples=built.examples,
        draws=draws,
        well_formed=well_formed,
        calls=_calls_by_tool(store, files),
        lm_tokens=tokens,
        checkpoint=trained.folder if trained is not None else "",
        dev_perplexity=trained.best_perplexity if trained is not None else None,
        answers={f"{one.task} {one.source}".strip(): _answers(one) for one in evaluated},
    )


def _calls_by_tool(store: Store, files: Iterable[DataFile]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for file in files:
        calls = store.read(file, columns=["calls"])["calls"].combine_chunks()
        for found in pc.value_counts(pc.struct_field(pc.list_flatten(calls), "tool")).to_pylist():
            counts[found["values"]] += found["counts"]
    return dict(sorted(counts.items()))


def _answers(result: EvaluateResult) -> Answers:
    arms = {one.arm: one for one in result.arms}
    with_tools, without = arms.get("toolformer"), arms.get("toolformer-disabled")
    return Answers(
        accuracy=with_tools.accuracy if with_tools is not None else None,
        disabled=without.accuracy if without is not None else None,
        call_rate=with_tools.call_rate if with_tools is not None else None,
        perplexity=result.perplexities[0].perplexity if result.perplexities else None,
    )


def gain_of(before: Round, after: Round) -> float:
    """Return what a round gained over the one before: mean accuracy where both have it, else calls per thousand."""
    if before.accuracy is not None and after.accuracy is not None:
        gain = after.accuracy - before.accuracy
        return gain if math.isfinite(gain) else 0.0
    return after.calls_per_thousand - before.calls_per_thousand
