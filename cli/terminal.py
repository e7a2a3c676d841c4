"""Output of the commands: text without control characters, JSON for machines, and one line for each failure."""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flows.stopping import STOPPED, exit_now, handle_stop
from tasks.settings import own_server_home, public_model

__all__ = [
    "exit_on_signal",
    "hide_logged_failures",
    "leave",
    "print_json",
    "say",
    "visible",
    "without_credentials",
]

_SERVED = re.compile(r"(?P<option>--[\w-]+=)?(?P<model>vllm\+https?://.*)", re.DOTALL)

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


def hide_logged_failures() -> None:
    """Hide Prefect's log of failed runs, with its tracebacks, from the terminal: `main` prints one line instead.

    If the run has its own server, the failure is not sent to that server's log either, as the server ends with the run.
    """
    runs = ("prefect.flow_runs", "prefect.task_runs")
    handlers = list(logging.getLogger().handlers)
    if own_server_home() is not None:
        handlers += [handler for name in runs for handler in logging.getLogger(name).handlers]
    for handler in handlers:
        handler.addFilter(lambda record: record.levelno < logging.ERROR or not record.name.startswith(runs))


@contextmanager
def exit_on_signal(display: Any) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the process at once, which is safe because commits are complete or absent."""

    def stop(number: int, frame: object) -> None:
        exit_now(128 + number, STOPPED, display.close)

    with handle_stop(stop):
        yield


def leave(code: int) -> None:
    """End the process after its exit functions, without finalising the interpreter.

    With torch and duckdb in one process, finalising prints pages of wrong "leaked instance" messages.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)
