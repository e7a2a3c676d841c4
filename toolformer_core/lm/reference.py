"""How a user names a model, parsed once; a server's address is one of `toolformer_core.endpoints`.

    embedded                           the model that ships with the program
    FOLDER                             written by save_pretrained
    FILE.gguf                          a GGUF file
    OWNER/NAME                         a model on the Hugging Face hub
    vllm+http://host:port/v1#MODEL     the server makes the samples; the model is loaded here too, to scan and to score
    remote+http://host:port/v1#MODEL   the server does it all; only the tokenizer of MODEL is here
    remote+...#MODEL?tokenizer=NAME    ... or that of NAME: a folder or a name on the hub

Credentials are never part of a model's name: code that stores, shows or digests one uses `name`, without them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from toolformer_core.embedded import MODEL
from toolformer_core.endpoints import NO_CREDENTIALS, Credentials, holds_no_secret, parse_endpoint
from toolformer_core.errors import ModelError

EMBEDDED = "embedded"
_SERVERS: tuple[Literal["vllm", "remote"], ...] = ("vllm", "remote")
_TOKENIZER = "?tokenizer="


@dataclass(frozen=True, slots=True)
class ModelRef:
    kind: Literal["embedded", "folder", "gguf", "hub", "vllm", "remote"]  # what the name is of
    model: str  # folder, file or hub name as given; the name by which a server knows the model
    url: str = ""  # the server's address, without credentials; "": there is none
    credentials: Credentials = NO_CREDENTIALS  # those in the name
    tokenizer: str = ""  # folder or hub name of a `remote` model's tokenizer; "": `model`

    @classmethod
    def of(cls, name: str | ModelRef) -> ModelRef:
        """Parse a model's name, by default the hub's; a ModelError, without secrets, if it names a server badly."""
        if isinstance(name, ModelRef):
            return name
        if (kind := next((one for one in _SERVERS if name.startswith(f"{one}+")), None)) or "://" in name:
            address, _, tokenizer = name.partition(_TOKENIZER) if kind == "remote" else (name, "", "")
            endpoint = parse_endpoint(address.removeprefix(f"{kind}+")) if kind else None
            if kind is None or endpoint is None:
                raise ModelError(_unreadable(name, kind))
            return cls(kind, endpoint.model, endpoint.url, endpoint.credentials, tokenizer)
        path = Path(name).expanduser()
        if name == EMBEDDED:
            return cls("embedded", name)
        if name.strip() and path.is_dir():  # "" would be the current folder
            return cls("folder", name)
        return cls("gguf" if path.suffix == ".gguf" and path.is_file() else "hub", name)

    @property
    def name(self) -> str:
        tokenizer = f"{_TOKENIZER}{self.tokenizer}" if self.tokenizer else ""
        return f"{self.kind}+{self.url}#{self.model}{tokenizer}" if self.url else self.model

    @property
    def here(self) -> ModelRef:
        """The model that is loaded in this process, also where a server samples; a `remote` one is its tokenizer's."""
        return ModelRef.of(self.tokenizer or self.model) if self.url else self

    @property
    def path(self) -> Path:
        """The folder or file; of a name on the hub, where none is."""
        return MODEL if self.kind == "embedded" else Path(self.model).expanduser()

    def absolute(self) -> ModelRef:
        """Return the model as processes in other folders must name it."""
        if self.kind in ("folder", "gguf"):
            return replace(self, model=str(self.path.absolute()))
        return replace(self, tokenizer=ModelRef.of(self.tokenizer).absolute().name) if self.tokenizer else self

    def local_file(self, file: str) -> Path | None:
        """Return a file of the model's folder, or of the hub's cache; None if it is not on this machine."""
        if self.url:
            return self.here.local_file(file)
        if self.kind != "hub":
            return path if (path := self.path / file).is_file() else None
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        with suppress(HFValidationError):
            if isinstance(cached := try_to_load_from_cache(self.model, file), str):
                return Path(cached)
        return None


def _unreadable(name: str, kind: str | None) -> str:
    prefix = f"{kind or 'vllm'}+"
    remedy = f"write {prefix}http://host:port/v1#model, with the folder or hub name given to `vllm serve`"
    if kind is None:
        remedy += ", or remote+http://host:port/v1#model if the model is not to be loaded here"
    if holds_no_secret(name):
        return f"model {name!r} does not name a server and a model; {remedy}"
    escapes = "in a password in a URL write @ as %40, / as %2F, ? as %3F and # as %23"
    return f"model {prefix}*** cannot be parsed; {remedy}, and its key in the environment; {escapes}"
