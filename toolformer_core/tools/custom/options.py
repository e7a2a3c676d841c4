"""What the decorator `tool` and a tool file have in common: the settings that a user may declare (docs/tools.md)."""

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from toolformer_core.errors import UsageError
from toolformer_core.tools.base import ToolLimits
from toolformer_core.tools.declaration import DocumentFilter, ToolDeclaration, read_prompt

Options = TypeVar("Options", bound="ToolOptions")


def _pair(example: object) -> object:
    if not isinstance(example, dict):
        return example
    if example.keys() != {"question", "input"}:
        raise ValueError("write question and input")
    return example["question"], example["input"]


def _bounded(limits: ToolLimits) -> ToolLimits:
    if limits.at_once > 1024 or limits.tries > 10 or limits.cost < 0:
        raise ValueError("at_once is at most 1024, tries at most 10, and cost at least 0")
    return limits


class ToolOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    name: str = ""  # in calls
    description: str = ""
    version: str = ""
    prompt: str | None = None
    patterns: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    language: str | None = None
    min_chars: int = 0
    max_chars: int | None = None
    tau_s: float | None = Field(None, ge=0, lt=1)
    top_k: int | None = Field(None, gt=0)
    samples: int | None = Field(None, gt=0)
    tau_f: float | None = None
    keep_repeats: bool = False
    numeric: bool = False
    examples: tuple[Annotated[tuple[str, str], BeforeValidator(_pair)], ...] = ()
    mock_response: str = Field("", pattern=r"^$|\S")
    limits: Annotated[ToolLimits, AfterValidator(_bounded)] | None = None

    def declaration(self, origin: str, beside: Path) -> ToolDeclaration:
        """Return what is declared; the prompt stands in the file `beside` unless one is named, relative to it."""
        prompt, source = self.prompt or "", ""
        if "{text}" not in prompt:
            path = beside.parent / self.prompt if self.prompt else beside
            prompt, source = read_prompt(path, required=self.prompt is not None), str(path)
        conditions = DocumentFilter(self.patterns, self.keywords, self.language, self.min_chars, self.max_chars)
        sampling = self.tau_s, self.top_k, self.samples, self.tau_f, self.keep_repeats, self.numeric
        return ToolDeclaration(origin, prompt, source, conditions, *sampling, self.examples, self.mock_response)


def validated(kind: type[Options], value: object) -> Options:
    """Return options; a `UsageError` names the first that cannot be used."""
    try:
        given = value.items() if isinstance(value, dict) else ()
        return kind.model_validate({k: v for k, v in given if v is not None} if given else value)
    except ValidationError as exc:
        first = exc.errors()[0]
        raise UsageError(f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}") from None
