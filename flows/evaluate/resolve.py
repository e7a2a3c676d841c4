"""Resolves the parameters of an evaluation: benchmark, arms, models and tools, with their digests.

A mistake is thus reported before anything runs. Nothing is written, and no model is loaded.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.evaluate.parameters import EvaluateParameters
from flows.evaluate.plan import EvaluationPlan, choose_arms, finished_trainings
from flows.forms.chosen_tools import absolute_data, chosen_tools
from flows.forms.chosen_trigger import chosen_trigger
from tasks.provenance import new_run_id
from tasks.settings import tracking_uri
from tasks.specs.evaluation_spec import ARMS, TRIGGER_ARM, Benchmark, Evaluation, source_digest
from tasks.training.registry import newest_pair, trained_model
from toolformer_core.evaluate.answer import new_tokens_for
from toolformer_core.evaluate.items import Rule, Task
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.lm.check import check_model
from toolformer_core.lm.load import model_digest
from toolformer_core.tools.build import ToolSettings
from warehouse.store import Store

__all__ = ["resolve"]


_FOLDER_SEED = 0  # of a folder's items, so that all of its files have their part


def resolve(p: EvaluateParameters) -> EvaluationPlan:
    """Look up every name, compute every digest, and fill in every setting.

    Raises:
        UsageError: a name does not exist, or parameters do not fit together.
    """
    task = task_named(p.task)
    path = Path(p.path).expanduser().absolute() if p.path else None
    of_folder = path is not None and path.is_dir() and task.rule is not Rule.PERPLEXITY
    store = Store(p.data)
    scale = 8 if task.rule is Rule.PERPLEXITY else 1  # texts are long
    benchmark = Benchmark(
        run_id=new_run_id(),
        data=absolute_data(p.data),
        task=task.name,
        path=str(path) if path else None,
        digest=source_digest(task, path),
        limit=p.limit,
        shard_items=max(1, p.shard_items // scale),
        seed=None if p.limit is None else _FOLDER_SEED if of_folder and p.seed is None else p.seed,
    )
    return EvaluationPlan(task, benchmark, tuple(_evaluations(p, task, store)), tracking_uri(p.data))


def _evaluations(p: EvaluateParameters, task: Task, store: Store) -> list[Evaluation]:
    measured = task.rule is Rule.PERPLEXITY
    if task.passages is not None and p.passages is None:
        p = p.model_copy(update={"passages": str(task.passages)})
    tools, settings = ({}, ToolSettings()) if measured else chosen_tools(p)
    offered = tuple(key for key in tools if key not in task.excluded_tools)
    base = trained_model(p.model)
    digest = model_digest(base)
    models = {"base": base, **_finetuned(p, store, digest)}
    for name in set(models.values()):
        check_model(name)
    chosen = choose_arms(p, store, models, with_tools=bool(offered) and not measured)
    on = any(k for _, k in chosen)
    digests = {key: tools[key].fingerprint for key in offered} if on else {}
    model_digests = {which: digest if name == base else model_digest(name) for which, name in models.items()}
    trigger = _trigger(p, models, model_digests, offered) if any(arm == TRIGGER_ARM for arm, _ in chosen) else ()
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
            tool_digests=tuple(digests.items()) if k else (),
            tool_settings=settings if k else ToolSettings(),
            max_new_tokens=length,
            max_calls=p.max_calls if k else 1,
            trigger=trigger if arm == TRIGGER_ARM else (),
        )
        for arm, k in chosen
    ]


def _trigger(
    p: EvaluateParameters, models: Mapping[str, str], digests: Mapping[str, str], offered: Sequence[str]
) -> tuple[tuple[str, float], ...]:
    """Return the thresholds of the arm that has them, by key."""
    which, _ = ARMS[TRIGGER_ARM]
    return tuple(sorted(chosen_trigger(p.trigger or "fitted", models[which], offered, digests[which]).items()))


def _finetuned(p: EvaluateParameters, store: Store, digest: str) -> dict[str, str]:
    """Return the models `cc` and `toolformer`: those named in the parameters, else the newest trainings."""
    if p.cc is not None or p.toolformer is not None:
        return {arm: trained_model(name) for arm, name in (("cc", p.cc), ("toolformer", p.toolformer)) if name}
    trainings = newest_pair(finished_trainings(store), digest)
    return {arm: str(one.model.absolute()) for arm, one in trainings.items()}
