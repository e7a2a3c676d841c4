"""The parameters of `export`, declared once: Prefect's form, the options of `toolformer export`, a table of docs."""

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from flows.export.settings import MAX_DEV, ExportSettings, Format
from flows.forms.fields import AUTO, FORM, AbsolutePath, DataFolder, ModelName, Option, Repository, Version
from toolformer_core.errors import UsageError

_CHATS = Option("Chats")
_HUB = Option("Hub")


class ExportParameters(BaseModel):
    """C* to files."""

    model_config = FORM

    dataset: Version = Field("cstar", description="Name, or name@version; the newest version by default")
    data: DataFolder = Field("toolformer-data", description="Data folder or URL in which the dataset was built")
    out: Annotated[AbsolutePath, Option(argument=True)] = Field(
        description="File (hf: folder) to write; it must not exist yet"
    )
    format: Format = Field("jsonl", description="Whole texts, or what a trainer reads: docs/using.md")
    separator: str | None = Field(
        None, description="The line that ends each document of format text (default: <|endoftext|>)"
    )
    tokenizer: ModelName | None = Field(
        None, description="Whose tokens, or whose chat template dialect text renders: embedded, folder, hub name"
    )
    dialect: Annotated[Literal["auto", "openai", "sharegpt", "text"], _CHATS] = Field(
        "auto", description="Of chats: openai for TRL and axolotl (auto), sharegpt for LLaMA-Factory, or text"
    )
    arguments: Annotated[Literal["auto", "dict", "json"], _CHATS] = Field(
        "auto", description="Of calls in chats; auto: a JSON string in openai, a dict for a template"
    )
    request: Annotated[str | None, _CHATS] = Field(
        None, description="What the user of a chat says in front of the text (default: to continue it)"
    )
    next_request: Annotated[str | None, _CHATS] = Field(
        None, description="What the user says between a text and the next call (sharegpt)"
    )
    dev: float = Field(0.0, ge=0, le=MAX_DEV, description="Share of the documents for a dev split beside it, e.g. 0.05")
    seed: int = Field(0, description="Of the dev split")
    push: Annotated[Repository | None, _HUB] = Field(
        None, description="Dataset repository on the Hugging Face hub to push it to, OWNER/NAME; needs HF_TOKEN"
    )
    public: Annotated[bool, _HUB] = Field(False, description="Whether all may read that repository (default: private)")
    replace: Annotated[bool, _HUB] = Field(
        False, description="Push also where other files lie; those of the same name are replaced"
    )
    dry_run: Annotated[bool, _HUB] = Field(
        False, description="Write the files and say what a push would send; send nothing"
    )

    def settings(self) -> ExportSettings:
        """Return the options of the export; a UsageError says that one is missing, or belongs to another format."""
        for name in ("public", "replace", "dry_run"):
            if getattr(self, name) and self.push is None:
                raise UsageError(f"--{name.replace('_', '-')} belongs to --push")
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(ExportSettings)}
        given |= {name: None for name, value in given.items() if value == AUTO}
        return ExportSettings(**given)
