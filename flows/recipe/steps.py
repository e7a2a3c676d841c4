"""The flows that may be steps of a recipe, by the parameters that they declare themselves, and a step of one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flows.build_dataset.parameters import BuildParameters
from flows.evaluate.parameters import EvaluateParameters
from flows.export.parameters import ExportParameters
from flows.finetune.parameters import FinetuneParameters, FitTriggerParameters
from flows.ground.parameters import GroundParameters
from flows.recipe.nodes import Place
from toolformer_core.records import digest_of

DATASET, MODEL, TEXTS, TRIGGER = "a dataset", "a model", "held-out texts", "thresholds"  # what steps give


@dataclass(frozen=True, slots=True)
class Kind:
    form: type[BaseModel]  # the flow's parameters
    takes: Mapping[str, str]  # parameter -> what of another step it may be
    gives: frozenset[str] = frozenset()  # what other steps may take of it
    # parameters that every step names itself; the recipe's shared ones do not fill them in
    own: frozenset[str] = frozenset()

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(name for name in self.form.model_fields if name != "data")


KINDS: Mapping[str, Kind] = {
    "build": Kind(BuildParameters, {"model": MODEL}, frozenset({DATASET})),
    "finetune": Kind(
        FinetuneParameters, {"dataset": DATASET, "model": MODEL}, frozenset({MODEL, TEXTS}), frozenset({"dataset"})
    ),
    "fit-trigger": Kind(FitTriggerParameters, {"model": MODEL}, frozenset({TRIGGER}), frozenset({"model"})),
    "evaluate": Kind(
        EvaluateParameters, {"model": MODEL, "cc": MODEL, "toolformer": MODEL, "trigger": TRIGGER, "path": TEXTS}
    ),
    "ground": Kind(GroundParameters, {"model": MODEL, "large_model": MODEL, "toolformer": MODEL}),
    "export": Kind(ExportParameters, {"dataset": DATASET, "tokenizer": MODEL}, own=frozenset({"dataset"})),
}


@dataclass(frozen=True, slots=True)
class Step:
    name: str  # as other steps name it
    flow: str
    values: Mapping[str, Any]  # parameter -> value, but for the data folder and what is taken from other steps
    taken: Mapping[str, str]  # parameter -> the step that it is taken from
    places: Mapping[str, Place] = field(compare=False)  # of the parameters in the file
    place: Place = field(compare=False)

    def place_of(self, parameter: str) -> Place:
        """Return the line of a parameter, or of the step if it is not in the file."""
        return self.places.get(parameter, self.place)

    @property
    def kind(self) -> Kind:
        return KINDS[self.flow]

    def given(self, results: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        return {parameter: results[step][self.kind.takes[parameter]] for parameter, step in self.taken.items()}

    def lacks(self, results: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
        """Return the steps that ended without what this one takes of them: builds that kept nothing, and the like."""
        wanted = ((step, self.kind.takes[parameter]) for parameter, step in self.taken.items())
        return tuple(dict.fromkeys(step for step, what in wanted if step in results and what not in results[step]))


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    file: str
    text: str
    units: tuple[tuple[Step, ...], ...]  # in the order in which they run; the steps of one run side by side
    resolved: tuple[tuple[Any, Any], ...] = field(default=(), compare=False)  # of the first unit: form, what it is

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for unit in self.units for step in unit)

    @property
    def digest(self) -> str:
        """Digest of the steps' parameters; comments and order do not count."""
        parameters = {step.name: {**step.values, **step.taken} for step in self.steps}
        return digest_of("recipe", json.dumps(parameters, sort_keys=True, default=str))


def training_gives(folder: str | Path) -> dict[str, str]:
    """Return what a training gives to other steps: its best checkpoint, and the documents that it held out."""
    return {MODEL: str(Path(folder) / "model"), TEXTS: str(Path(folder) / "dev.jsonl")}
