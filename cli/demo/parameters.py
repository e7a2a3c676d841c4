"""The parameters of `toolformer demo`: the whole loop once, small, on the embedded model and the small world's texts.

The build uses the paper's thresholds but, to save time, at most five positions and five draws for every tool (the paper
uses 20 and 10 for Calculator and MT). The training differs from the paper: a few hundred texts and 5 million weights
need a larger learning rate and fewer, smaller steps than 25,000 examples per tool and 6.7 billion weights. Perplexity
is measured once, at the end, so that the last checkpoint is used: the one with the best perplexity has hardly learnt to
use tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flows.build_dataset.parameters import BuildParameters
from flows.evaluate.metrics import EvaluateResult
from flows.evaluate.parameters import EvaluateParameters
from flows.finetune.flow import FinetuneResult
from flows.finetune.parameters import FinetuneParameters
from toolformer_core.embedded import CORPUS
from toolformer_core.finetune.split import ARMS
from warehouse.queries import rows_of

__all__ = ["DemoRow", "demo_evaluations", "demo_parameters", "demo_table", "demo_trainings"]

_NAME = "demo"


def demo_parameters(data: str, model: str = "embedded") -> BuildParameters:
    """Return the build's parameters: the paper's thresholds, fewer draws, MT for passages of three words or more."""
    return BuildParameters(
        corpus=str(CORPUS),
        data=data,
        dataset=_NAME,
        model=model,
        mt_chunk_tokens=3,
        top_k=5,
        draws=5,
        shard_documents=60,
        licence="Apache-2.0",
    )


def demo_trainings(data: str, model: str = "embedded") -> list[FinetuneParameters]:
    """Return the parameters of the demo's two trainings: on C*, and on the same documents without calls.

    Each uses one core; they run side by side.
    """
    return [
        FinetuneParameters(
            dataset=_NAME,
            data=data,
            model=model,
            arm=arm,
            profile="core",
            steps=240,
            batch=3,
            learning_rate=6e-4,
            evaluate_every=240,
        )
        for arm in ARMS
    ]


def demo_evaluations(data: str, trainings: list[FinetuneResult], model: str = "embedded") -> list[EvaluateParameters]:
    """Return the parameters of the demo's evaluations: items that need a tool, items that need none, dev documents."""
    models = {result.arm: result.folder for result in trainings}
    dev = str(Path(models["cc"]) / "dev.jsonl")
    common = {"data": data, "model": model, "cc": models["cc"], "toolformer": models["toolformer"]}
    return [
        EvaluateParameters.model_validate({"task": "small-world", "k": [1, 10], **common}),
        EvaluateParameters.model_validate({"task": "small-world-plain", "k": [10], **common}),
        EvaluateParameters.model_validate({"task": "perplexity", "path": dev, **common}),
    ]


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One row of the demo's table."""

    arm: str
    k: int  # 0: no calls
    right: dict[str, float]  # tool that the item needs, or "all" -> percent right
    called: float  # percent of these items with a call
    needless: float | None  # percent of items with a call among those that need no tool; None: not measured at this k
    perplexity: float | None  # of the dev documents, calls disabled


def demo_table(tool_items: EvaluateResult, plain_items: EvaluateResult, perplexity: EvaluateResult) -> list[DemoRow]:
    """Return the table that ends the demo, from the predictions in the warehouse.

    Args:
        tool_items: result on the items that need a tool.
        plain_items: result on the items that need none.
        perplexity: result on the dev documents.
    """
    sql = """
        SELECT evaluation, split_part(group_name, ' ', 1) AS tool, 100 * avg(correct::INT) AS right
        FROM predictions WHERE task = 'small-world' GROUP BY ALL
    """
    needless = {(arm.arm, arm.k): 100 * arm.call_rate for arm in plain_items.arms if arm.k}
    right: dict[str, dict[str, float]] = {}  # evaluation -> tool -> percent right
    for row in rows_of(Path(tool_items.snapshot), sql):
        right.setdefault(row["evaluation"], {})[row["tool"]] = row["right"]
    perplexities = {figures.arm: figures.perplexity for figures in perplexity.perplexities}
    return [
        DemoRow(
            arm=arm.arm,
            k=arm.k,
            right={**right.get(arm.evaluation, {}), "all": 100 * arm.accuracy},
            called=100 * arm.call_rate,
            needless=needless.get((arm.arm, arm.k)),
            perplexity=None if arm.k else perplexities.get(arm.arm),
        )
        for arm in tool_items.arms
    ]
