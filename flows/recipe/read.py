"""Reads a recipe (docs/recipes.md): its steps, which of them takes what from which, and the order in which they run.

A wrong name is answered in one line with its place. The parameters' values are checked in `resolve`.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.recipe.nodes import Entry, Place, entries, is_empty, place_of, plain, read_nodes
from flows.recipe.parameters import SHIPPED, shipped
from flows.recipe.steps import KINDS, Recipe, Step
from toolformer_core.errors import UnknownNameError, UsageError

SIZES = ("limit", "steps")  # parameters: documents of a build or items of an evaluation, and steps of a training
_STEPS = "steps"
_LABEL = re.compile("[A-Za-z0-9_-]+")
_ALIKE = 0.8  # of a value and a step's name, from which on one is taken for a slip in the other

Named = Mapping[str, Entry]


def read_recipe(name: str, shared: Mapping[str, Any] | None = None, limit: int | None = None) -> Recipe:
    """Return a recipe by file or name; `shared` replaces values for all steps, `limit` is the largest of `SIZES`."""
    path = Path(name).expanduser()
    if not path.is_file():
        if name not in shipped():
            raise UnknownNameError("recipe", name, [*shipped(), "a .yaml file"])
        path = SHIPPED / f"{name}.yaml"
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{file} cannot be read: {exc}") from exc
    root = read_nodes(file, text)
    top = entries(root, "a recipe")
    if _STEPS not in top:
        raise Place(file, 1).error(f"a recipe has {_STEPS}: FLOW: PARAMETERS")
    named = entries(top.pop(_STEPS).node, _STEPS)
    if not named:
        raise place_of(root).error(f"{_STEPS} holds no step")
    flows = {name: _flow_of(name, entry.place) for name, entry in named.items()}
    valid = sorted({parameter for flow in flows.values() for parameter in KINDS[flow].parameters})
    for parameter, entry in top.items():
        if parameter == "data":
            raise entry.place.error("the data folder is no part of a recipe: give --data")
        _check(entry.place, "parameter", parameter, (*valid, _STEPS))
    given = {parameter: plain(entry.node) for parameter, entry in top.items()}
    given |= {parameter: value for parameter, value in (shared or {}).items() if value is not None}
    units = {name: _unit(name, flows[name], entry, given, top) for name, entry in named.items()}
    if limit is not None:
        for unit in units.values():
            for number, step in enumerate(unit):
                own = {name: step.values.get(name) for name in SIZES if name in step.kind.parameters}
                smaller = {name: min(n, limit) if isinstance(n, int) else limit for name, n in own.items()}
                unit[number] = replace(step, values={**step.values, **smaller})
    return Recipe(path.stem, file, text, _in_order(_with_references(units)))


def _check(place: Place, what: str, name: str, valid: Iterable[str]) -> None:
    if name not in (names := tuple(valid)):
        raise place.error(str(UnknownNameError(what, name, names)))


def _flow_of(name: str, place: Place) -> str:
    flow, dot, label = name.partition(".")
    _check(place, "step", flow, KINDS)
    if dot and not _LABEL.fullmatch(label):
        raise place.error(f"a step is named FLOW or FLOW.LABEL, with letters, digits, _ and -; got {name!r}")
    return flow


def _unit(name: str, flow: str, entry: Entry, shared: Mapping[str, Any], top: Named) -> list[Step]:
    kind = KINDS[flow]
    own = {} if is_empty(entry.node) else entries(entry.node, name)
    for parameter, one in own.items():
        if parameter == "data":
            raise one.place.error(f"{name}: all steps have one data folder: give --data")
        _check(one.place, f"parameter of {flow}", parameter, kind.parameters)
    values = {name: value for name, value in shared.items() if name in kind.parameters and name not in kind.own}
    values |= {parameter: plain(one.node) for parameter, one in own.items()}
    for parameter in sorted(kind.own - values.keys()):
        raise entry.place.error(f"{name} names no {parameter}: give a step, or what lies in the data folder already")
    places = {parameter: one.place for parameter, one in {**top, **own}.items()}
    arms = values.get("arm")
    if flow != "finetune" or not isinstance(arms, list):
        return [Step(name, flow, values, {}, places, entry.place)]
    for arm in arms:
        if arms.count(arm) > 1 or not isinstance(arm, str):
            raise places["arm"].error(f"{name}.arm: each arm stands once, e.g. [toolformer, cc]; got {arms}")
    return [Step(f"{name}.{arm}", flow, {**values, "arm": arm}, {}, places, entry.place) for arm in arms]


def _with_references(units: Mapping[str, list[Step]]) -> dict[str, list[Step]]:
    steps: dict[str, Step] = {}
    for step in (step for unit in units.values() for step in unit):
        if step.name in steps:
            raise step.place.error(f"two steps are named {step.name}")
        steps[step.name] = step

    def referring(step: Step) -> Step:
        taken = {
            parameter: value
            for parameter, wanted in step.kind.takes.items()
            if isinstance(value := step.values.get(parameter), str)
            and _names_step(value, wanted, steps, step.place_of(parameter))
        }
        values = {parameter: value for parameter, value in step.values.items() if parameter not in taken}
        return replace(step, values=values, taken=taken)

    return {name: list(map(referring, unit)) for name, unit in units.items()}


def _names_step(value: str, wanted: str, steps: Mapping[str, Step], place: Place) -> bool:
    givers = [name for name, step in steps.items() if wanted in step.kind.gives]
    if value in givers:
        return True
    if value in steps:
        raise place.error(f"{value} gives not {wanted}; the steps that do: {', '.join(givers) or '(none)'}")
    near = difflib.get_close_matches(value, givers, n=1, cutoff=_ALIKE)
    if value.partition(".")[0] in KINDS or (near and not Path(value).exists()):
        _check(place, f"step that gives {wanted}", value, givers)
    return False


def _in_order(units: Mapping[str, list[Step]]) -> tuple[tuple[Step, ...], ...]:
    """Return the units in the file's order, each after those that it takes something from."""
    home = {step.name: name for name, unit in units.items() for step in unit}
    before = {name: {home[other] for step in unit for other in step.taken.values()} for name, unit in units.items()}
    order: list[str] = []
    while len(order) < len(units):
        ready = next((name for name in units if name not in order and before[name] <= set(order)), None)
        if ready is None:
            raise _circle(units, before, order)
        order.append(ready)
    return tuple(tuple(units[name]) for name in order)


def _circle(units: Mapping[str, list[Step]], before: Mapping[str, set[str]], done: list[str]) -> UsageError:
    path = [next(name for name in units if name not in done)]
    while path[-1] not in path[:-1]:
        path.append(min(before[path[-1]] - set(done)))
    circle = path[path.index(path[-1]) :]
    return units[circle[0]][0].place.error(f"steps take from each other in a circle: {' <- '.join(circle)}")
