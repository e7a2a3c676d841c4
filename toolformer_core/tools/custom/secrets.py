"""Addresses and secrets that a user's own tool names: the one place of the core that reads environment variables.

A value is read when the tool is called, is never stored, and enters no fingerprint, message or pickle.
"""

import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from toolformer_core.endpoints import is_loopback
from toolformer_core.errors import UsageError

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_PLACE = re.compile(r"\$\{([A-Za-z_]\w*)\}|\{(\w+)\}")


def checked_address(url: str) -> SplitResult:
    """Return the parts of an address; a `UsageError` for no http(s), a login in it, or open HTTP to another machine."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in parts.netloc
    except ValueError:
        valid = False
    if not valid:
        shown = re.sub("//.*@", "//***@", url.partition("?")[0])
        raise UsageError(f"{shown[:80]!r} is no http or https address")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"the address of {parts.hostname} holds a user name or password; name a variable in headers")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise UsageError(f"http without encryption is only for this machine; write https for {parts.hostname}")
    return parts


def secret_names(*texts: str) -> tuple[str, ...]:
    """Return the names of the variables in some texts, in order, each once."""
    return tuple(dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text)))


def fill(template: str, values: Mapping[str, str] | None = None) -> str:
    """Return a template with its variables, and with `values` in place of their names in braces; see `secret`.

    All are filled in one pass: an input that holds `${NAME}` or `{context}` stays as it is.
    """
    values = values or {}

    def value_of(match: re.Match[str]) -> str:
        return values.get(match[2], match[0]) if match[1] is None else secret(match[1])

    return _PLACE.sub(value_of, template)


def secret(name: str) -> str:
    """Return a variable's value; a `UsageError` if it is not set, or holds more than one line."""
    value = os.environ.get(name, "").strip()  # a file leaves a line break at its end
    if not value:
        raise UsageError(f"the environment variable {name} is not set, and a tool needs it")
    if not value.isprintable():  # a library's message about it would show it, in a form that nobody recognises
        raise UsageError(f"the environment variable {name} holds a line break or control character: set it anew")
    return value


def hide_secrets(text: str, names: tuple[str, ...]) -> str:
    """Return a text in which the variables' values are replaced by their names."""
    for name in names:
        if value := os.environ.get(name, "").strip():
            text = text.replace(value, f"${{{name}}}")
    return text
