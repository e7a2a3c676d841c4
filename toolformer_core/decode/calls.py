"""Reads a call while it is being written: has it reached its arrow, or can it no longer do so?

    | written after " ["                             | means                                                     |
    |------------------------------------------------|-----------------------------------------------------------|
    | an arrow after a `)`, or outside parentheses,  | a call: the tool is called, even if the call does not     |
    | ... after a tool's name                        | parse                                                     |
    | ... after another word, or none                | no call                                                   |
    | an arrow inside parentheses                    | part of the input                                         |
    | the closing `]`, without an arrow before it    | no call                                                   |
    | neither, up to the token limit of a call       | no call                                                   |
    | text that cannot become a name and a `(`       | no call, if the model chose the bracket itself            |

A bracket that is not a call stays in the text if the model chose it itself and it names no tool; otherwise it is taken
back. All is found in the text, because tokenizers merge `) ->` in many ways.
"""

import re
from collections.abc import Iterable
from typing import Any

from toolformer_core.errors import CallSyntaxError
from toolformer_core.lm.tokens import encode_following, tokenize
from toolformer_core.syntax import ARROW, CLOSE, find_close, parse
from toolformer_core.tools.responses import response_line

_MARK = re.compile(rf"(?P<call>\)\s*(?:{ARROW}|→))|(?P<arrow>{ARROW}|→)|[()\[\]]")
_WORD = re.compile(r"\s*([^\W\d]\w*)")
_BEGINS = re.compile(r"\s*(?:[^\W\d]\w*\s*(?:\(.*)?)?", re.DOTALL)


def arrow_end(body: str) -> int | None:
    """Return the end of the arrow that makes a call of the text after " ["; None if there is none yet."""
    brackets, parentheses = 1, 0  # open ones; negative if more are closed than were opened
    for mark in _MARK.finditer(body):
        if mark["call"] or (mark["arrow"] and parentheses <= 0):
            return mark.end()
        match mark.group():
            case "(":
                parentheses += 1
            case ")":
                parentheses -= 1
            case "[":
                brackets += 1
            case "]":
                brackets -= 1
        if brackets == 0:
            return None
    return None


def may_be_call(body: str, names: Iterable[str]) -> bool:
    """Return whether the text so far can become a call: `Name(...`, or the start of a tool's name."""
    return _BEGINS.fullmatch(body) is not None or may_name_a_tool(body, names)


def may_name_a_tool(body: str, names: Iterable[str]) -> bool:
    """Return whether the text starts with a tool's name, or is the start of one."""
    written = body.lstrip()
    return any(written.startswith(name) or name.startswith(written) for name in names)


def is_closed(body: str) -> bool:
    """Return whether a `]` closes the " [" in front of `body`."""
    return find_close(body) is not None


def begins_with_a_tool(body: str, names: Iterable[str]) -> bool:
    """Return whether the first word is a tool's name, whatever follows it."""
    word = _WORD.match(body)
    return word is not None and word.group(1) in names


def names_a_tool(body: str, names: Iterable[str]) -> bool:
    """Return whether the text starts like a call of one of the tools: its name and an opening parenthesis."""
    try:
        call, _ = parse(body.partition("(")[0] + "()")
    except CallSyntaxError:
        return False
    return "(" in body and call.tool in names


def response_tokens(tokenizer: Any, before: str, response: str, limit: int) -> tuple[list[int], str]:
    """Return the tokens of the response and the closing `]` as they follow the arrow, and their text.

    Args:
        before: text that is tokenised together with the response (the end of the arrow, or "").
        response: one line, escaped; "" if the tool failed.
        limit: the maximum of tokens; a longer response is cut at a word, if necessary to nothing.
    """
    while True:
        text = f"{before} {response}{CLOSE}"
        ids = encode_following(tokenizer, text)
        if len(ids) <= limit or not response:
            return ids, f" {response}{CLOSE}"
        (tokens,) = tokenize(tokenizer, [text], follow=True)
        fits = int(tokens.cuts[max(0, limit - 1)]) - len(before) - 1  # the last token is for the bracket
        response = response_line(response, min(fits, len(response) - 1)) if fits > 0 else ""
