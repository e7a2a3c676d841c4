"""Names of models behind a server, `vllm+http://host:port/v1#model`, and the credentials that a URL may hold.

Credentials are never part of a model's name. Code that stores, shows or digests a name uses the one without them
(`public_name`), so the same server with a different key is the same model. This module does not know where credentials
are kept, and talks to no server.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from toolformer_core.errors import ModelError

__all__ = ["NO_CREDENTIALS", "Credentials", "ServedModel", "public_name", "served_model"]

_PREFIX = "vllm+"
# Strict, because a password with an unescaped @, /, ? or # would otherwise be read as the host, the path or the model.
_SERVED = re.compile(
    r"vllm\+(?P<scheme>https?)://(?:(?P<login>[^/?#\s@]*)@)?(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:\d+)?"
    r"(?P<path>/[^?#\s@]*)?(?:\?(?P<query>[^#\s@]*))?#(?P<model>[^#\s][^#]*)"
)
_AS_IN_URL = re.compile(r"(?:(?P<login>[^@?\s]*)@)?(?:\?(?P<query>\S*))?")
_HIDDEN = "***"
_SECRET_CHARS = 4  # shorter query values are not redacted: they would match ordinary words of a message


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a server requires of its clients. The values are secret and are left out of `repr`.

    Args:
        key: sent as `Authorization: Bearer <key>`.
        login: `user:password`, percent-encoded as in a URL; sent as `Authorization: Basic`.
        query: `name=value&...`, appended to every URL.
    """

    key: str = field(default="", repr=False)
    login: str = field(default="", repr=False)
    query: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> Credentials:
        """Read `user:password@`, `?name=value` or both, written as in a URL; any other text is a key."""
        as_in_url = _AS_IN_URL.fullmatch(text)
        if as_in_url is None or not text:
            return cls(key=text)
        return cls(login=as_in_url["login"] or "", query=as_in_url["query"] or "")

    def text(self) -> str:
        """Return the text from which `parse` makes these credentials."""
        return self.key or (f"{self.login}@" if self.login else "") + (f"?{self.query}" if self.query else "")

    def __bool__(self) -> bool:
        return bool(self.text())

    def authorization(self) -> str:
        """Return the value of the `Authorization` header; "" if there is none."""
        if self.key:
            return f"Bearer {self.key}"
        if self.login:
            user, _, password = self.login.partition(":")
            plain = f"{unquote(user)}:{unquote(password)}"
            return f"Basic {base64.b64encode(plain.encode()).decode()}"
        return ""

    def redact(self, text: str) -> str:
        """Return a text with these credentials hidden, e.g. a server's message that repeats the URL."""
        values = [part.partition("=")[2] or part for part in self.query.split("&")]
        secrets = {
            self.key,
            self.query,
            self.login,
            self.login.partition(":")[2],
            self.authorization().partition(" ")[2],
        }
        secrets |= {value for value in values if len(value) >= _SECRET_CHARS}
        spellings = {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe="")) if form}
        for spelling in sorted(spellings, key=len, reverse=True):
            text = text.replace(spelling, _HIDDEN)
        return text


NO_CREDENTIALS = Credentials()


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that is loaded here and whose draws a server makes.

    Args:
        url: the server's address, without credentials.
        model: a folder or hub name.
        credentials: those in the name.
    """

    url: str
    model: str
    credentials: Credentials = NO_CREDENTIALS

    @property
    def name(self) -> str:
        """The name without credentials."""
        return f"{_PREFIX}{self.url}#{self.model}"


def served_model(name: str) -> ServedModel | None:
    """Parse a model's name; None if it names no server.

    Raises:
        ModelError: the name holds a server but no model, or the credentials cannot be separated from the rest; the
            message holds nothing that may be secret.
    """
    if not name.startswith(_PREFIX) and "://" not in name:
        return None
    match = _SERVED.fullmatch(name)
    if match is None:
        raise ModelError(_unreadable(name))
    url = f"{match['scheme']}://{match['host']}{match['port'] or ''}{match['path'] or ''}"
    return ServedModel(url, match["model"], Credentials(login=match["login"] or "", query=match["query"] or ""))


def public_name(name: str) -> str:
    """Return a model's name without credentials; a name that cannot be parsed is hidden completely."""
    try:
        served = served_model(name)
    except ModelError:
        return name if _holds_no_secret(name) else f"{_PREFIX}{_HIDDEN}"
    return name if served is None else served.name


def _holds_no_secret(name: str) -> bool:
    return not any(mark in name for mark in "@?") and name.count("#") <= 1


def _unreadable(name: str) -> str:
    remedy = "write vllm+http://host:port/v1#model, with the folder or hub name given to `vllm serve`"
    if _holds_no_secret(name):
        return f"model {name!r} does not name a server and a model; {remedy}"
    scheme = urlsplit(name.removeprefix(_PREFIX)).scheme
    redacted = f"{_PREFIX}{scheme if scheme in ('http', 'https') else _HIDDEN}://{_HIDDEN}"
    return (
        f"model {redacted} cannot be parsed; {remedy}, and its key in the environment; in a password in a URL write @ "
        "as %40, / as %2F, ? as %3F and # as %23"
    )
