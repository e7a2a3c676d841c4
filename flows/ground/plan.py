"""The plan of a grounding: which benchmarks are grounded, and which methods choose and answer.

This module does not know how a tool is chosen, or when an answer is right.
"""

from dataclasses import dataclass

from tasks.specs.grounding_spec import AnswerRun, ChoiceRun, GroundingRun
from toolformer_core.evaluate.items import Task
from toolformer_core.grounding.records import Weights


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What is done with one benchmark."""

    task: Task
    grounding: GroundingRun
    choices: tuple[ChoiceRun, ...]
    answers: tuple[AnswerRun, ...]  # empty: no query is answered


@dataclass(frozen=True, slots=True)
class GroundingPlan:
    """The benchmarks that the parameters resolve to, and the weights of GEAR's choice."""

    run_id: str
    data: str
    tasks: tuple[TaskPlan, ...]
    weights: Weights
    tracking: str  # MLflow's server or database
