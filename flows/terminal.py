"""What the commands share: text that cannot steer a terminal, JSON for machines, options checked by a form, one word
where Prefect would say pages.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from flows.stopping import STOPPED, handling_stop, leave_at_once
from tasks.settings import own_server_home, public_model
from toolformer_core.errors import UsageError

__all__ = [
    "leave",
    "parse_tau_f",
    "print_json",
    "say",
    "stopping_at_once",
    "tell_failures_once",
    "validated",
    "visible",
    "without_credentials",
]

_SERVED = re.compile(r"(?P<option>--[\w-]+=)?(?P<model>vllm\+https?://.*)", re.DOTALL)

Form = TypeVar("Form", bound=BaseModel)


# Control characters but line feed and tab (ESC steers a terminal), marks that reorder text, lone surrogates.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DELETE, _DELETE_PICTURE, _PICTURES = 0x7F, "␡", 0x2400


def visible(text: str) -> str:
    r"""Return a text as it may be printed: ESC becomes ␛, another control code its picture, all else \x9b or \u202e.

    Line feeds and tabs stay. Texts of a corpus, a tool or a model, and messages that quote them, are printed so.
    """
    return _UNSEEN.sub(_picture, text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < ord(" "):
        return chr(_PICTURES + code)
    if code == _DELETE:
        return _DELETE_PICTURE
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def say(*texts: object, end: str = "\n", error: bool = False) -> None:
    """Print texts as `visible` shows them, on standard output or standard error."""
    print(visible(" ".join(map(str, texts))), end=end, file=sys.stderr if error else sys.stdout, flush=True)


def print_json(value: Any) -> None:
    r"""Print a value as JSON; what `visible` would show stands as \u001b, which reads back as it was."""
    written = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    print(_UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", written))


def without_credentials(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments without the credentials of model servers, which go into the environment.

    Nothing behind this sees them: no parameter, run record, message or log. Says so on standard error, once a variable.

    Raises:
        ModelError: a server's URL cannot be read.
    """
    out, variables = [], set()
    for argument in arguments:
        found = _SERVED.fullmatch(argument)
        if found is not None:
            name, variable = public_model(found["model"])
            argument = f"{found['option'] or ''}{name}"
            variables.add(variable)
        out.append(argument)
    for variable in sorted(variables - {""}):
        print(
            f"warning: a command line is seen by others and kept by the shell: put the credentials of a model's URL "
            f"into the environment instead, in {variable} (this command has them from there now, and stores none)",
            file=sys.stderr,
        )
    return out


def validated(kind: type[Form], **values: Any) -> Form:
    """Return a flow's form filled with options.

    Raises:
        UsageError: a value is wrong; the message names the option.
    """
    try:
        return kind(**values)
    except ValidationError as exc:
        first = exc.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        if first["type"] == "value_error":  # of our own: it says what is wrong, and shows what may be shown
            raise UsageError(f"{option}: {first['ctx']['error']}") from None
        raise UsageError(f"{option}: {first['msg']} (got {first['input']!r})") from exc


def parse_tau_f(text: str, option: str = "--tau-f") -> dict[str, float]:
    """Parse `calculator=0.5,qa=1.2`; `option` is what a message calls it.

    Raises:
        UsageError: it is not written so.
    """
    out = {}
    for part in (p.strip() for p in text.split(",") if p.strip()):
        tool, equals, value = part.partition("=")
        try:
            number = float(value) if equals else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{option}: {part!r} is not tool=number; write e.g. calculator=0.5,qa=1.2")
        out[tool.strip().lower()] = number
    return out


def tell_failures_once() -> None:
    """Keep from the terminal what Prefect says of a failed run, with its traceback: `main` says it in one line.

    A server of the run's own ends with the run, so its log, which nobody could read, is not written either.
    """
    runs = ("prefect.flow_runs", "prefect.task_runs")
    handlers = list(logging.getLogger().handlers)
    if own_server_home() is not None:
        handlers += [handler for name in runs for handler in logging.getLogger(name).handlers]
    for handler in handlers:
        handler.addFilter(lambda record: record.levelno < logging.ERROR or not record.name.startswith(runs))


@contextmanager
def stopping_at_once(display: Any) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the process where it stands: commits are whole or absent, so nothing is waited for."""

    def stop(number: int, frame: object) -> None:
        leave_at_once(128 + number, STOPPED, display.close)

    with handling_stop(stop):
        yield


def leave(code: int) -> None:
    """End the process after its exit functions, without taking the interpreter apart.

    With torch and duckdb in one process the latter step prints pages of "leaked instance" notes, which are not ours
    and not true.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)
