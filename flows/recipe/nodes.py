"""A YAML file as values that know their lines, so that a mistake can be answered with its place.

Scalars are read as YAML 1.2 has them (`on`, `off` and dates are texts), and a key may stand in a mapping once.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from toolformer_core.errors import UsageError


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML adds to it


for _kind, _pattern, _first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", list("tf")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"({_pattern})$"), _first)


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int  # from 1

    def error(self, message: str) -> UsageError:
        """Return the error that names the place in front of the message."""
        return UsageError(f"{self.file}:{self.line}: {message}")


@dataclass(frozen=True, slots=True)
class Entry:
    node: Any
    place: Place  # of the key


def place_of(node: Any) -> Place:
    return Place(node.start_mark.name, node.start_mark.line + 1)


def is_empty(node: Any) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def read_nodes(file: str, text: str) -> Any:
    """Return the root node of a document; nodes know the file."""
    try:
        loader = _Loader(text)
        loader.name = file
        root = loader.get_single_node()
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        problem = getattr(exc, "problem", None) or "it is no text"
        raise Place(file, mark.line + 1 if mark else 1).error(f"this is no YAML: {problem}") from exc
    if root is None:
        raise Place(file, 1).error("nothing stands in this file")
    return root


def entries(node: Any, what: str) -> dict[str, Entry]:
    """Return the entries of a mapping, in order; `what` names it in messages."""
    if not isinstance(node, yaml.MappingNode):
        raise place_of(node).error(f"{what} must be a mapping, NAME: VALUE")
    found: dict[str, Entry] = {}
    for key, value in node.value:
        place = place_of(key)
        if not isinstance(key, yaml.ScalarNode):
            raise place.error(f"a name in {what} must be a text")
        if key.value in found:
            raise place.error(f"{key.value} stands twice in {what}, first in line {found[key.value].place.line}")
        found[key.value] = Entry(value, place)
    return found


def plain(node: Any, within: Sequence[Any] = ()) -> Any:
    """Return a node's value, texts, numbers, lists and dictionaries; it stands `within` other nodes."""
    if node in within:
        raise place_of(node).error("this value contains itself")
    if isinstance(node, yaml.MappingNode):
        return {name: plain(one.node, (*within, node)) for name, one in entries(node, "this mapping").items()}
    if isinstance(node, yaml.SequenceNode):
        return [plain(one, (*within, node)) for one in node.value]
    try:
        return _Loader("").construct_object(node)
    except yaml.YAMLError as exc:
        raise place_of(node).error(f"the tag {node.tag} is not known") from exc
