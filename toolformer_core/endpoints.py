"""Addresses of models behind a server, `https://host/v1#model`, and the credentials that a server asks for.

Credentials are never part of an address that is stored, shown or digested.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

# Strict, because a password with an unescaped @, /, ? or # would otherwise be read as the host, the path or the model.
_ENDPOINT = re.compile(
    r"(?P<scheme>https?)://(?:(?P<login>[^/?#\s@]*)@)?(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:\d+)?"
    r"(?P<path>/[^?#\s@]*)?(?:\?(?P<query>[^#\s@]*))?#(?P<model>[^#\s][^#]*)"
)
_AS_IN_URL = re.compile(r"(?:(?P<login>[^@?\s]*)@)?(?:\?(?P<query>\S*))?")
SECRET_NAME = r"key|token|secret|passw|pwd|auth|credential|signature|\bsig\b"  # in any case: values so named are secret
_HIDDEN = "***"
_SECRET_CHARS = 4  # shorter query values are not redacted: they would match ordinary words of a message


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a server requires of its clients. The values are secret and are left out of `repr`."""

    key: str = field(default="", repr=False)  # sent as `Authorization: Bearer <key>`
    login: str = field(default="", repr=False)  # user:password, encoded as in a URL; sent as `Authorization: Basic`
    query: str = field(default="", repr=False)  # `name=value&...`, appended to every URL

    @classmethod
    def parse(cls, text: str) -> Credentials:
        """Read `user:password@`, `?name=value` or both, written as in a URL; any other text is a key."""
        as_in_url = _AS_IN_URL.fullmatch(text)
        if as_in_url is None or not text:
            return cls(key=text)
        return cls(login=as_in_url["login"] or "", query=as_in_url["query"] or "")

    def text(self) -> str:
        return self.key or (f"{self.login}@" if self.login else "") + (f"?{self.query}" if self.query else "")

    def __bool__(self) -> bool:
        return bool(self.text())

    def authorization(self) -> str:
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
        secrets = {value for value in values if len(value) >= _SECRET_CHARS}
        secrets |= {self.key, self.query, self.login, self.login.partition(":")[2]}
        secrets.add(self.authorization().partition(" ")[2])
        spellings = {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe="")) if form}
        for spelling in sorted(spellings, key=len, reverse=True):
            text = text.replace(spelling, _HIDDEN)
        return text


NO_CREDENTIALS = Credentials()


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str  # the server's address, without credentials
    model: str  # the name by which the server knows the model
    credentials: Credentials = NO_CREDENTIALS


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_endpoint(text: str) -> Endpoint | None:
    """Parse `https://host:port/path#model`; None if it is not one, or its credentials cannot be found."""
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        return None
    url = f"{match['scheme']}://{match['host']}{match['port'] or ''}{match['path'] or ''}"
    return Endpoint(url, match["model"], Credentials(login=match["login"] or "", query=match["query"] or ""))


def holds_no_secret(address: str) -> bool:
    """Return whether an address that cannot be parsed may be shown: nothing in it can be a login, a key or a query."""
    return not any(mark in address for mark in "@?") and address.count("#") <= 1
