"""What the parameters of an evaluation resolve to; a mistake is reported before anything is written or loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from flows.evaluate.parameters import EvaluateParameters
from flows.forms.chosen_tools import absolute_data, chosen_tools
from flows.forms.chosen_trigger import chosen_trigger
from tasks.provenance import new_run_id
from tasks.settings import tracking_uri
from tasks.specs.evaluation_spec import ARMS, TRIGGER_ARM, Benchmark, Evaluation, source_digest
from tasks.training.registry import FinishedTraining, finished_finetunes, newest_pair, trained_model
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.evaluate.answer import new_tokens_for
from toolformer_core.evaluate.items import Rule, Task
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.lm.check import check_model
from toolformer_core.lm.load import model_digest
from toolformer_core.tools.build import ToolSettings
from warehouse.store import Store

__all__ = ["EvaluationPlan", "resolve"]


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
    return finished_finetunes(Path(store.root) / "finetunes") if store.is_local else []


def choose_arms(
    p: EvaluateParameters, store: Store, models: Mapping[str, str], *, with_tools: bool
) -> list[tuple[str, int]]:
    """Return the arms with their k, grouped by model; an arm with tools at k = 0 becomes the arm without tools."""
    chosen = {arm.strip().lower() for arm in p.arms}
    for arm in sorted(chosen):
        if arm not in ARMS:
            raise UnknownNameError("arm", arm, ARMS)
        if (which := ARMS[arm][0]) not in models:
            others = ", ".join(sorted({one.base for one in finished_trainings(store) if one.arm == which}))
            there = f" (there are trainings of: {others})" if others else ""
            raise UsageError(
                f"the arm {arm} needs a model finetuned from {p.model}, and no finished one lies in "
                f"{p.data}/finetunes{there}: run toolformer finetune --arm {which} --model {quote(p.model)}, or give "
                f"--{which} PATH"
            )
    if not p.k or min(p.k) < 0:
        raise UsageError(f"--k: give figures of at least 0, e.g. 0,1,3,10 (got {p.k})")
    if not chosen:
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
            out |= {(arm, k) if k else (off, 0) for k in p.k}
    if not out:
        raise UsageError(f"{p.task} is evaluated without tools; name an arm without: base, cc, toolformer-disabled")
    order = ("base", "base+tools", "cc", "toolformer-disabled", "toolformer", TRIGGER_ARM)
    return sorted(out, key=lambda one: (order.index(one[0]), one[1]))


def resolve(p: EvaluateParameters) -> EvaluationPlan:
    """Look up every name, compute every digest, and fill in every setting; a UsageError says what is wrong."""
    task = task_named(p.task)
    path = Path(p.path).expanduser().absolute() if p.path else None
    measured = task.rule is Rule.PERPLEXITY
    # of a folder a sample is the default, so that all of its files have their part
    seed = 0 if p.seed is None and path is not None and path.is_dir() and not measured else p.seed
    benchmark = Benchmark(
        run_id=new_run_id(),
        data=absolute_data(p.data),
        task=task.name,
        path=str(path) if path else None,
        digest=source_digest(task, path),
        limit=p.limit,
        shard_items=max(1, p.shard_items // 8) if measured else p.shard_items,  # texts are long
        seed=None if p.limit is None else seed,
    )
    return EvaluationPlan(task, benchmark, tuple(_evaluations(p, task, Store(p.data))), tracking_uri(p.data))


def _evaluations(p: EvaluateParameters, task: Task, store: Store) -> list[Evaluation]:
    measured = task.rule is Rule.PERPLEXITY
    passages = str(task.passages) if task.passages is not None and p.passages is None else p.passages
    named = [*p.tools, *p.tool]
    tools, settings = ({}, ToolSettings()) if measured else chosen_tools(named, passages, p.qa_reader, p.translator)
    offered = tuple(key for key in tools if key not in task.excluded_tools)
    base = trained_model(p.model)
    digest = model_digest(base)
    models = {"base": base, **_finetuned(p, store, digest)}
    for name in set(models.values()):
        check_model(name)
    chosen = choose_arms(p, store, models, with_tools=bool(offered) and not measured)
    tool_digests = tuple((key, tools[key].fingerprint) for key in offered) if any(k for _, k in chosen) else ()
    model_digests = {which: digest if name == base else model_digest(name) for which, name in models.items()}
    trigger: Mapping[str, float] = {}
    if any(arm == TRIGGER_ARM for arm, _ in chosen):
        which, _ = ARMS[TRIGGER_ARM]
        trigger = chosen_trigger(p.trigger or "fitted", models[which], offered, model_digests[which])
    length = 0 if measured else (p.max_new_tokens or new_tokens_for(task))
    return [
        Evaluation(
            arm=arm,
            k=k,
            model=models[ARMS[arm][0]],
            model_digest=model_digests[ARMS[arm][0]],
            base=models["base"],
            base_digest=model_digests["base"],
            offered=offered if k else (),
            tool_digests=tool_digests if k else (),
            tool_settings=settings if k else ToolSettings(),
            max_new_tokens=length,
            max_calls=p.max_calls if k else 1,
            trigger=tuple(sorted(trigger.items())) if arm == TRIGGER_ARM else (),
        )
        for arm, k in chosen
    ]


def _finetuned(p: EvaluateParameters, store: Store, digest: str) -> dict[str, str]:
    if p.cc is not None or p.toolformer is not None:
        return {arm: trained_model(name) for arm, name in (("cc", p.cc), ("toolformer", p.toolformer)) if name}
    trainings = newest_pair(finished_trainings(store), digest)
    return {arm: str(one.model.absolute()) for arm, one in trainings.items()}
