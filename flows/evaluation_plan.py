"""What an evaluation is asked for, and what it comes to: which arms there are, with which models and tools.

Nothing is written here and no model is loaded; how an arm answers, and when an answer is right, is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, WithJsonSchema

from flows.forms import FORM, AbsolutePath, ModelName, Passages, PathOrUrl, Phrases, Tools, one_of
from tasks.evaluate import ARMS, Benchmark, Evaluation, source_digest
from tasks.finetuned import Finetuned, finished_finetunes, newest_pair, trained_model
from tasks.settings import tracking_uri
from toolformer_core.config import TOOL_NAMES, check_tools
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.evaluate.answer import new_tokens_for
from toolformer_core.evaluate.items import Rule, Task
from toolformer_core.evaluate.tasks import task_named, tasks
from toolformer_core.lm.check import check_model
from toolformer_core.lm.load import model_digest, model_folder
from toolformer_core.tools.build import ToolSettings, build_tools
from warehouse.store import Store

__all__ = ["EvaluateParameters", "EvaluationPlan", "plan_evaluate"]


class EvaluateParameters(BaseModel):
    """A benchmark, put to the arms of a model."""

    model_config = FORM

    task: Annotated[str, one_of(tasks())] = Field(description="Benchmark: svamp, gsm8k, nq, dateset, perplexity, ...")
    path: AbsolutePath | None = Field(
        None,
        description="Its published file or folder; default: generated (dateset), embedded (small-world), else the hub",
    )
    data: PathOrUrl = Field("toolformer-data", description="Data folder or URL: predictions, and finetunes to be found")
    model: ModelName = Field("embedded", description="The base model: 'embedded', a folder, or a hub name")
    cc: ModelName | None = Field(
        None, description="M + CC: a model's or a finetune job's folder (default: the newest there)"
    )
    toolformer: ModelName | None = Field(None, description="Toolformer: as for cc")
    arms: list[Annotated[str, one_of(ARMS)]] = Field(
        default_factory=list, description="Of " + ", ".join(ARMS) + " (default: those whose models are there)"
    )
    k: list[Annotated[int, WithJsonSchema({"type": "integer", "minimum": 0})]] = Field(
        [10],
        description="Of the arms with tools: a call starts where ' [' is among the k likeliest (paper: 10); 0: off",
    )
    limit: int | None = Field(
        None, gt=0, description="Ask at most this many items: a file's first, a folder's files in turn (default: all)"
    )
    tools: Tools = Field(list(TOOL_NAMES), description="Tools offered, but for those the task leaves out")
    passages: Passages = None
    phrases: Phrases = None
    max_new_tokens: int | None = Field(None, gt=0, description="Tokens of text per item (default: by the task's rule)")
    shard_items: int = Field(
        64, gt=0, description="Items per shard, the unit of work and of restart; an eighth of texts"
    )
    workers: int = Field(1, gt=0, description="Shards at a time; a process uses its model for one at a time")
    gpus: int | None = Field(
        None,
        ge=0,
        description="Dask workers on this machine with a GPU each; the others have none (default: one a GPU)",
    )


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What parameters come to."""

    task: Task
    benchmark: Benchmark
    evaluations: tuple[Evaluation, ...]
    tracking: str

    def names(self) -> dict[Evaluation, str]:
        return {e: e.name(self.benchmark) for e in self.evaluations}


def plan_evaluate(p: EvaluateParameters, run_id: str = "plan") -> EvaluationPlan:
    """Resolve names, models, tools and files; nothing is written, and no model is loaded.

    Raises:
        UsageError: something asked for does not exist or does not fit.
    """
    task = task_named(p.task)
    path = Path(p.path).expanduser().absolute() if p.path else None
    store = Store(p.data)
    scale = 8 if task.rule is Rule.PERPLEXITY else 1  # texts are long
    benchmark = Benchmark(
        run_id=run_id,
        data=p.data if "://" in p.data else str(Path(p.data).absolute()),
        task=task.name,
        path=str(path) if path else None,
        digest=source_digest(task, path),
        limit=p.limit,
        shard_items=max(1, p.shard_items // scale),
    )
    return EvaluationPlan(task, benchmark, tuple(_evaluations(p, task, store)), tracking_uri(p.data))


def _evaluations(p: EvaluateParameters, task: Task, store: Store) -> list[Evaluation]:
    measured = task.rule is Rule.PERPLEXITY
    offered = tuple(key for key in check_tools(p.tools) if key not in task.excluded_tools)
    base = p.model if p.model == "embedded" else trained_model(p.model)
    digest = model_digest(base)
    models = {"base": base, **_finetuned(p, store, base, digest)}
    for name in set(models.values()):
        check_model(name)
    asked = _arms(p, store, models, with_tools=bool(offered) and not measured)
    settings = ToolSettings(
        passages=Path(p.passages).absolute() if p.passages else None,
        phrases=Path(p.phrases).absolute() if p.phrases else None,
    )
    on = any(k for _, k in asked)
    digests = {key: tool.fingerprint for key, tool in build_tools(offered, settings).items()} if on else {}
    own = {which: digest if name == base else model_digest(name) for which, name in models.items()}
    length = 0 if measured else (p.max_new_tokens or new_tokens_for(task))
    return [
        Evaluation(
            arm=arm,
            k=k,
            model=models[ARMS[arm][0]],
            model_digest=own[ARMS[arm][0]],
            base=models["base"],
            base_digest=own["base"],
            offered=offered if k else (),
            tool_digests=tuple(digests.items()) if k else (),
            tool_settings=settings if k else ToolSettings(),
            max_new_tokens=length,
        )
        for arm, k in asked
    ]


def _finetuned(p: EvaluateParameters, store: Store, base: str, digest: str) -> dict[str, str]:
    """Return the models `cc` and `toolformer` that are named or, if none is, found."""
    if p.cc is not None or p.toolformer is not None:
        return {arm: trained_model(name) for arm, name in (("cc", p.cc), ("toolformer", p.toolformer)) if name}
    known = "" if base.startswith("vllm+") else digest  # a training starts from the files, whoever serves them
    found = newest_pair(_finished(store), (base, str(model_folder(base))), known)
    return {arm: str(one.model.absolute()) for arm, one in found.items()}


def _finished(store: Store) -> list[Finetuned]:
    return finished_finetunes(Path(store.root) / "finetunes") if store.is_local else []


def _arms(p: EvaluateParameters, store: Store, models: dict[str, str], with_tools: bool) -> list[tuple[str, int]]:
    """Return the arms with their ks, those of one model together; k = 0 of an arm with tools is the arm without.

    Raises:
        UsageError: an arm is unknown or its model is not there, a k is negative, or nothing is left.
    """
    wanted = [arm.strip().lower() for arm in p.arms]
    for arm in wanted:
        if arm not in ARMS:
            raise UnknownNameError("arm", arm, ARMS)
        if ARMS[arm][0] not in models:
            which = ARMS[arm][0]
            others = ", ".join(sorted({one.base for one in _finished(store) if one.arm == which}))
            there = f" (there are trainings of: {others})" if others else ""
            raise UsageError(
                f"the arm {arm} needs a model finetuned from {p.model}, and no finished one lies in "
                f"{p.data}/finetunes{there}: run toolformer finetune --arm {which} --model {p.model}, or give "
                f"--{which} PATH"
            )
    if not p.k or min(p.k) < 0:
        raise UsageError(f"--k: give figures of at least 0, e.g. 0,1,3,10 (got {p.k})")
    ks = sorted(set(p.k))
    chosen = set(wanted or (arm for arm, (which, _) in ARMS.items() if which in models))
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
    order = ("base", "base+tools", "cc", "toolformer-disabled", "toolformer")
    return sorted(out, key=lambda one: (order.index(one[0]), one[1]))
