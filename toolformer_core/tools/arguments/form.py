"""From a call's input text to the arguments of a tool, as its JSON schema asks for them.

One argument, or the one that is required, takes the whole input (`Europe/Paris`), unless that begins with one of the
tool's `NAME=`. Several are given by name, in any order: `source=EUR, target=USD, amount=20`. A value then reaches up to
a comma that another `NAME=` or `WORD=` follows; one within (), [] or {} ends no value. A value in quotes, `"` or `'`,
may hold everything; inside, `\\"` is a quote and `\\\\` is a backslash. Elsewhere quotes are ordinary characters.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from toolformer_core.records import unencodable
from toolformer_core.tools.arguments.values import BadValue, kinds_of, resolved, value_of
from toolformer_core.tools.schema_check import Check, lenient_checker

_WORD = r"[^\W\d][\w.\-]*"
_OPENING, _CLOSING = "([{", ")]}"
_JSON_STRING = re.compile(r'"(?:\\.|[^"\\])*+"', re.DOTALL)
_QUOTED = re.compile(r"""(["'])((?:\\(?:\1|\\)|(?!\1).)*+)\1""", re.DOTALL)


class BadInput(Exception):
    """An input that is not in the form that the tool asks for; its text says what is wrong."""


class ArgumentForm:
    """What arguments a tool has, and how an input is turned into them, which `check` or else the schema checks."""

    def __init__(self, schema: Mapping[str, Any], check: Check | None = None) -> None:
        self.schema = dict(schema)
        properties = resolved(self.schema, self.schema).get("properties") or {}
        self._properties: dict[str, Any] = dict(properties)
        required = self.schema.get("required") or []
        self.required = tuple(name for name in self._properties if name in required)
        self.optional = tuple(name for name in self._properties if name not in required)
        names = sorted(map(re.escape, self._properties), key=len, reverse=True)
        self._by_name = re.compile(rf"\s*({'|'.join(names)})\s*=(?!=)")
        name = "|".join([*names, _WORD])
        self._name = re.compile(rf"\s*({name})\s*=\s*")
        self._next = re.compile(rf"\s*,\s*(?=(?:{name})\s*=(?!=))")
        self._check = check or lenient_checker(self.schema)

    @property
    def whole(self) -> str | None:
        """The argument that takes the whole input; None if there is none."""
        if len(self.required) == 1:
            return self.required[0]
        return self.optional[0] if not self.required and len(self.optional) == 1 else None

    @property
    def template(self) -> str:
        """The input of a call, for a prompt: `timezone`, `source=..., amount=...`, "" if there are no arguments."""
        return self.whole or ", ".join(f"{name}=..." for name in self.required or self.optional)

    @property
    def sentence(self) -> str:
        """What an input looks like, for a person, in one sentence."""
        if not self._properties:
            return "The input is empty."
        optional = f" (optional: {', '.join(self.optional)})" if self.optional else ""
        if self.whole is None:
            return f"The input is written `{self.template}`{optional}."
        kinds = " or ".join(kinds_of(self._properties[self.whole], self.schema))
        said = f"The input is the argument `{self.whole}` ({kinds})"
        if len(self._properties) == 1:
            return f"{said}."
        return f"{said}; with others it is written `{self.whole}=..., {self.optional[0]}=...`{optional}."

    def arguments(self, text: str) -> dict[str, Any]:
        """Return the arguments that an input gives; `BadInput` if it has another form, or the schema refuses them."""
        if problem := unencodable(text):
            raise BadInput(problem)
        found = self._read(text)
        if missing := [name for name in self.required if name not in found]:
            raise BadInput(f"{missing[0]} is missing: write {self.template}")
        if problem := self.problem(found):
            raise BadInput(problem)
        return found

    def problem(self, arguments: Mapping[str, Any]) -> str:
        """Return what is wrong with arguments, "" if nothing."""
        try:
            return unencodable(json.dumps(arguments, ensure_ascii=False)) or self._check(arguments)
        except RecursionError:
            return "nested too deeply"

    def _read(self, text: str) -> dict[str, Any]:
        if not self._properties:
            if text.strip():
                raise BadInput("the tool takes no arguments: leave the input empty")
            return {}
        only = self.whole
        if not text.strip():
            return {}
        if only is not None and (len(self._properties) == 1 or not self._by_name.match(text)):
            return {only: self._value(only, text, quoted=False)}
        return self._named(text)

    def _named(self, text: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        at = 0
        while at < len(text):
            match = self._name.match(text, at)
            if match is None:
                raise BadInput(f"no name and '=' at {text[at : at + 40]!r}: write {self.template}")
            name = match.group(1)
            if name not in self._properties:
                raise BadInput(f"there is no argument {name!r}; there are {', '.join(self._properties)}")
            if name in found:
                raise BadInput(f"the argument {name!r} is given twice")
            raw, quoted, at = _scan(text, match.end(), self._next)
            found[name] = self._value(name, raw, quoted=quoted)
        return found

    def _value(self, name: str, text: str, *, quoted: bool) -> Any:
        try:
            return value_of(text, self._properties[name], self.schema, quoted=quoted)
        except BadValue as exc:
            raise BadInput(f"{name}: {exc}") from exc


def _scan(text: str, at: int, next_name: re.Pattern[str]) -> tuple[str, bool, int]:
    """Return the value that starts at a place, whether it stands in quotes, and where the next name starts."""
    if at < len(text) and text[at] in "\"'":
        match = _QUOTED.match(text, at)
        if match is None:
            raise BadInput(f"the quote at {text[at : at + 40]!r} is not closed")
        value, rest = re.sub(rf"\\([{match[1]}\\])", r"\1", match[2]), text[match.end() :].strip()
        following = next_name.match(text, match.end())
        if rest and following is None:
            raise BadInput(f"after the quoted value comes {rest[:40]!r}, not a comma and a name")
        return value, True, following.end() if following else len(text)
    depth, end = 0, at
    while end < len(text):
        char = text[end]
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth = max(0, depth - 1)
        elif depth and (string := _JSON_STRING.match(text, end)):
            end = string.end() - 1
        elif not depth and (char == "," or char.isspace()) and (following := next_name.match(text, end)):
            return text[at:end].strip(), False, following.end()
        end += 1
    if depth:
        raise BadInput(f"a bracket is not closed in {text[at : at + 40]!r}")
    return text[at:].strip(), False, len(text)
