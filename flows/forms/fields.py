"""What the flows' parameters have in common: types that serve as a form's field, as an option and as a value.

A worker runs a form's flow in an empty folder, so the JSON schema asks for absolute paths and names from a list; on the
command line paths may be relative. Nothing heavy is imported: the command line's help imports every form.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from tasks.settings import checked_data, data_folder, model_key_variable, qa_key_variable, shown_url
from toolformer_core.config import TOOL_NAMES
from toolformer_core.embedded import CORPUS
from toolformer_core.endpoints import SECRET_NAME, Endpoint
from toolformer_core.errors import ModelError
from toolformer_core.lm.reference import ModelRef
from toolformer_core.tools.qa_readers.served import is_address, reader_endpoint


@dataclass(frozen=True, slots=True)
class Option:
    """What the command line alone needs to know of a field; it stands in the field's `Annotated` and in no schema."""

    # the heading under which `--help` and the docs list the option; "": it stands in front, without one
    panel: str = ""
    note: str = ""  # what the help says right after the field's description
    # makes the field's value of what was given, or of None if nothing was. Default: what was given is the value, else
    # the field's default.
    convert: Callable[[Any], Any] | None = None
    repeated: bool = False  # the option may be given several times, once for each element of a list
    argument: bool = False  # it is given by its place on the command line, not by its name


@dataclass(frozen=True, slots=True)
class OneOf:
    """The schema of a text that is one of some names, or matches a regular expression."""

    names: Callable[[], Iterable[str]]  # called when a schema is made, so that it may import what holds them
    pattern: str = ""  # a regular expression that another text may match; "": no other text

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        choice: dict[str, Any] = {"type": "string", "enum": list(self.names())}
        return {"anyOf": [choice, {"type": "string", "pattern": self.pattern}]} if self.pattern else choice


TOOLS, RUNNING = Option("Tools"), Option("Running")
DATA_NOTE = " (default: $TOOLFORMER_DATA, else ./toolformer-data)"  # of the option; a form must name its data

_ROOTED = "^/"
# And no password, as `settings.shown_url` finds it: the API would store it.
_ROOTED_OR_URL = r"^(/|[A-Za-z][A-Za-z0-9+.-]*://(?![^/?#:@]*:(?!\d+([/?#]|$)).*@))"
_NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,150}"  # as `warehouse.commits.check_name` has it


def _text(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


def _without_password(url: str) -> str:
    if "://" in url and shown_url(url) != url:
        raise ValueError(
            f"{shown_url(url)} is given with credentials, which would be stored with the run: give them in the "
            "environment, for S3 in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return url


def _without_credentials(name: str, *, reader: bool = False) -> str:
    if reader and not is_address(name):
        return name
    try:
        named: ModelRef | Endpoint = reader_endpoint(name) if reader else ModelRef.of(name)
    except ModelError as exc:
        raise ValueError(str(exc)) from None
    if named.credentials:
        shown = named.name if isinstance(named, ModelRef) else named.url
        variable = model_key_variable(named) if isinstance(named, ModelRef) else qa_key_variable(named.url)
        raise ValueError(
            f"{shown} is given with credentials, which would be stored with the run: give them in the environment, in "
            f"{variable}"
        )
    return name


def as_text(value: Any) -> str:
    """Return a field's value as an option is written; lists and thresholds as the types below parse them."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={one if isinstance(one, str) else _number(one)}" for key, one in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _number(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def as_parts(text: Any) -> Any:
    """Return the parts of a text with commas between them; anything else as it is."""
    return [part.strip() for part in text.split(",") if part.strip()] if isinstance(text, str) else text


def _whole_numbers(given: Any) -> Any:
    parts = as_parts(given)
    for part in parts if isinstance(given, str) else ():
        if not part.isdecimal():
            raise ValueError(f"{part!r} is not a whole number; write e.g. 0,1,3,10")
    return parts


AbsolutePath = Annotated[str, _text(_ROOTED)]
Corpus = Annotated[
    str,
    AfterValidator(lambda path: str(CORPUS) if path == "embedded" else path),
    AfterValidator(_without_password),
    _text(_ROOTED_OR_URL.replace("^(/", "^(/|embedded$", 1)),
]
DataFolder = Annotated[
    str,
    AfterValidator(_without_password),
    _text(_ROOTED_OR_URL),
    AfterValidator(checked_data),
    Option(note=DATA_NOTE, convert=data_folder),
]


def columns_of(given: Any) -> Any:
    """Parse `text=body,url=link` into columns by what they hold."""
    if not isinstance(given, str):
        return given or {}
    pairs = [part.partition("=") for part in as_parts(given)]
    for name, equals, column in pairs:
        if name not in ("text", "url", "date") or not (equals and column):
            raise ValueError(f"{name + equals + column!r} names no column; write e.g. text=body,url=link,date=when")
    return {name: column for name, _, column in pairs}


_COLUMNS = {name: {"type": "string", "title": name} for name in ("text", "url", "date")}
Columns = Annotated[
    dict[Literal["text", "url", "date"], str],
    BeforeValidator(columns_of),
    WithJsonSchema({"type": "object", "properties": _COLUMNS, "additionalProperties": False}),
    Option(note=", e.g. text=body,url=link,date=when"),
]
Passages = Annotated[
    AbsolutePath | None,
    Field(
        description="Passages for wikisearch and qa: JSONL with title, section and text, or the folder that "
        "`toolformer index` wrote"
    ),
]
# A folder's path from the root, a hub name, or `embedded`; of a server no credentials, which the API would store.
_SERVED = r"^(?!(vllm|remote)\+[^#]*[@?])(?!(vllm|remote)\+.*#.*#)(?!(?!(vllm|remote)\+https?://).*://)[^.~ ]"
ModelName = Annotated[str, AfterValidator(_without_credentials), _text(_SERVED)]
DatasetName = Annotated[str, _text(f"^{_NAME}$")]
Version = Annotated[str, _text(f"^{_NAME}(@{_NAME})?$")]
Repository = Annotated[str, _text("^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]  # on the hub


# A list, or on the command line a text with commas between its parts.
Listed = BeforeValidator(as_parts)
WholeNumbers = BeforeValidator(_whole_numbers)


def as_list(texts: list[str] | None) -> list[str]:
    return list(texts or ())


Tools = Annotated[
    list[str],
    Listed,
    WithJsonSchema({"type": "array", "items": {"type": "string", "enum": [*TOOL_NAMES]}, "uniqueItems": True}),
    Option(
        note="; separated by commas (default: all five, or none if --tool names others)",
        convert=lambda text: text,  # as it is, so that None still says that the option was not given
    ),
]
# A whole path, an MCP server (with no credentials, which the API would store), or the name of an entry point or module;
# `Name=` in front chooses the name in calls.
# A form has no flag for any case.
_SECRET = re.sub(r"(?<!\\)[a-z]", lambda letter: f"[{letter[0].upper()}{letter[0]}]", SECRET_NAME)
_MCP = rf"mcp\+(stdio:|https?://(?![^#]*@)(?![^#]*[?&][^=&#]*({_SECRET})))"
_REFERENCE = rf"^([A-Za-z]\w*=)?(/|{_MCP}|(?!.*\.(py|ya?ml)(:|$))[A-Za-z_][\w.-]*(:[A-Za-z_]\w*)?$)"
References = Annotated[
    list[Annotated[str, _text(_REFERENCE)]],
    Field(
        description="Tools of your own, besides `tools`: FILE.py:FUNCTION, PACKAGE.MODULE:TOOL, a YAML file, a name "
        "of the library or of an entry point, mcp+stdio:COMMAND#TOOL or mcp+https://HOST/PATH#TOOL; NAME= in front "
        "chooses the name in calls"
    ),
    Option(note="; may be repeated", convert=as_list, repeated=True),
]
_READER = r"^(?!https?://[^#]*[@?])(?!https?://.*#.*#)(?!(?!https?://).*://)[^ ]"  # of a server no credentials either
_ReaderName = Annotated[str, AfterValidator(partial(_without_credentials, reader=True)), _text(_READER)]
# A task's own items, or the whole path of a file, with the task in front unless its name begins so.
Benchmarks = Annotated[
    list[Annotated[str, _text(r"^([A-Za-z][\w-]*|([A-Za-z][\w-]*=)?/.*)$")]],
    Field(
        description="Drop documents that share `ngram` words in a row with an item of this benchmark: FILE, TASK=FILE "
        "if its name does not begin with the task's, TASK for a task's own items, or a .txt file with an item a line"
    ),
    Option(note="; may be repeated", convert=as_list, repeated=True),
]
QAReader = Annotated[
    _ReaderName | None,
    Field(
        description="What reads the passages for qa: 'embedded', a model's folder or hub name, or the URL of an "
        "OpenAI-compatible server, https://HOST/v1#MODEL"
    ),
]
TranslatorModel = Annotated[
    str | None,
    Field(
        description="What translates for mt: the folder or hub name of an NLLB or M2M100 model, or a phrase table: "
        "a .tsv or .txt file of language, source, english, separated by tabs"
    ),
]
Gpus = Annotated[
    int | None,
    Field(
        ge=0,
        description="Dask workers on this machine that get a GPU each; the model runs on these, and the others see no "
        "GPU (default: one for each GPU, up to `workers`). With a scheduler's address: how many workers with a GPU are "
        "expected there; the model's tasks wait for them (default: if one is there), and with 0 run on any worker",
    ),
]


_WORKERS = "Shards at a time (threads), or Dask workers; a process uses its model for one shard at a time"
Workers = Annotated[int, Field(gt=0, description=_WORKERS)]  # of a flow whose shards ask a model


def benchmark_names() -> Iterable[str]:
    from toolformer_core.evaluate.tasks import tasks

    return tasks()


AUTO = "auto"  # in place of a value: the program chooses


def _number_or_auto(given: Any) -> Any:
    if not isinstance(given, str) or given == AUTO:
        return given
    if not given.isdecimal() or not int(given):
        raise ValueError(f"{given!r} is neither a number of documents, at least 1, nor {AUTO}")
    return int(given)


ShardDocuments = Annotated[
    Annotated[int, Field(gt=0)] | Literal["auto"],
    BeforeValidator(_number_or_auto),
    WithJsonSchema({"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string", "enum": [AUTO]}]}),
    Field(
        description="Documents per shard, the unit of work and of restart; auto: enough for some tens of "
        "seconds of work, by the documents' mean length"
    ),
]


def _for_workers(schema: dict[str, Any]) -> None:
    """Say which paths must be absolute, and ask for `data`: its default is relative to a folder no worker has."""
    for field in schema["properties"].values():
        kinds = field.get("anyOf", [field])
        if any(kind.get("pattern", "").startswith(("^/", "^(/")) for kind in kinds):
            field["description"] += " (absolute, as the worker sees it)"
    schema["properties"]["data"].pop("default")
    schema["required"] = sorted({*schema.get("required", ()), "data"})


class ToolChoice(BaseModel):
    """The rule that parameters with `tools` and `tool` share."""

    @model_validator(mode="before")
    @classmethod
    def _default_tools(cls, values: Any) -> Any:
        """Where `tools` is not given: none of the paper's tools if `tool` names others, else all of them."""
        if isinstance(values, Mapping) and values.get("tools") is None:
            return {**values, "tools": [] if values.get("tool") else list(TOOL_NAMES)}
        return values


# Messages do not repeat what was given: it may hold credentials.
FORM = ConfigDict(extra="forbid", json_schema_extra=_for_workers, hide_input_in_errors=True)
