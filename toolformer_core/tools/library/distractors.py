"""Distractors: plausible tools that make their answers up, to measure how well a tool is chosen among many.

Answers are decided by the topic and the input alone. They are made of the table `distractors.txt`: under the line of a
subject (a kind of thing | the words in front of its name | names, the last one for the mock response) a line a topic |
the question | form of the answer. In a form, `<...>` stands for a part that depends on the question:

    <int 3 9>      a whole number from 3 to 9          <code Aa00>   a letter for each A or a, a digit for each 0
    <time 6 22>    a time of day from 6:00 to 22:59    <list x|y|z>  two of these, in alphabetical order
    <pick x|y|z>   one of these
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of, numbers_of
from toolformer_core.tools.custom.reference import camel_case
from toolformer_core.tools.declaration import ToolDeclaration
from toolformer_core.tools.library import DISTRACTOR_PREFIX

VERSION = "1"
_TABLE = Path(__file__).with_name("distractors.txt")

_PART = re.compile(r"<(\w+) ([^>]*)>")
_DESCRIPTIONS = ("Takes the name of a {kind} and returns {what}.", "Looks up {what} for a given {kind}.")
_QUESTIONS = (
    "Can you tell me {what} {of} {name}?",
    "Please find out {what} {of} {name}.",
    "I would like to know {what} {of} {name}.",
    "Show me {what} {of} {name}.",
)


@dataclass(frozen=True, slots=True)
class Distractor:
    """A tool that makes its answers up. Failures: `empty_input`."""

    key: str  # `distractor_` and its topic
    name: str
    description: str
    form: str  # of its answers, see the module
    examples: tuple[tuple[str, str], ...]
    mock_response: str  # its answer to one more input

    @property
    def fingerprint(self) -> str:
        return digest_of(type(self).__name__, VERSION, self.key, self.form)

    @property
    def declaration(self) -> ToolDeclaration:
        """Its examples and mock response; it has no annotation prompt, since nobody is to be taught it."""
        return ToolDeclaration(origin="distractors", examples=self.examples, mock_response=self.mock_response)

    def load(self) -> None: ...

    def run(self, input: str, context: str = "") -> ToolResult:
        """Make up an answer; the context is ignored, and so are case and spaces of the input."""
        words = " ".join(input.casefold().split())
        return ToolResponse(_made_up(self.key, self.form, words)) if words else ToolFailure("empty_input")


def distractors(count: int, seed: int = 0) -> list[Distractor]:
    """Return some distractors, in the order of a seed; a `UsageError` if there are fewer.

    Those of a smaller count are the first of a larger one.
    """
    known = _by_key()
    if not 0 <= count <= len(known):
        raise UsageError(f"there are {len(known)} distractors, so {count} cannot be given; ask for 0 to {len(known)}")
    ordered = sorted(known, key=lambda key: digest_of("distractors", str(seed), key))
    return [known[key] for key in ordered[:count]]


def distractor(key: str) -> Distractor:
    if key not in _by_key():
        raise UnknownNameError("distractor", key, _by_key())
    return _by_key()[key]


@lru_cache(maxsize=1)
def _by_key() -> dict[str, Distractor]:
    return {one.key: one for one in _read(_TABLE.read_text("utf-8"))}


def _read(table: str) -> Iterator[Distractor]:
    kind, of, names = "", "", [""]
    for line in table.strip().splitlines():
        first, second, third = (part.strip() for part in line.split(" | "))
        if first.startswith("subject: "):
            kind, of, names = first.removeprefix("subject: "), second, third.split(", ")
        else:
            yield _distractor(first, second, third, (kind, of, names))


def _distractor(topic: str, what: str, form: str, subject: tuple[str, str, Sequence[str]]) -> Distractor:
    kind, of, names = subject
    key = DISTRACTOR_PREFIX + topic
    turn = numbers_of("examples", topic, count=1)[0]
    description = _DESCRIPTIONS[turn % len(_DESCRIPTIONS)].format(kind=kind, what=what)
    examples = []
    for i, question in enumerate(_QUESTIONS):
        name = names[(turn + i) % (len(names) - 1)]  # the last one is kept for the mock response
        examples.append((question.format(what=what, of=of, name=name), name))
    mock_response = _made_up(key, form, names[-1].casefold())
    return Distractor(key, camel_case(topic), description, form, tuple(examples), mock_response)


def _made_up(key: str, form: str, words: str) -> str:
    numbers = iter(numbers_of("distractor", key, words, count=4 * len(_PART.findall(form)) + 4))
    return _PART.sub(lambda part: _filled(part[1], part[2], next(numbers)), form)


def _filled(kind: str, given: str, number: int) -> str:
    if kind == "pick":
        choices = given.split("|")
        return choices[number % len(choices)]
    if kind == "list":
        items = given.split("|")
        first = number % len(items)
        second = (first + 1 + number // len(items) % (len(items) - 1)) % len(items)
        return ", ".join(sorted((items[first], items[second])))
    if kind == "code":
        return "".join(_sign(sign, number >> (4 * i)) for i, sign in enumerate(given))
    low, high = (int(bound) for bound in given.split())
    within = low + number % (high - low + 1)
    return f"{within}:{number // 97 % 60:02}" if kind == "time" else str(within)


def _sign(sign: str, number: int) -> str:
    if sign == "0":
        return str(number % 10)
    return chr(ord(sign) + number % 26) if sign in ("A", "a") else sign
