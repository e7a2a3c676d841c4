"""The command line `toolformer`: registers the commands of the other modules of `cli`, and ends the process.

Commands import what they need when they run, so that `--help` answers at once. A mistake by the user ends with exit 2,
any other failure with exit 1, what was stopped and goes on with the same command with 75, or 128 and a signal's number.
"""

import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer
from typer.exceptions import TyperException

from cli.commands.ask import datasets, explain, plan, stats, what_if
from cli.commands.build import build
from cli.commands.diagnose import diagnose
from cli.commands.evaluate import evaluate, tables
from cli.commands.export import export, push
from cli.commands.finetune import finetune, fit_trigger
from cli.commands.ground import ground_app
from cli.commands.lineage import lineage
from cli.commands.operate import doctor, up
from cli.commands.recipe import demo, run
from cli.commands.tools import index_app, tools_app
from cli.commands.view import ratings, report, view
from cli.commands.warehouse import gc, pack, reconcile, sql
from cli.terminal import leave, say, without_credentials
from cli.use.serve import serve
from cli.use.text import chat, generate
from flows.runtime.stopping import STOPPED, TERMINATED, UNFINISHED, Stopped, Terminated, raise_on_sigterm
from toolformer_core.errors import ToolformerError, UsageError
from toolformer_core.streams import open_closed_streams

app = typer.Typer(
    name="toolformer",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    add_completion=False,
)
app.add_typer(tools_app, name="tools", rich_help_panel="use")
app.add_typer(index_app, name="index", rich_help_panel="build")
app.add_typer(ground_app, name="ground", rich_help_panel="teach")

# The commands as --help shows them, under their headings.
_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "build": (demo, run, build, datasets, export, pack),
    "ask": (plan, stats, explain, what_if, ratings, report, sql, lineage, view),
    "teach": (diagnose, finetune, fit_trigger, evaluate, tables, push),
    "operate": (up, doctor, reconcile, gc),
    "use": (generate, chat, serve),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"toolformer {version('toolformer-platform')}")
        raise typer.Exit


@app.callback()
def _own_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop")
    ] = False,
) -> None:
    """A language model teaches itself to use tools: from your corpus to C*, and what comes of it."""


# The reader has closed the pipe. The shell's code for that; no command gives this exit code as an answer.
_PIPE_CLOSED = 128 + signal.SIGPIPE


def main() -> None:
    """Run the command line; no traceback reaches a user for a mistake of theirs."""
    from warehouse.errors import WarehouseError
    from warehouse.files.paths import text_problem

    open_closed_streams()
    try:
        if problem := next(filter(None, map(text_problem, sys.argv)), ""):
            raise UsageError(problem)
        sys.argv[1:] = without_credentials(sys.argv[1:])  # what a lock or a log says of this command has none either
        with raise_on_sigterm():
            code = app(prog_name="toolformer", standalone_mode=False)
    except TyperException as exc:
        _print_wrong_use(exc)
        code = exc.exit_code
    except (typer.Abort, KeyboardInterrupt, Terminated) as exc:
        print(STOPPED, file=sys.stderr)
        code = TERMINATED if isinstance(exc, Terminated) else 130
    except Stopped as exc:
        say(exc, error=True)
        code = UNFINISHED
    except (ToolformerError, WarehouseError) as exc:
        say(f"error: {exc}", error=True)
        code = 2 if isinstance(exc, UsageError) else 1
    except BrokenPipeError:
        code = _PIPE_CLOSED
    except SystemExit as exc:  # rich's way of ending at a closed pipe
        code = _PIPE_CLOSED if isinstance(exc.__context__, BrokenPipeError) else exc.code
    except OSError as exc:  # the machine's: a full disk, a folder that may not be written
        say(f"error: {exc.filename or ''}: {exc.strerror or exc}".replace(": : ", ": "), error=True)
        code = 1
    except Exception:  # noqa: BLE001 - a mistake of ours; taking the interpreter apart would print pages behind it
        traceback.print_exc()
        code = 1
    leave(int(code or 0))


def _print_wrong_use(exc: TyperException) -> None:
    """Print what is wrong with the command line and where its help is; nothing if its help was just printed."""
    if message := " ".join(exc.format_message().split()):
        message += "" if message.endswith((".", "?", "!")) else "."
        context = getattr(exc, "ctx", None)
        hint = f" Try '{context.command_path} --help'." if context is not None else ""
        say(f"error: {message}{hint}", error=True)


if __name__ == "__main__":
    main()
