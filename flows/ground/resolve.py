"""Resolves the parameters of a grounding, so that a mistake is reported before anything is written or loaded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flows.forms.chosen_tools import absolute_data, chosen_tools
from flows.ground.parameters import GroundParameters
from tasks.provenance import new_run_id
from tasks.settings import tracking_uri
from tasks.specs.evaluation_spec import Benchmark, source_digest
from tasks.specs.grounding_spec import METHODS, AnswerRun, ChoiceRun, GroundingRun, NamedModel, ToolLibrary, tools_of
from tasks.training.registry import trained_model
from toolformer_core.errors import UsageError
from toolformer_core.evaluate.items import Item, Rule, Task, select_items
from toolformer_core.evaluate.queries import query_of
from toolformer_core.evaluate.tasks import EMBEDDED, read, task_named
from toolformer_core.grounding.encoders import encoder_digest
from toolformer_core.grounding.ground import GroundingSettings
from toolformer_core.grounding.library import DemonstrationKind
from toolformer_core.grounding.patterns import patterns_named
from toolformer_core.grounding.records import Weights
from toolformer_core.lm.check import check_model
from toolformer_core.lm.load import model_digest
from toolformer_core.tools.build import ToolSettings
from toolformer_core.tools.declaration import declaration_of
from toolformer_core.tools.library.distractors import distractors


@dataclass(frozen=True, slots=True)
class TaskPlan:
    task: Task
    grounding: GroundingRun
    choices: tuple[ChoiceRun, ...]
    answers: tuple[AnswerRun, ...]  # empty: no query is answered


@dataclass(frozen=True, slots=True)
class GroundingPlan:
    run_id: str
    data: str
    tasks: tuple[TaskPlan, ...]
    weights: Weights
    tracking: str  # MLflow's server or database


EXAMPLES = 3  # held-out items that few-shot shows

# the tools' keys, where they find their data, and which of them are mocked
_Library = tuple[tuple[str, ...], ToolSettings, tuple[str, ...]]


def resolve(p: GroundParameters) -> GroundingPlan:
    """Look up every name, compute every digest, and fill in every setting; a UsageError says what is wrong."""
    if not p.task:
        raise UsageError("no benchmark is named: give --task NAME=PATH, e.g. --task svamp=SVAMP.json")
    named = [_task_and_path(text) for text in p.task]
    if len({task.name for task, _ in named}) < len(named):
        raise UsageError("a benchmark is named twice; ground its other files in a run of their own")
    small = _model(p.model)
    large = small if p.large_model is None else _model(p.large_model)
    by_model = {"lm": small} if p.toolformer is None else {"lm": small, "toolformer": _model(p.toolformer)}
    methods = [method for method in METHODS if method != "toolformer" or method in by_model] if p.answers else []
    library, run_id, weights = _library(p), new_run_id(), Weights(p.gamma, p.smoothing, p.threshold)
    plans = []
    for task, path in named:
        grounding = _grounding(p, run_id, task, path, small, library)
        examples = _examples(task, path, p) if p.answers else ()
        choices = tuple(ChoiceRun(grounding, method, model) for method, model in by_model.items())
        answers = tuple(AnswerRun(grounding, method, large, weights, examples) for method in methods)
        plans.append(TaskPlan(task, grounding, choices, answers))
    return GroundingPlan(run_id, absolute_data(p.data), tuple(plans), weights, tracking_uri(p.data))


def _model(given: str) -> NamedModel:
    name = trained_model(given)
    check_model(name)
    return NamedModel(name, model_digest(name))


def _task_and_path(text: str) -> tuple[Task, Path | None]:
    name, equals, path = text.partition("=")
    task = task_named(name)
    if task.rule is Rule.PERPLEXITY:
        raise UsageError(f"{task.name} holds texts, which ask nothing: ground a benchmark of questions")
    if equals and not path:
        raise UsageError(f"--task {text}: the path is missing; write {name}=PATH")
    return task, Path(path).expanduser().absolute() if path else None


def _library(p: GroundParameters) -> _Library:
    built, settings = chosen_tools([*p.tools, *p.tool], p.passages, p.qa_reader, p.translator)
    added = [tool.key for tool in distractors(p.distractors, p.seed)] if p.distractors else []
    mocked = [key.strip().lower() for key in p.mock]
    if mocked == ["all"]:
        mocked = [*(key for key, tool in built.items() if declaration_of(tool).mock_response), *added]
    return (*built, *added), settings, tuple(mocked)


def _grounding(
    p: GroundParameters, run_id: str, task: Task, path: Path | None, small: NamedModel, library: _Library
) -> GroundingRun:
    keys, where, mocked = library
    goes_on = task.name in EMBEDDED  # its items are the beginnings of texts, not questions
    demonstrations: DemonstrationKind = p.demonstrations or ("annotation" if goes_on else "questions")
    if task.passages is not None and where.passages is None:
        where = replace(where, passages=task.passages)
    tools = tuple((one.key, one.digest) for one in tools_of(keys, where, demonstrations, mocked))
    prompt = p.answer_prompt if p.answer_prompt is not None else ("{query}" if goes_on else None)
    settings = GroundingSettings(
        max_answer_tokens=p.max_answer_tokens, max_call_tokens=p.max_call_tokens, call_top_p=p.call_top_p
    )
    benchmark = Benchmark(
        run_id=run_id,
        data=absolute_data(p.data),
        task=task.name,
        path=str(path) if path else None,
        digest=source_digest(task, path),
        limit=p.limit,
        shard_items=p.shard_items,
        seed=p.seed,
        held_out=EXAMPLES,
    )
    return GroundingRun(
        benchmark=benchmark,
        library=ToolLibrary(tools, where, demonstrations, mocked),
        small=small,
        encoder=NamedModel(p.encoder, encoder_digest(p.encoder) if p.encoder else ""),
        patterns=patterns_named(p.patterns),
        settings=settings if prompt is None else replace(settings, answer_prompt=prompt),
    )


def _examples(task: Task, path: Path | None, p: GroundParameters) -> tuple[tuple[str, str], ...]:
    items: Sequence[Item] = [row for row in read(task, path) if isinstance(row, Item)]
    held_out = select_items(items, seed=p.seed, limit=p.limit, held_out=EXAMPLES).held_out
    return tuple((query_of(task, item).text, item.answers[0]) for item in held_out if item.answers)
