"""The plan of an evaluation: which arms run, at which k, with which models and tools.

This module does not know how an arm answers, or when an answer is right.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from flows.evaluate.parameters import EvaluateParameters
from tasks.specs.evaluation_spec import ARMS, TRIGGER_ARM, Benchmark, Evaluation
from tasks.training.registry import FinishedTraining, finished_finetunes
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.evaluate.items import Task
from warehouse.store import Store


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    task: Task
    benchmark: Benchmark
    evaluations: tuple[Evaluation, ...]
    tracking: str  # MLflow's server or database

    def names(self) -> dict[Evaluation, str]:
        """Return the evaluations with the names under which their predictions are stored."""
        return {e: e.name(self.benchmark) for e in self.evaluations}


def finished_trainings(store: Store) -> list[FinishedTraining]:
    """Return the finished trainings of a data folder; data at a URL has none."""
    return finished_finetunes(Path(store.root) / "finetunes") if store.is_local else []


def choose_arms(
    p: EvaluateParameters, store: Store, models: Mapping[str, str], *, with_tools: bool
) -> list[tuple[str, int]]:
    """Return the arms with their k, grouped by model; an arm with tools at k = 0 becomes the arm without tools.

    Without `arms`, every arm whose model exists is chosen, the one with thresholds only if they are given.

    Args:
        models: the existing models: `base`, `cc`, `toolformer` -> name or folder.
        with_tools: False: the task offers no tools.
    """
    wanted = [arm.strip().lower() for arm in p.arms]
    for arm in wanted:
        if arm not in ARMS:
            raise UnknownNameError("arm", arm, ARMS)
        if ARMS[arm][0] not in models:
            which = ARMS[arm][0]
            others = ", ".join(sorted({one.base for one in finished_trainings(store) if one.arm == which}))
            there = f" (there are trainings of: {others})" if others else ""
            raise UsageError(
                f"the arm {arm} needs a model finetuned from {p.model}, and no finished one lies in "
                f"{p.data}/finetunes{there}: run toolformer finetune --arm {which} --model {quote(p.model)}, or give "
                f"--{which} PATH"
            )
    if not p.k or min(p.k) < 0:
        raise UsageError(f"--k: give figures of at least 0, e.g. 0,1,3,10 (got {p.k})")
    ks = sorted(set(p.k))
    chosen = set(wanted)
    if not wanted:
        chosen = {arm for arm, (which, _) in ARMS.items() if which in models and (arm != TRIGGER_ARM or p.trigger)}
    if p.trigger and TRIGGER_ARM not in chosen:
        raise UsageError(f"--trigger has no effect without the arm {TRIGGER_ARM}, which needs a finetuned model")
    out: set[tuple[str, int]] = set()
    for arm in chosen:
        which, on = ARMS[arm]
        off = "base" if which == "base" else "toolformer-disabled"
        if not on:
            out.add((arm, 0))
        elif with_tools:
            out |= {(arm, k) if k else (off, 0) for k in ks}
    if not out:
        raise UsageError(f"{p.task} is evaluated without tools; name an arm without: base, cc, toolformer-disabled")
    order = ("base", "base+tools", "cc", "toolformer-disabled", "toolformer", TRIGGER_ARM)
    return sorted(out, key=lambda one: (order.index(one[0]), one[1]))
