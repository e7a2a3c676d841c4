"""Names of models behind a server; the address is one of `toolformer_core.endpoints`.

    vllm+http://host:port/v1#model     the server makes the draws; the model is loaded here too, to scan and to score
    remote+http://host:port/v1#model   the server does it all; of the model only its tokenizer is here

Credentials are never part of a model's name. Code that stores, shows or digests a name uses the one without them
(`public_name`), so the same server with a different key is the same model. This module does not know where credentials
are kept, and talks to no server.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from toolformer_core.endpoints import NO_CREDENTIALS, Credentials, holds_no_secret, parse_endpoint
from toolformer_core.errors import ModelError

__all__ = ["NO_CREDENTIALS", "Credentials", "ServedModel", "public_name", "served_model"]

_PREFIXES = ("vllm+", "remote+")
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server serves.

    Args:
        url: the server's address, without credentials.
        model: the name by which the server knows it; a folder or hub name if the model is loaded here as well.
        credentials: those in the name.
        remote: whether the server does it all.
    """

    url: str
    model: str
    credentials: Credentials = NO_CREDENTIALS
    remote: bool = False

    @property
    def name(self) -> str:
        """The name without credentials."""
        return f"{_PREFIXES[self.remote]}{self.url}#{self.model}"


def served_model(name: str) -> ServedModel | None:
    """Parse a model's name; None if it names no server.

    Raises:
        ModelError: the name holds a server but no model, or the credentials cannot be separated from the rest; the
            message holds nothing that may be secret.
    """
    prefix = _prefix(name)
    if not prefix and "://" not in name:
        return None
    endpoint = parse_endpoint(name.removeprefix(prefix)) if prefix else None
    if endpoint is None:
        raise ModelError(_unreadable(name))
    return ServedModel(endpoint.url, endpoint.model, endpoint.credentials, remote=prefix == "remote+")


def _prefix(name: str) -> str:
    return next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")


def public_name(name: str) -> str:
    """Return a model's name without credentials; a name that cannot be parsed is hidden completely."""
    try:
        served = served_model(name)
    except ModelError:
        return name if holds_no_secret(name) else f"{_prefix(name) or _PREFIXES[0]}{_HIDDEN}"
    return name if served is None else served.name


def _unreadable(name: str) -> str:
    prefix = _prefix(name) or _PREFIXES[0]
    remedy = f"write {prefix}http://host:port/v1#model, with the folder or hub name given to `vllm serve`"
    if not _prefix(name):
        remedy += ", or remote+http://host:port/v1#model if the model is not to be loaded here"
    if holds_no_secret(name):
        return f"model {name!r} does not name a server and a model; {remedy}"
    scheme = urlsplit(name.removeprefix(prefix)).scheme
    redacted = f"{prefix}{scheme if scheme in ('http', 'https') else _HIDDEN}://{_HIDDEN}"
    return (
        f"model {redacted} cannot be parsed; {remedy}, and its key in the environment; in a password in a URL write @ "
        "as %40, / as %2F, ? as %3F and # as %23"
    )
