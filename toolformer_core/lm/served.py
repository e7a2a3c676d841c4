"""Names of models behind a server, `vllm+http://host:port/v1#model`, and the credentials that may stand in them.

Credentials are never part of a model's name: whatever stores, shows or digests a name uses the one without them
(`public_name`), so the same server with another key is the same model. Where credentials are kept, and who the server
is, is not known here.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from toolformer_core.errors import ModelError

__all__ = ["NOBODY", "Credentials", "ServedModel", "public_name", "served_model"]

_PREFIX = "vllm+"
# Strict: a password with an unescaped @, /, ? or # would else be taken for the host, the path or the model.
_SERVED = re.compile(
    r"vllm\+(?P<scheme>https?)://(?:(?P<login>[^/?#\s@]*)@)?(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:\d+)?"
    r"(?P<path>/[^?#\s@]*)?(?:\?(?P<query>[^#\s@]*))?#(?P<model>[^#\s][^#]*)"
)
_AS_IN_URL = re.compile(r"(?:(?P<login>[^@?\s]*)@)?(?:\?(?P<query>\S*))?")
_HIDDEN = "***"
_SECRET_CHARS = 4  # a shorter value of a query parameter would be found all over a message


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a server wants to know of whoever asks it. The texts are secret: no `repr` holds them.

    Args:
        key: sent as `Authorization: Bearer <key>`.
        login: `user:password`, percent-encoded as in a URL, sent as `Authorization: Basic`.
        query: `name=value&...`, appended to every address.
    """

    key: str = field(default="", repr=False)
    login: str = field(default="", repr=False)
    query: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> Credentials:
        """Read `user:password@`, `?name=value` or both, as they stand in a URL; any other text is a key."""
        as_in_url = _AS_IN_URL.fullmatch(text)
        if as_in_url is None or not text:
            return cls(key=text)
        return cls(login=as_in_url["login"] or "", query=as_in_url["query"] or "")

    def text(self) -> str:
        """Return what `parse` reads."""
        return self.key or (f"{self.login}@" if self.login else "") + (f"?{self.query}" if self.query else "")

    def __bool__(self) -> bool:
        return bool(self.text())

    def authorization(self) -> str:
        """Return the value of the header `Authorization`, "" for none."""
        if self.key:
            return f"Bearer {self.key}"
        if self.login:
            user, _, password = self.login.partition(":")
            plain = f"{unquote(user)}:{unquote(password)}"
            return f"Basic {base64.b64encode(plain.encode()).decode()}"
        return ""

    def hidden_in(self, text: str) -> str:
        """Return a text without these credentials, e.g. an answer that repeats the address."""
        values = [part.partition("=")[2] or part for part in self.query.split("&")]
        secrets = {
            self.key,
            self.query,
            self.login,
            self.login.partition(":")[2],
            self.authorization().partition(" ")[2],
        }
        secrets |= {value for value in values if len(value) >= _SECRET_CHARS}
        known = {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe="")) if form}
        for secret in sorted(known, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text


NOBODY = Credentials()


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of this machine and the server that draws from it.

    Args:
        url: the server's address, without credentials.
        model: a folder or hub name.
        credentials: those that stood in the name.
    """

    url: str
    model: str
    credentials: Credentials = NOBODY

    @property
    def name(self) -> str:
        """The name without credentials."""
        return f"{_PREFIX}{self.url}#{self.model}"


def served_model(name: str) -> ServedModel | None:
    """Take a model's name apart; None if it names no server.

    Raises:
        ModelError: a server is named without its model, or its credentials cannot be told from the rest; the message
            holds nothing that may be secret.
    """
    if not name.startswith(_PREFIX) and "://" not in name:
        return None
    found = _SERVED.fullmatch(name)
    if found is None:
        raise ModelError(_unreadable(name))
    url = f"{found['scheme']}://{found['host']}{found['port'] or ''}{found['path'] or ''}"
    return ServedModel(url, found["model"], Credentials(login=found["login"] or "", query=found["query"] or ""))


def public_name(name: str) -> str:
    """Return a model's name without credentials; a name that cannot be read is hidden as a whole."""
    try:
        served = served_model(name)
    except ModelError:
        return name if _harmless(name) else f"{_PREFIX}{_HIDDEN}"
    return name if served is None else served.name


def _harmless(name: str) -> bool:
    return not any(mark in name for mark in "@?") and name.count("#") <= 1


def _unreadable(name: str) -> str:
    write = "write vllm+http://host:port/v1#model, with the folder or hub name that `vllm serve` was given"
    if _harmless(name):
        return f"model {name!r} names no server and model; {write}"
    scheme = urlsplit(name.removeprefix(_PREFIX)).scheme
    shown = f"{_PREFIX}{scheme if scheme in ('http', 'https') else _HIDDEN}://{_HIDDEN}"
    return (
        f"model {shown} cannot be read; {write}, and its key in the environment; in a password in a URL write @ as "
        "%40, / as %2F, ? as %3F and # as %23"
    )
