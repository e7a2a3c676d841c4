"""Checks a recipe whole before anything starts: every value, by the forms of the flows and by their own `resolve`.

What other steps are to give is not there yet: something of its kind stands in for it, so that all else is looked up.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from flows.build_dataset.resolve import resolve as resolve_build
from flows.evaluate.resolve import resolve as resolve_evaluation
from flows.export.find import find_dataset
from flows.finetune.resolve import check_hardware, resolve_setup
from flows.forms.fields import OneOf
from flows.ground.resolve import resolve as resolve_grounding
from flows.recipe.parameters import RecipeParameters
from flows.recipe.read import read_recipe
from flows.recipe.steps import DATASET, MODEL, TEXTS, TRIGGER, Recipe, Step
from toolformer_core.embedded import CORPUS
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.lm.check import check_model
from toolformer_core.lm.reference import ModelRef
from warehouse.store import Store

Resolvers = Mapping[str, Callable[[Any], object]]  # flow -> what looks up what its form names

_STAND_INS = {DATASET: "cstar", MODEL: "embedded", TEXTS: str(CORPUS), TRIGGER: "calculator=0"}
_FILES = ("corpus", "candidates", "path", "passages", "prompts")  # parameters that name files
_HUB = ("translator", "qa_reader", "encoder")  # parameters that may name a model of the hub, besides those of steps


def resolve(parameters: RecipeParameters, *, elsewhere: bool = False) -> Recipe:
    """Read a recipe and check all of it; `elsewhere`: models, texts and GPUs that are not here are no mistake."""
    recipe, known = read_recipe(parameters.recipe, {"model": parameters.model}, parameters.limit), []
    for step in recipe.steps:
        given: dict[str, Any] = {name: _STAND_INS[step.kind.takes[name]] for name in step.taken}
        for name in _absent(step) if elsewhere else ():
            default = str(CORPUS) if name == "corpus" else step.kind.form.model_fields[name].default
            given[name] = _STAND_INS[MODEL] if step.kind.takes.get(name) == MODEL else default
        form = filled(step, parameters.data, given)
        try:
            known.append((form, _look_up(form, step, elsewhere=elsewhere)))
        except UsageError as exc:
            # at the parameter that holds an unknown name
            name = exc.name.lower() if isinstance(exc, UnknownNameError) else ""
            holding = (parameter for parameter, value in step.values.items() if name and name in str(value).lower())
            raise step.place_of(next(holding, "")).error(f"{step.name}: {exc}") from exc
    return replace(recipe, resolved=tuple(known[: len(recipe.units[0])]))  # later steps find what earlier ones made


def filled(step: Step, data: str, given: Mapping[str, Any]) -> Any:
    """Return the flow's parameters with the values of a step."""
    values = {**step.values, **given, "data": data}
    for name, field in step.kind.form.model_fields.items():
        if name in values:
            _check_names(step, name, field, values[name])
    try:
        return step.kind.form.model_validate(values)
    except ValidationError as exc:
        first = exc.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "missing":
            raise step.place.error(f"{step.name} names no {name}") from exc
        got = "" if first["type"] == "value_error" else f" (got {values.get(name)!r})"
        raise step.place_of(name).error(
            f"{step.name}.{name}: {first['msg'].removeprefix('Value error, ')}{got}"
        ) from exc


def _check_names(step: Step, name: str, field: FieldInfo, value: Any) -> None:
    kinds = [*field.metadata, *(one for kind in get_args(field.annotation) for one in get_args(kind))]
    for choice in (kind for kind in kinds if isinstance(kind, OneOf)):
        valid = list(choice.names())
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
        for part in (part.strip() for part in parts if isinstance(part, str)):
            path = str(Path(part).absolute())
            if part not in valid and not (choice.pattern and any(re.search(choice.pattern, p) for p in (part, path))):
                message = UnknownNameError(name, part, valid)
                raise step.place_of(name).error(f"{step.name}.{name}: {message}")


def missing_here(step: Step) -> list[str]:
    """Return what of a step is not on this machine: models of the hub, files to read, GPUs and packages to train."""
    missing = [f"{name} {step.values[name]}" for name in _absent(step)]
    if step.flow == "finetune":
        form = filled(step, ".", {name: _STAND_INS[step.kind.takes[name]] for name in step.taken})
        try:
            check_hardware(*resolve_setup(form)[:3])
        except UsageError as exc:
            missing.append(str(exc))
    return missing


def _absent(step: Step) -> list[str]:
    texts = {name: value for name, value in step.values.items() if isinstance(value, str)}
    models = [name for name in texts if name in _HUB or step.kind.takes.get(name) == MODEL]
    absent = [name for name in models if _is_on_hub_alone(texts[name])]
    paths = [name for name in _FILES if name in texts and texts[name] != "embedded" and "://" not in texts[name]]
    return absent + [name for name in paths if not Path(texts[name]).expanduser().exists()]


def _is_on_hub_alone(model: str) -> bool:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", model):
        return False
    named = ModelRef.of(model)
    return named.kind == "hub" and named.local_file("config.json") is None


def _look_up(form: Any, step: Step, *, elsewhere: bool) -> object:
    resolvers: Resolvers = {"build": resolve_build, "evaluate": resolve_evaluation, "ground": resolve_grounding}
    found = resolvers[step.flow](form) if step.flow in resolvers else None
    if step.flow == "export":
        form.settings()
    if "dataset" in step.kind.takes and "dataset" not in step.taken:
        find_dataset(Store(form.data), form.dataset)
    if step.flow == "finetune":
        profile, processes, recipe, _ = resolve_setup(form)
        check_model(form.model)
        if not elsewhere:
            check_hardware(profile, processes, recipe)
    return found
