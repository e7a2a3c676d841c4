"""Fields of forms that say which calls are drawn, kept and made: prompts, thresholds, rates, triggers."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from flows.forms.fields import Option, as_parts
from toolformer_core.config import TOOL_NAMES, tau_f_for

ALL = "all"  # in place of a tool: every tool that is not named
_RATE = re.compile(r"\s*fdr\s*=\s*([0-9.eE+-]+)\s*")
_PROMISED: dict[str, Any] = {"type": "string", "pattern": r"^fdr=0?\.[0-9]+$"}
_THRESHOLD: dict[str, Any] = {"anyOf": [{"type": "number"}, _PROMISED, {"type": "null"}]}


def number_in(text: str) -> float:
    """Return the number that a text is; nan: it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def thresholds(text: str) -> dict[str, float]:
    """Parse `calculator=0.5,qa=1.2`."""
    out = {}
    for part in as_parts(text):
        tool, _, value = part.partition("=")
        if not math.isfinite(number := number_in(value)):
            raise ValueError(f"{part!r} is not tool=number; write e.g. calculator=0.5,qa=1.2")
        out[tool.strip().lower()] = number
    return out


Ratings = Literal["all", "not-rejected", "accepted"]  # which calls are kept, by what people said of them


def _given_thresholds(given: Any) -> Any:
    if given is None:
        return {}
    if isinstance(given, str):
        parts = [f"{ALL}={part}" if _RATE.fullmatch(part) else part for part in as_parts(given)]
        rates = dict(part.split("=", 1) for part in parts if _RATE.fullmatch(part.partition("=")[2]))
        numbers = thresholds(",".join(part for part in parts if part.partition("=")[0] not in rates))
        given = {**numbers, **{tool.strip().lower(): rate for tool, rate in rates.items()}}
    return {tool: value for tool, value in given.items() if value is not None} if isinstance(given, Mapping) else given


def _checked_thresholds(given: dict[str, float | str]) -> dict[str, float | str]:
    promised_rates(given)
    if isinstance(given.get(ALL), float | int):
        raise ValueError(f"{ALL}={given[ALL]} is no threshold: only a rate can be promised for all tools")
    return given


def promised_rates(tau_f: Mapping[str, float | str]) -> dict[str, float]:
    """Return the rates of false discoveries among some thresholds, by tool or `ALL`."""
    rates = {}
    for tool, value in tau_f.items():
        if isinstance(value, str):
            found = _RATE.fullmatch(value)
            rates[tool] = number_in(found[1] if found else "")
            if not 0 < rates[tool] < 1:
                raise ValueError(f"{value!r} is neither a number nor fdr= and a number between 0 and 1, e.g. fdr=0.05")
    return rates


# A threshold is a number of nats, or the rate of false discoveries that it is to have, as text. The interface draws an
# input for each of `properties`, and one box of JSON where there are none. The threshold of a user's own tool is one of
# `additionalProperties`.
_ABOUT = {tool: f"nats; paper: {tau_f_for(tool)}" for tool in TOOL_NAMES}
_ABOUT[ALL] = "fdr=0.05: of every tool that is not named"
_INPUTS = {tool: {**_THRESHOLD, "title": tool, "description": about} for tool, about in _ABOUT.items()}
TauF = Annotated[
    dict[str, float | str],
    BeforeValidator(_given_thresholds),
    AfterValidator(_checked_thresholds),
    WithJsonSchema({"type": "object", "properties": _INPUTS, "additionalProperties": _THRESHOLD}),
    Option(note=", e.g. calculator=0.5,qa=1.2 or fdr=0.05"),
]


Trigger = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": r"^(fitted|/.+|[A-Za-z_]\w*=.+)?$"}),
    Field(
        description="Call a tool only if p(' [') is at least this, by tool: 'fitted' for what `toolformer fit-trigger` "
        "stored with the model, the file of such a fit, or numbers, calculator=0.2,qa=0.1 (default: k alone decides, "
        "as in the paper)"
    ),
]
