"""The options of an export, and which of them may stand together. Nothing is looked up here."""

from dataclasses import dataclass
from typing import Literal, get_args

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.export.conversation import Requests
from toolformer_core.export.dialects import Arguments

Format = Literal["text", "jsonl", "hf", "tokens", "segments", "chat"]
Dialect = Literal["openai", "sharegpt", "text"]
SEPARATOR = "<|endoftext|>"  # the end of a document for GPT-2, GPT-Neo, GPT-J and Pythia
MAX_DEV = 0.5


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """How a dataset is exported; the fields are the form's (`ExportParameters`), which says what each means.

    None stands for the format's default. A UsageError: a value makes no sense, is missing, or is of another format.
    """

    format: Format = "jsonl"
    separator: str | None = None
    dialect: Dialect | None = None
    tokenizer: str | None = None
    arguments: Arguments | None = None
    request: str | None = None
    next_request: str | None = None
    dev: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        named = {"format": (self.format, Format), "dialect": (self.dialect, Dialect)}
        for what, (value, known) in {**named, "form of arguments": (self.arguments, Arguments)}.items():
            if value is not None and value not in get_args(known):
                raise UnknownNameError(what, value, get_args(known))
        chat, spoken = self.format == "chat", self.spoken
        separator = self.separator
        if separator is not None and (not separator.strip() or separator.splitlines() != [separator]):
            raise UsageError("--separator: give one line that is not blank")
        templated = self.format == "tokens" or spoken == "text"
        fitting = {
            "separator": (self.format == "text", "--format text"),
            "dialect": (chat, "--format chat"),
            "tokenizer": (templated, "--format tokens, and to --format chat --dialect text"),
            "arguments": (spoken in ("openai", "text"), "--format chat with --dialect openai or text"),
            "request": (chat, "--format chat"),
            "next_request": (spoken == "sharegpt", "--format chat --dialect sharegpt"),
        }
        for name, (fits, whose) in fitting.items():
            if getattr(self, name) is not None and not fits:
                raise UsageError(f"--{name.replace('_', '-')} belongs to {whose}")
        if templated and not self.tokenizer:
            form = "tokens" if self.format == "tokens" else "chat --dialect text"
            raise UsageError(f"--tokenizer: --format {form} needs a model's: embedded, a folder, or a hub name")
        if not 0 <= self.dev <= MAX_DEV:
            raise UsageError(f"--dev is a share of the documents of at most {MAX_DEV:g}, e.g. 0.05; got {self.dev:g}")

    @property
    def ending(self) -> str:
        """The line after each document of `text`."""
        return SEPARATOR if self.separator is None else self.separator

    @property
    def spoken(self) -> Dialect | None:
        """The dialect; None for formats that are no chat."""
        return (self.dialect or "openai") if self.format == "chat" else None

    @property
    def argument_form(self) -> Arguments | None:
        """The form of a call's arguments; None where the format leaves no choice."""
        default: dict[str | None, Arguments] = {"openai": "json", "text": "dict"}
        return self.arguments or default.get(self.spoken)

    @property
    def requests(self) -> Requests:
        """What the user says in a chat."""
        given = {"first": self.request, "next": self.next_request}
        return Requests(**{name: text for name, text in given.items() if text is not None})
