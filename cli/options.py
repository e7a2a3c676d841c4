"""Options made from a flow's parameters, which are declared once (`flows/*/parameters.py`).

`with_options` gives a command an option for each field of a form, `option_of` that of a single field. It knows no flow.
"""

import inspect
import math
import re
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from functools import update_wrapper
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from typer.models import OptionInfo

from cli.terminal import only_json
from flows.forms.calls import ALL, number_in, thresholds
from flows.forms.fields import DATA_NOTE, Option, as_text
from toolformer_core.errors import UsageError

Form = TypeVar("Form", bound=BaseModel)

Data = Annotated[str | None, typer.Option("--data", help=f"Data folder or URL{DATA_NOTE}")]


def _keep_stdout(ctx: typer.Context, as_json: bool) -> bool:
    if as_json:
        ctx.with_resource(only_json())
    return as_json


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines", callback=_keep_stdout)]

_FIELD = re.compile(r"`(\w+)`")  # a field that another field's description names


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        for parameter in ctx.command.params:
            vars(parameter).update(hidden=False)  # of arguments it means nothing
        typer.echo(ctx.get_help())
        ctx.exit()


def with_options(
    *forms: type[BaseModel], optional: Collection[str] = (), shown: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn functions into commands: their first arguments are filled `forms`, the others are ordinary Typer options.

    Args:
        optional: required texts of a form that this command can do without; "" where they are not given.
        shown: fields whose options --help shows, where --help-all shows the others, too; none: --help shows all.
    """

    def make(command: Callable[..., None]) -> Callable[..., None]:
        others = list(inspect.signature(command, eval_str=True).parameters.values())[len(forms) :]

        def run(**options: Any) -> None:
            options.pop("help_all", None)
            values = [filled(form, **{name: options.pop(name) for name in form.model_fields}) for form in forms]
            command(*values, **options)

        of_forms = [
            _parameter(form, name, optional=name in optional, hidden=bool(shown) and name not in shown)
            for form in forms
            for name in form.model_fields
        ]
        if shown:
            rest = len(of_forms) - len(shown)
            show_all = typer.Option("--help-all", help=f"Show {rest} more options", callback=_show_all, is_eager=True)
            others.append(_keyword("help_all", Annotated[bool, show_all], False))
        parameters = [*of_forms, *(_keyword(other.name, other.annotation, other.default) for other in others)]
        update_wrapper(run, command, updated=())
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return make


def filled(form: type[Form], /, **values: Any) -> Form:
    """Return a form filled with the values of its options; a UsageError names the option whose value is wrong."""
    try:
        for name, value in values.items():
            values[name] = convert(value) if (convert := hints_of(form.model_fields[name]).convert) else value
        return form(**values)
    except ValidationError as exc:
        first = exc.errors()[0]
        option = option_name(str(first["loc"][0]))
        if first["type"] == "value_error":  # our own message, which does not show secrets
            raise UsageError(f"{option}: {first['ctx']['error']}") from None
        raise UsageError(f"{option}: {first['msg']} (got {first['input']!r})") from exc


def option_of(form: type[BaseModel], name: str) -> OptionInfo:
    """Return the option of a field, for the `Annotated` of a parameter of a command that takes no whole form."""
    field = form.model_fields[name]
    low, high = _bounds(field)
    names = option_name(name)
    if _type(field.annotation) is bool and field.default is not False:
        names += f"/--no-{names.removeprefix('--')}"
    option: OptionInfo = typer.Option(names, help=_help(form, field, hints_of(field)), min=low, max=high)
    return option


def option_name(field: str) -> str:
    """Return a field's name on the command line."""
    return f"--{field.strip('_').replace('_', '-')}"


def hints_of(field: FieldInfo) -> Option:
    """Return a field's settings that only the command line uses."""
    hints = Option()
    for option in field.metadata:
        if isinstance(option, Option):  # of its type, then of the field itself
            given = {one.name: value for one in fields(option) if (value := getattr(option, one.name))}
            hints = replace(hints, **given)
    return hints


def parse_thresholds(text: str, option: str = "--tau-f") -> dict[str, float]:
    """Parse `calculator=0.5,qa=1.2`; `option` is its name in messages. A UsageError says what is wrong."""
    try:
        return thresholds(text)
    except ValueError as exc:
        raise UsageError(f"{option}: {exc}") from None


def parse_by_tool(text: str, option: str, low: float, high: float = math.inf) -> float | dict[str, float] | None:
    """Parse `3`, a value of every tool, or `calculator=3,qa=2`, without `high` whole numbers; None: an empty text."""
    if not text.strip():
        return None
    by_tool = parse_thresholds(text if "=" in text else f"{ALL}={text}", option)
    for value in by_tool.values():
        if not low <= value <= high or (math.isinf(high) and value != int(value)):
            wanted = f"whole numbers from {low:g}" if math.isinf(high) else f"numbers from {low:g} to {high:g}"
            raise UsageError(f"{option} takes {wanted}, one for every tool or calculator=3,qa=2; got {text!r}")
    return by_tool if "=" in text else by_tool[ALL]


def parse_rates(text: str) -> list[float]:
    """Parse the rates of `--fdr`, `0.01,0.05`, which lie between 0 and 1."""
    rates = [number_in(part) for part in text.split(",") if part.strip()]
    if not all(0 < rate < 1 for rate in rates):
        raise UsageError(f"--fdr takes rates between 0 and 1, e.g. 0.05 or 0.01,0.05,0.1; got {text!r}")
    return rates


def _parameter(form: type[BaseModel], name: str, *, optional: bool = False, hidden: bool = False) -> inspect.Parameter:
    field = form.model_fields[name]
    hints = hints_of(field)
    kind = list[str] if hints.repeated else _type(field.annotation)
    default = None if hints.convert is not None else field.get_default(call_default_factory=True)
    if field.is_required():
        default = "" if optional else inspect.Parameter.empty
    elif isinstance(default, list | dict):
        default = as_text(default)
    if default is None:
        kind = kind | None
    if hints.argument:
        given = typer.Argument(help=_help(form, field, hints), show_default=False)
    else:
        given = option_of(form, name)
        given.rich_help_panel, given.hidden = hints.panel or None, hidden
    return _keyword(name, Annotated[kind, given], default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _type(annotation: Any) -> Any:
    """Return the type as which an option is parsed: a plain type or a choice; all else is text that the form parses."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type(get_args(annotation)[0])
    if origin in (list, dict):
        return str
    if origin is Literal:
        return annotation
    if members := [member for member in get_args(annotation) if member is not type(None)]:
        return _type(members[0]) if len(members) == 1 else str
    return annotation


def _help(form: type[BaseModel], field: FieldInfo, hints: Option) -> str:
    """Return a field's description, with other fields named as options, and the note that only the option has."""

    def as_option(name: re.Match[str]) -> str:
        return option_name(name[1]) if name[1] in form.model_fields else name[0]

    note = hints.note or ("; separated by commas" if get_origin(field.annotation) is list else "")
    return _FIELD.sub(as_option, field.description or "") + note


def _bounds(field: FieldInfo) -> tuple[float | None, float | None]:
    """Return the smallest and the largest value; of floats no exclusive ones, which Typer lacks and the form checks."""
    known: dict[str, Any] = {}
    for constraint in field.metadata:
        known |= {name: getattr(constraint, name) for name in ("ge", "gt", "le", "lt") if hasattr(constraint, name)}
    if _type(field.annotation) is int:
        low = known["gt"] + 1 if "gt" in known else known.get("ge")
        high = known["lt"] - 1 if "lt" in known else known.get("le")
        return low, high
    return (None, None) if "gt" in known or "lt" in known else (known.get("ge"), known.get("le"))
