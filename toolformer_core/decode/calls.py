"""Reading a call while it is being written: has it come to its arrow, or will it never?

    | what is written behind " ["                    | it is                                                     |
    |------------------------------------------------|-----------------------------------------------------------|
    | an arrow behind a `)`, or outside parentheses, | a call: the tool's turn, even if it does not parse        |
    | ... and a tool's name in front                 |                                                           |
    | ... and another word in front, or none         | no call                                                   |
    | an arrow inside parentheses                    | part of the input                                         |
    | the `]` that closes it, and no arrow before    | no call                                                   |
    | neither, after all the tokens a call may take  | no call                                                   |
    | no name and `(`, nor what may become one       | no call, if the model chose the bracket by itself         |

A bracket that is no call stays in the text if the model chose it by itself and it names no tool; else it is taken back.
Everything is found in the text, never at a token, as tokenizers merge `) ->` in many ways. The response is put in as
text that follows the arrow. Nothing here knows models or tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from toolformer_core.annotate.execute import one_line
from toolformer_core.errors import CallSyntaxError
from toolformer_core.lm.tokens import encode_following, tokenize
from toolformer_core.syntax import ARROW, CLOSE, find_close, parse

__all__ = [
    "arrow_end",
    "begins_with_a_tool",
    "is_closed",
    "may_be_call",
    "may_name_a_tool",
    "names_a_tool",
    "response_tokens",
]

_MARK = re.compile(rf"(?P<call>\)\s*(?:{ARROW}|→))|(?P<arrow>{ARROW}|→)|[()\[\]]")
_WORD = re.compile(r"\s*([^\W\d]\w*)")
_BEGINS = re.compile(r"\s*(?:[^\W\d]\w*\s*(?:\(.*)?)?", re.DOTALL)


def arrow_end(body: str) -> int | None:
    """Return where the arrow ends that makes a call of what stands behind " [", or None if there is none (yet)."""
    brackets, parentheses = 1, 0  # opened and not closed; more may be closed than were opened
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
    """Say whether what has been written so far may become a call: `Name(...`, or the beginning of a tool's name."""
    return _BEGINS.fullmatch(body) is not None or may_name_a_tool(body, names)


def may_name_a_tool(body: str, names: Iterable[str]) -> bool:
    """Say whether the text begins with a tool's name, or with the beginning of one."""
    written = body.lstrip()
    return any(written.startswith(name) or name.startswith(written) for name in names)


def is_closed(body: str) -> bool:
    """Say whether a `]` closes what was opened by " [" before `body`."""
    return find_close(body) is not None


def begins_with_a_tool(body: str, names: Iterable[str]) -> bool:
    """Say whether the first word is a tool's name, whatever follows it."""
    word = _WORD.match(body)
    return word is not None and word.group(1) in names


def names_a_tool(body: str, names: Iterable[str]) -> bool:
    """Say whether the text begins like a call of one of the tools: its name and an open parenthesis."""
    try:
        call, _ = parse(body.partition("(")[0] + "()")
    except CallSyntaxError:
        return False
    return "(" in body and call.tool in names


def response_tokens(tokenizer: Any, before: str, response: str, limit: int) -> tuple[list[int], str]:
    """Return the tokens of the response and the `]` as they follow the arrow, and the text they stand for.

    Args:
        tokenizer: a fast one.
        before: text that is to be tokenised together with them (the end of the arrow, or nothing).
        response: one line, escaped; "" if the tool failed.
        limit: the most tokens; a longer response is cut at a word, to nothing if need be.
    """
    while True:
        text = f"{before} {response}{CLOSE}"
        ids = encode_following(tokenizer, text)
        if len(ids) <= limit or not response:
            return ids, f" {response}{CLOSE}"
        (tokens,) = tokenize(tokenizer, [text], follow=True)
        fits = int(tokens.cuts[max(0, limit - 1)]) - len(before) - 1  # its last token is the bracket's
        response = one_line(response, min(fits, len(response) - 1)) if fits > 0 else ""
