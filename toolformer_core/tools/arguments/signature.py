"""What a Python function takes of a call, from the annotations of its parameters.

    def f(text: str)                                         the whole input, as it is; so without an annotation
    def f(amount: float, unit: str, to: str = "m")           arguments by name: `amount=3, unit=mi`, see `form`
    a parameter `context: str` besides                       what the tool may know beside the input, such as a date

An annotation is whatever pydantic has a JSON schema for. The function gets values of these types.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolformer_core.errors import UsageError
from toolformer_core.tools.arguments.form import ArgumentForm, BadInput

if TYPE_CHECKING:
    from pydantic import TypeAdapter

CONTEXT = "context"
_Parameter = inspect.Parameter
_TEXT = (_Parameter.empty, str, "str")


class FunctionSignature:
    """The arguments of a function; a `UsageError` if one has no annotation, or no JSON schema, or cannot be named."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = function.__name__
        parameters = dict(inspect.signature(function).parameters)
        by_name = next(iter(parameters), CONTEXT) == CONTEXT  # the context stands where the input would
        context = parameters.pop(CONTEXT, None)
        self._takes_context = context is not None
        if context is not None and (context.annotation not in _TEXT or context.kind is _Parameter.POSITIONAL_ONLY):
            raise UsageError(f"{self._name}: `context` is no argument of a call: write `context: str`")
        self.form: ArgumentForm | None = None  # None: the whole input is the one argument
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        if by_name or not _is_text(parameters):
            self._adapters, self.form = self._typed(function, parameters)

    def bind(self, input: str, context: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and the named values that a call's input gives, or raise `BadInput`."""
        extra = {CONTEXT: context} if self._takes_context else {}
        if self.form is None:
            return (input,), extra
        return (), {name: self._value(name, value) for name, value in self.form.arguments(input).items()} | extra

    def _value(self, name: str, value: Any) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapters[name].validate_json(json.dumps(value), strict=True)
        except ValidationError as exc:  # what the schema cannot say, e.g. that there is no 30th of February
            raise BadInput(f"{name}: {exc.errors()[0]['msg']}") from exc

    def _typed(
        self, function: Callable[..., Any], parameters: Mapping[str, _Parameter]
    ) -> tuple[dict[str, TypeAdapter[Any]], ArgumentForm]:
        from pydantic import TypeAdapter

        for name, parameter in parameters.items():
            if parameter.kind not in (_Parameter.POSITIONAL_OR_KEYWORD, _Parameter.KEYWORD_ONLY):
                raise UsageError(f"{self._name}: `{parameter}` cannot be given by name; write out each argument")
            if parameter.annotation is _Parameter.empty:
                raise UsageError(
                    f"{self._name}: `{name}` needs an annotation, e.g. `{name}: str`; a tool's context goes to a "
                    "parameter called `context`"
                )
        try:
            evaluated = inspect.signature(function, eval_str=True).parameters
        except Exception as exc:  # the code of an annotation
            raise UsageError(f"{self._name}: its annotations cannot be read: {type(exc).__name__}: {exc}") from exc
        adapters: dict[str, TypeAdapter[Any]] = {}
        for name in parameters:
            annotation = evaluated[name].annotation
            try:
                adapters[name] = TypeAdapter(annotation)
                adapters[name].json_schema()
            except Exception as exc:  # pydantic's, and those of a class that describes itself
                shown = inspect.formatannotation(annotation)
                raise UsageError(
                    f"{self._name}: the argument `{name}` cannot be of {shown}, which has no JSON schema; use "
                    "int, float, bool, str, Literal, list or the like"
                ) from exc
        schemas, shared = TypeAdapter.json_schemas([(name, "validation", one) for name, one in adapters.items()])
        properties = {name: {**schemas[name, "validation"], **_default(parameters[name])} for name in adapters}
        required = [name for name in adapters if parameters[name].default is _Parameter.empty]
        return adapters, ArgumentForm({"type": "object", "properties": properties, "required": required, **shared})


def _is_text(parameters: Mapping[str, _Parameter]) -> bool:
    """Return whether a function takes the input as it is: it has one parameter, a text or without an annotation."""
    if len(parameters) != 1:
        return False
    (only,) = parameters.values()
    by_place = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)
    return only.kind in by_place and only.annotation in _TEXT


def _default(parameter: _Parameter) -> dict[str, Any]:
    try:
        return {"default": json.loads(json.dumps(parameter.default, allow_nan=False))}
    except (TypeError, ValueError):  # also if there is none
        return {}
