"""The parameters of `bootstrap`, declared once: those of a build and of a training, and what rounds add to them.

Round 0 is what `build` and `finetune` do. Each later round samples with the model that the round before has finetuned,
lets a judge score, and finetunes a fresh model. The functions below say what a round asks of the three flows it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from flows.build_dataset.parameters import BuildParameters
from flows.evaluate.parameters import EvaluateParameters
from flows.finetune.parameters import FinetuneParameters, TrainingChoice
from flows.forms import FORM, DatasetName, Listed, Option
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.lm.served import served_model

__all__ = ["BootstrapParameters", "check_rounds", "of_build", "of_evaluations", "of_training"]

_ROUNDS = Option("Rounds")
_TOOL_DATA = ("tools", "tool", "passages", "index", "qa_reader", "phrases", "translator")  # what evaluations share
_PERPLEXITY = "perplexity"


class BootstrapParameters(TrainingChoice, BuildParameters):
    """Corpus to C* to model, and again with that model."""

    model_config = FORM

    dataset: DatasetName = Field(
        "rounds", description="Name of the datasets: round 0 makes NAME-0, round 1 NAME-1, ..."
    )
    seed: int = Field(0, description="Seed of every random choice, of annotation and of training")
    rounds: Annotated[int, _ROUNDS] = Field(3, gt=0, description="Rounds at most")
    self_judge: Annotated[bool, _ROUNDS] = Field(
        False,
        description="Let the model that samples also score (default: `score_model`, or else `model`, scores in every "
        "round, so that no model marks its own work)",
    )
    bare_rounds: Annotated[bool, _ROUNDS] = Field(
        False,
        description="From round 1 on, sample without annotation prompts (`bare`): the model has been finetuned on "
        "calls, and the prompts' tokens are saved",
    )
    task: Annotated[list[str], Listed, _ROUNDS] = Field(
        default_factory=list,
        description="Benchmarks that the model of every round answers, with tools and without: names, or name=/path; "
        "separated by commas",
    )
    k: Annotated[int, _ROUNDS] = Field(
        10, ge=0, description="In benchmarks a call starts where ' [' is among the k most likely tokens (paper: 10)"
    )
    min_gain: Annotated[float, _ROUNDS] = Field(
        0.0,
        description="Stop after a round that gains no more than this: mean accuracy of the benchmarks, as a share; "
        "without benchmarks, kept calls for a thousand documents. Below 0, a round may lose so much",
    )


def check_rounds(p: BootstrapParameters) -> None:
    """Find mistakes that would show only behind hours of annotation.

    Raises:
        UsageError: the model lives behind a server, which cannot be finetuned, or a benchmark is none.
    """
    from toolformer_core.evaluate.tasks import tasks  # the command line's help imports every form

    if served_model(p.model) is not None:
        raise UsageError(f"{p.model} is behind a server, and rounds finetune the model: name its folder or hub name")
    for asked in of_evaluations(p, ""):
        if asked.task not in tasks():
            raise UnknownNameError("benchmark", asked.task, tasks())
        if asked.path is not None and not Path(asked.path).exists():
            raise UsageError(f"--task {asked.task}={asked.path}: there is no such file")


def of_build(p: BootstrapParameters, number: int, sampler: str) -> BuildParameters:
    """Return what a round asks of `build-dataset`.

    Args:
        p: the parameters.
        number: of the round, from 0.
        sampler: the model that samples: `p.model` in round 0, then a checkpoint.
    """
    asked: dict[str, Any] = {name: getattr(p, name) for name in BuildParameters.model_fields}
    judge = p.score_model if number == 0 else None if p.self_judge else p.score_model or p.model
    return BuildParameters.model_validate(
        {
            **asked,
            "dataset": f"{p.dataset}-{number}",
            "model": sampler,
            "score_model": judge,
            "bare": p.bare or (p.bare_rounds and number > 0),
        }
    )


def of_training(p: BootstrapParameters, dataset: str) -> FinetuneParameters:
    """Return what a round asks of `finetune`: a fresh model on the round's dataset, name@version."""
    recipe = {name: getattr(p, name) for name in TrainingChoice.model_fields}
    return FinetuneParameters(**recipe, dataset=dataset, data=p.data, model=p.model, seed=p.seed)


def of_evaluations(p: BootstrapParameters, checkpoint: str) -> list[EvaluateParameters]:
    """Return what a round asks of `evaluate`, one for each benchmark.

    Args:
        p: the parameters.
        checkpoint: the folder of the round's training.
    """
    shared = {name: getattr(p, name) for name in (*_TOOL_DATA, "data", "model", "workers", "gpus")}
    asked = []
    for written in p.task:
        task, _, path = written.partition("=")
        arms = ["toolformer-disabled"] if task == _PERPLEXITY else ["toolformer", "toolformer-disabled"]
        own = {"task": task, "path": path or None, "toolformer": checkpoint, "arms": arms, "k": [p.k]}
        asked.append(EvaluateParameters.model_validate({**shared, **own}))
    return asked
