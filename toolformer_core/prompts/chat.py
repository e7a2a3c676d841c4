"""Annotation prompts as turns of a chat, for models that were trained to answer in turns.

    | turn      | content                                                                                            |
    |-----------|----------------------------------------------------------------------------------------------------|
    | system    | the prompt in front of its last blank line: instruction, call syntax, demonstrations               |
    | user      | the rest of it with the document, as in a plain prompt: "Input: x" and "Output:"                   |
    | assistant | begins with the document x, in which calls are drawn                                               |

So no word of the prompt is lost, any prompt file will do, and the document has the labels of the demonstrations. These
are not made turns of their own: templates rewrite earlier answers (they strip them, drop thoughts or add them), and a
user's prompt need not have this shape.

A template is judged by what it writes, never by its name. It is rendered with sample texts in place of the document;
what stands in front of the sample is the head of the prompt, what follows it the tail.

- It refuses a system turn or leaves it out: the system's text is put in front of the user's. That is the plain prompt.
- It strips its contents: the document stands within the user's turn, away from its ends. The assistant's turn is
  rendered up to its beginning only and the document is put after it, exactly as it is.
- It writes something between the beginning of the assistant's turn and an answer (a space, the name of a channel): so
  does the prompt. What it writes after an answer (the end of the turn, or the next one), if that is a token of its
  own, ends a draw.
- It lets the model think first: it is set not to (`enable_thinking=False`), and where the turn begins with an open
  thought all the same, an empty one is closed. A thought whose end is not known is refused.
- It changes the text of a turn, or writes another frame for another text: it is refused.
- It writes the date: it gets the same date every day, so that tomorrow's prompt is the same.

This module knows no weights. Scores are computed of plain texts, without any prompt, and so without a template.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolformer_core.errors import PromptError
from toolformer_core.records import AssistantTurn, Prompt

NONE, AUTO = "none", "auto"
_BLANK_LINE = "\n\n"
_DAY = dt.date(2024, 1, 1)
_DAY_FORMS = re.compile(r"strftime_now\(\s*['\"]([^'\"\\]*)['\"]\s*\)")
# Two texts in place of the document: with letters, blanks and marks that a template might escape, strip or split at.
_SAMPLES = ('It\'s 3 < 4 & "Ünï" {{ x }}.\n\n  Was that [all]? Yes', "Quite another text of seven words")
_ANSWER = "An answer"
_OPEN_TAG = re.compile(r"(<[^<>/|][^<>|]*>|\[[^\[\]/][^\[\]]*\])\s*\Z")
_THOUGHT = re.compile("think|thought|reason", re.IGNORECASE)
_CLOSES = re.compile("/|end|clos", re.IGNORECASE)


class _Frame(NamedTuple):
    """What a template writes around the document, and after an answer."""

    head: str  # in front of the document
    tail: str  # between the document and what the assistant says
    after: str  # after an answer, be it the next turn; "" if there was none


def prompt_in_chat(prompt: Prompt, tokenizer: Any, template: str = AUTO) -> Prompt:
    """Return a prompt as turns of a chat.

    Args:
        tokenizer: the model's tokenizer, with its special tokens.
        template: `auto`: the tokenizer's own; `none`: the prompt stays as it is; else the path of a Jinja file.

    Raises:
        PromptError: there is no such template, or it cannot be used; the message says why.
    """
    if template == NONE:
        return prompt
    chat = _Chat(tokenizer, *_read(template, tokenizer))
    frame = chat.frame(prompt)
    own = prompt.tail.rstrip()
    tail = own + chat.without_thought(frame.tail.removeprefix(own))
    turn = AssistantTurn(tail.endswith(" "), chat.end_of_turn(frame.after))
    return replace(prompt, head=frame.head, tail=tail.removesuffix(" "), turn=turn)


def _read(template: str, tokenizer: Any) -> tuple[str, str]:
    """Return a template's text, and what messages call it."""
    if template == AUTO:
        if not getattr(tokenizer, "chat_template", None):
            raise PromptError(
                "the model's tokenizer has no chat template: leave --chat-template out (base models have none), or "
                "name a Jinja file"
            )
        try:
            return str(tokenizer.get_chat_template()), "the model's chat template"
        except ValueError as exc:
            raise PromptError("the model has several chat templates and no default one: name a Jinja file") from exc
    try:
        return Path(template).expanduser().read_text(encoding="utf-8-sig"), f"the chat template {template}"
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise PromptError(
            f"cannot read the chat template {template} ({reason}); give none, auto or the path of a Jinja file"
        ) from exc


def _with_fixed_day(template: str) -> str:
    """Return a template for which it is always the same day; transformers lets templates ask for the present one."""
    if "strftime_now" not in template:
        return template
    days = {form: _DAY.strftime(form) for form in _DAY_FORMS.findall(template)}
    default = _DAY.strftime("%d %B %Y")
    days_by_form = json.dumps(days, ensure_ascii=False)
    # "+" keeps a line end that the template begins with
    return f"{{% macro strftime_now(f) %}}{{{{ {days_by_form}.get(f, '{default}') }}}}{{% endmacro +%}}{template}"


class _Chat:
    """A template, and the tokenizer whose special tokens it writes."""

    def __init__(self, tokenizer: Any, template: str, name: str) -> None:
        self.tokenizer = tokenizer
        self.template = _with_fixed_day(template)
        self.name = name

    def frame(self, prompt: Prompt) -> _Frame:
        """Return what the template writes around a document."""
        system, _, before = prompt.head.rpartition(_BLANK_LINE)
        if system.strip():
            try:
                return self._frame(system, before, prompt.tail)
            except PromptError:  # the template refuses a system turn, or leaves it out
                return self._frame("", prompt.head, prompt.tail)
        return self._frame("", prompt.head, prompt.tail)

    def _frame(self, system: str, before: str, after: str) -> _Frame:
        first, second = (self._frame_of(system, before, sample, after) for sample in _SAMPLES)
        if first != second:
            raise PromptError(f"{self.name} cannot be used: what it writes around a text depends on that text")
        return first

    def _frame_of(self, system: str, before: str, sample: str, after: str) -> _Frame:
        """Return what stands around a sample; what is written in front of an answer belongs to the tail."""
        user = before + sample + after
        turns = [{"role": "system", "content": system}] if system else []
        turns.append({"role": "user", "content": user})
        head, tail = self._around(self._render(turns, beginning=True), system, user, sample, before)
        turns.append({"role": "assistant", "content": _ANSWER})
        try:
            answered_head, rest = self._around(self._render(turns, beginning=False), system, user, sample, before)
        except PromptError:  # some templates take questions only
            return _Frame(head, tail, "")
        answered_tail, found, after = rest.partition(_ANSWER)
        if not found or answered_head != head:
            return _Frame(head, tail, "")
        return _Frame(head, answered_tail if answered_tail.startswith(tail) else tail, after or self._next_turn(turns))

    def _next_turn(self, turns: list[dict[str, str]]) -> str:
        """Return what follows an answer if the user goes on; some templates end a turn by beginning the next one."""
        try:
            text = self._render([*turns, {"role": "user", "content": _SAMPLES[-1]}], beginning=False)
        except PromptError:
            return ""
        return text.rpartition(_ANSWER)[2]

    def _render(self, turns: list[dict[str, str]], *, beginning: bool) -> str:
        from jinja2 import TemplateError

        try:
            return str(
                self.tokenizer.apply_chat_template(
                    turns,
                    chat_template=self.template,
                    tokenize=False,
                    add_generation_prompt=beginning,
                    enable_thinking=False,
                    thinking=False,  # what other templates call it
                )
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ImportError) as exc:
            reason = str(exc).strip().splitlines()
            raise PromptError(f"{self.name} refuses the turns ({reason[0] if reason else type(exc).__name__})") from exc

    def _around(self, text: str, system: str, user: str, sample: str, before: str) -> tuple[str, str]:
        """Return what a rendered text holds in front of the sample and after it; contents may be stripped."""
        kept = user.strip()
        if text.count(kept) != 1 or system.strip() not in text[: (start := text.index(kept))]:
            raise PromptError(
                f"{self.name} cannot be used: it changes the text of a turn, leaves it out or repeats it; name a Jinja "
                "file that writes contents as they are"
            )
        start += len(before) - (len(user) - len(user.lstrip()))
        return text[:start], text[start + len(sample) :]

    def without_thought(self, beginning: str) -> str:
        """Return the beginning of the assistant's turn; a thought that is open there is closed, empty."""
        opened = _OPEN_TAG.search(beginning)
        if opened is not None and _THOUGHT.search(tag := opened[1]):
            return f"{beginning[: opened.end(1)]}{_BLANK_LINE}{tag[0]}/{tag[1:]}{_BLANK_LINE}"
        last = ["", *beginning.split()][-1]
        if _THOUGHT.search(last) and not _CLOSES.search(last):
            raise PromptError(
                f"{self.name} cannot be used: the assistant's turn begins with an open thought, {last!r}, and how it "
                "ends is not known; name a Jinja file that ends it"
            )
        return beginning

    def end_of_turn(self, after: str) -> str:
        """Return the token that ends the assistant's turn, if what follows an answer begins with a special token."""
        ids = self.tokenizer(after.lstrip(), add_special_tokens=False)["input_ids"][:1]
        added = self.tokenizer.added_tokens_decoder
        return str(added[ids[0]].content) if ids and ids[0] in added and added[ids[0]].special else ""
