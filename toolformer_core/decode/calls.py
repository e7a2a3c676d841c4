"""Reads a call while it is being written: has it reached its arrow, or can it no longer do so?

An arrow after a `)`, or outside parentheses, calls the tool that the first word names, even if the call does not parse;
an arrow inside parentheses is part of the input. It is no call if a `]` closes it before an arrow, at a call's token
limit, and, if the model chose the bracket itself, as soon as the text cannot become a name and a `(`. A bracket that is
no call stays in the text if the model chose it itself and it names no tool; otherwise it is taken back. All is found in
the text, because tokenizers merge `) ->` in many ways.
"""

import re
from collections.abc import Iterable
from typing import Any

from toolformer_core.lm.tokens import encode_following, tokenize
from toolformer_core.syntax import ARROW, CLOSE, name_begun
from toolformer_core.tools.responses import response_line

_MARK = re.compile(rf"(?P<call>\)\s*(?:{ARROW}|→))|(?P<arrow>{ARROW}|→)|[()\[\]]")
_WORD = re.compile(r"\s*([^\W\d]\w*)")


def arrow_end(body: str) -> int | None:
    """Return the end of the arrow that makes a call of the text after " ["; None if there is none yet."""
    brackets, parentheses = 1, 0  # open ones; negative if more are closed than were opened
    for mark in _MARK.finditer(body):
        if mark["call"] or (mark["arrow"] and parentheses <= 0):
            return mark.end()
        sign = mark.group()
        parentheses += (sign == "(") - (sign == ")")
        brackets += (sign == "[") - (sign == "]")
        if brackets == 0:
            return None
    return None


def may_be_call(body: str, names: Iterable[str]) -> bool:
    """Return whether the text so far can become a call: `Name(...`, or the start of a tool's name."""
    return name_begun(body) is not None or may_name_a_tool(body, names)


def may_name_a_tool(body: str, names: Iterable[str]) -> bool:
    """Return whether the text starts with a tool's name, or is the start of one."""
    written = body.lstrip()
    return any(written.startswith(name) or name.startswith(written) for name in names)


def first_word(body: str) -> str:
    """Return the word with which the text starts, whatever follows it; "" if it starts with something else."""
    word = _WORD.match(body)
    return word.group(1) if word else ""


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
