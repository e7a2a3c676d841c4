"""The rule that makes a conversation of a text with calls.

    Of 587 books 58 are lent, so [Calculator(587 - 58) -> 529] 529 remain.

    user        Continue this text. ...              a fixed request, an empty line, the text up to the call
                Of 587 books 58 are lent, so
    assistant   Calculator(587 - 58)                 the call
    tool        529                                  the response, as the tool gave it
    assistant   529 remain.                          the text after the call, without the space at its beginning

With several calls, the text between two of them is the content of the assistant's turn that holds the second call.
Chat templates and servers trim what a turn begins with. So the text after a call must begin with exactly one space: it
is dropped, and `restore` puts it back. Between two calls nothing at all may stand. An example is left out, as

    | reason  | because                                                           |
    |---------|-------------------------------------------------------------------|
    | plain   | there is no call                                                  |
    | start   | nothing but white space stands before the first call              |
    | end     | nothing but white space stands after the last call                |
    | newline | the text after a call begins on a new line                        |
    | spaces  | it begins with several spaces, or white space of another kind     |
    | glued   | it begins without a space                                         |
"""

from dataclasses import dataclass
from typing import Literal

from toolformer_core.export.pieces import written_calls
from toolformer_core.records import Call, Example

REQUEST = "Continue this text. Call a tool where its answer helps to write what comes next."
NEXT_REQUEST = "Go on."
REASONS = ("plain", "start", "end", "newline", "spaces", "glued")


@dataclass(frozen=True, slots=True)
class Requests:
    """What the user says besides the text."""

    first: str = REQUEST  # in front of the text; an empty line lies between
    next: str = NEXT_REQUEST  # between a text and the next call, in dialects where the user must speak there

    @property
    def head(self) -> str:
        """What stands in front of the text in the user's first turn."""
        return f"{self.first}\n\n" if self.first else ""


DEFAULT_REQUESTS = Requests()


@dataclass(frozen=True, slots=True)
class Turn:
    role: Literal["user", "assistant", "tool"]
    content: str
    call: Call | None = None  # the assistant's call after the content, or the call that the tool answers


Conversation = tuple[Turn, ...]  # user, then assistant with a call and tool for each call, then assistant


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why an example has no row."""

    reason: str


def conversation_of(example: Example, requests: Requests = DEFAULT_REQUESTS) -> Conversation | LeftOut:
    """Return the turns of an example, or why it has none; a CallSyntaxError if its spans are not its calls'."""
    calls = written_calls(example)
    bounds = [0, *(offset for call in calls for offset in (call.start, call.end)), len(example.text)]
    before, *after = (example.text[at:end] for at, end in zip(bounds[::2], bounds[1::2], strict=True))
    if reason := _why_not(before, after):
        return LeftOut(reason)
    turns, content = [Turn("user", requests.head + before)], ""
    for call, text in zip(calls, after, strict=True):
        turns += [Turn("assistant", content, call.call), Turn("tool", call.response, call.call)]
        content = text[1:]
    return (*turns, Turn("assistant", content))


def _why_not(before: str, after: list[str]) -> str:
    if not after:
        return "plain"
    if not before.strip():
        return "start"
    if not after[-1].strip():
        return "end"
    return next((reason for text in (*filter(None, after[:-1]), after[-1]) if (reason := _wrong_beginning(text))), "")


def _wrong_beginning(text: str) -> str:
    white = text[: len(text) - len(text.lstrip())]
    if white == " " and text != white:
        return ""
    if not white:
        return "glued"
    return "newline" if white.splitlines() != [white] else "spaces"
