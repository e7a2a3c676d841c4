"""Output of the commands: text without control characters, JSON for machines, and one line for each failure."""

import atexit
import json
import logging
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import asdict, is_dataclass
from typing import Any, NoReturn, TextIO

from flows.runtime.stopping import exit_now, handle_stop, how_stopped
from tasks.environment import own_server_home
from tasks.settings import public_model, public_qa_reader

_READER = "--qa-reader"
_SERVER_MODEL = re.compile(r"(?P<option>--[\w-]+=)?(?P<model>(?:vllm|remote)\+https?://.*)", re.DOTALL)

# Control characters but line feed and tab (ESC steers a terminal), marks that reorder text, lone surrogates.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return a text that cannot steer the terminal: ESC becomes ␛, other invisible characters escapes such as \x9b.

    Line feeds and tabs stay. Use it for texts of a corpus, a tool or a model, and for messages that quote them.
    """
    return _INVISIBLE.sub(_make_visible, text)


def _make_visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0x7F:  # the block of pictures begins with that of NUL
        return "␡" if code == 0x7F else chr(0x2400 + code)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def say(*texts: object, end: str = "\n", error: bool = False) -> None:
    """Print texts as `visible` shows them, on standard output or standard error."""
    print(visible(" ".join(map(str, texts))), end=end, file=sys.stderr if error else sys.stdout, flush=True)


_STDOUT, _STDERR = 1, 2
_kept_stdout: TextIO | None = None  # for JSON alone


@contextmanager
def only_json() -> Iterator[None]:
    """Keep standard output for `print_json`; all else, also of started processes, goes to standard error."""
    global _kept_stdout
    _kept_stdout = sys.stdout
    with ExitStack() as undo:
        if (stdout := sys.__stdout__) is not None and stdout is sys.stdout:  # nothing stands in its place, as in tests
            stdout.flush()
            kept = os.dup(_STDOUT)
            os.dup2(_STDERR, _STDOUT)
            _kept_stdout = undo.enter_context(open(kept, "w", encoding=stdout.encoding, errors=stdout.errors))
            undo.callback(os.dup2, kept, _STDOUT)
        undo.enter_context(redirect_stdout(sys.stderr))
        try:
            yield
        finally:
            _kept_stdout = None


def as_plain(value: Any) -> Any:
    """Return what JSON can hold: dictionaries for records, None in place of each nan and infinity."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value, or records, as JSON, on one line without `indent`; what `visible` would replace is escaped."""
    document = json.dumps(as_plain(value), ensure_ascii=False, indent=indent, default=str)
    escaped = _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", document)
    print(escaped, file=_kept_stdout or sys.stdout, flush=True)


def without_credentials(arguments: Sequence[str]) -> list[str]:
    """Move the credentials of model servers from a command's arguments into the environment; return the arguments.

    Prints a warning for each variable that was set. A ModelError: a server's URL cannot be read.
    """
    public_arguments, variables = [], set()
    for option, argument in zip(["", *arguments], arguments, strict=False):
        match = _SERVER_MODEL.fullmatch(argument)
        if match is not None:
            name, variable = public_model(match["model"])
            argument = f"{match['option'] or ''}{name}"
            variables.add(variable)
        elif option == _READER or argument.startswith(f"{_READER}="):
            given, equals, value = argument.partition("=") if option != _READER else ("", "", argument)
            name, variable = public_qa_reader(value)
            argument = f"{given}{equals}{name}"
            variables.add(variable)
        public_arguments.append(argument)
    for variable in sorted(variables - {""}):
        advice = f"put a model's credentials into the environment instead, in {variable}, from where it takes them now"
        print(f"warning: a command line is seen by others and kept by the shell: {advice}", file=sys.stderr)
    return public_arguments


def keep_run_logs_off_the_terminal() -> None:
    """Hide Prefect's log of runs from the terminal, below its level and of failures: `main` prints one line instead.

    A server that the environment names gets all from INFO on; one of this process, which ends with the run, no failure.
    """
    run_loggers = ("prefect.flow_runs", "prefect.task_runs")
    handlers, level = list(logging.getLogger().handlers), logging.getLogger("prefect").getEffectiveLevel()
    for name in run_loggers:
        if own_server_home() is not None:
            handlers += logging.getLogger(name).handlers
        else:
            logging.getLogger(name).setLevel(min(level, logging.INFO))
    for handler in handlers:
        handler.addFilter(lambda one: level <= one.levelno < logging.ERROR or not one.name.startswith(run_loggers))


@contextmanager
def exit_on_signal(display: Any) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the process at once, which is safe because commits are complete or absent."""

    def stop(number: int, frame: object) -> None:
        exit_now(*how_stopped(number), display.close)

    with handle_stop(stop):
        yield


def leave(code: int) -> NoReturn:
    """End the process with an exit code: its exit functions run, but the interpreter is not finalised.

    In finalising, DuckDB 2.0.0 beside torch 2.13.0 prints pages of wrong "leaked instance" messages, and Python waits
    for threads in which a user's tool may hang. No public function runs the exit functions alone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)
