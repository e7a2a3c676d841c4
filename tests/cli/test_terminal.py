"""What reaches the terminal: nothing that steers it, nothing into closed pipes, and of a run's log warnings alone."""

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from logging.handlers import BufferingHandler
from pathlib import Path

import pytest
import rich.progress
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from cli.render.console import Console
from cli.terminal import keep_run_logs_off_the_terminal, print_json, say, visible
from tests.support.commands import Run

# clears the screen, rings, sets the title by C1 codes, writes from right to left, goes back to the line's start
HOSTILE = "a\x1b[2J\x07\x9d0;x\x9c\u202eb\u202c\rc\x7f"
SHOWN = "a␛[2J␇\\x9d0;x\\x9c\\u202eb\\u202c␍c␡"


def test_by_hand() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("one\n\ttwo é 漢 \u200f\ud800") == "one\n\ttwo é 漢 \u200f\\ud800"


@given(st.text(st.characters(exclude_categories=()) | st.sampled_from("\x1b\x9b\u202e\n\t\ud800")))
def test_nothing_is_left_that_steers_a_terminal_and_the_same_twice(text: str) -> None:
    shown = visible(text)
    assert not any(c < " " or "\x7f" <= c <= "\x9f" or "\u202a" <= c <= "\u202e" for c in shown if c not in "\n\t")
    assert visible(shown) == shown
    shown.encode("utf-8")
    assert shown == text or any(not c.isprintable() for c in text)


def test_say_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    say("found", HOSTILE, error=True)
    print_json({"text": HOSTILE + "é"})
    out, err = capsys.readouterr()
    assert err == f"found {SHOWN}\n"
    assert not set("\x1b\x07\x9d\x9c\u202e\u202c\r\x7f") & set(out)
    assert json.loads(out) == {"text": HOSTILE + "é"}


NUMBERS = st.lists(st.floats() | st.integers(), max_size=3)


@given(st.dictionaries(st.sampled_from("ab"), NUMBERS | st.tuples(NUMBERS)))
def test_what_is_printed_as_json_is_json(value: object) -> None:
    def no_number(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_json(value, indent=None)
    json.loads(out.getvalue(), parse_constant=no_number)


def test_a_console_shows_texts_and_keeps_its_own_colours() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=80)
    console.print(f"[red]{escape(HOSTILE)}[/red]", highlight=False)
    assert out.getvalue() == f"\x1b[31m{SHOWN}\x1b[0m\n".replace("␍", "").replace("␇", "")  # these Rich drops by itself
    table = Table()
    table.add_column("text")
    table.add_row(HOSTILE)
    with rich.progress.Progress(console=console) as bars:  # moves the cursor by Rich's own codes
        bars.add_task(HOSTILE, total=1)
        console.print(table)
    written = out.getvalue()
    assert "\x1b[2K" in written
    assert not set("\x07\x9d\x9c\u202e\u202c\x7f") & set(written)
    assert "\x1b[2J" not in written


def test_a_tools_answer_and_an_error_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_text(json.dumps({"title": "Velden", "text": f"A town {HOSTILE}."}), encoding="utf-8")
    said = run("tools", "test", "wikisearch", "Velden", "--passages", str(path))
    assert (said.code, "a␛[2J␇\\x9d0;x\\x9c\\u202eb\\u202c" in said.out) == (0, True)
    for arguments in (["calculator", HOSTILE], [HOSTILE, "1 + 1"]):
        said = run("tools", "test", *arguments)
        assert said.code in (1, 2)
        assert said.err.count("\n") == 1
        assert not set("\x1b\x07\x9d\x9c\u202e\u202c\r\x7f") & set(said.err + said.out)


# Pipes that nobody reads (`toolformer ... | head -1`), and streams that the caller has closed (`>&-`).


@pytest.mark.parametrize(
    "words", [["tools", "test", "calculator", "1 + 1"], ["tools", "--help"]], ids=["print", "rich"]
)
def test_a_pipe_that_nobody_reads_is_no_answer_of_the_command(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cli.main", *words]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")  # 128 + SIGPIPE; 1 would be `diagnose` saying no


def test_what_processes_print_that_a_tool_starts_does_not_stand_in_the_json(tmp_path: Path) -> None:
    loud = "import subprocess\nprint('imported', flush=True)\nsubprocess.run(['echo', 'child'])\ndef loud(text): ..."
    (tmp_path / "loud.py").write_text(loud)
    command = [sys.executable, "-m", "cli.main", "tools", "list", "--tool", f"{tmp_path}/loud.py:loud", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "imported\nchild\n")
    assert json.loads(ended.stdout)[-1]["key"] == "loud"


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_a_closed_stream_changes_no_result(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """Without standard output (`>&-`), the next file that is opened would have its number, and take what is printed."""
    (tmp_path / "opens.py").write_text(
        "kept = open('kept', 'w')\ndef answer(text):\n    print('noise', flush=True)\n    return text\n"
    )
    words = ["tools", "list", "--json", "--tool", "opens.py:answer"]
    closing = " ".join(f"{number}>&-" for number in closed)
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "cli.main", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bool(ended.stdout) == (1 not in closed)
    assert (tmp_path / "kept").read_text() == ""


# What of a run's log the terminal shows, and what the server that the environment names gets.


def test_a_named_server_gets_a_runs_log_and_the_terminal_its_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.terminal.own_server_home", lambda: None)  # the environment names a server
    terminal, server = BufferingHandler(9), BufferingHandler(9)
    runs, prefect = logging.getLogger("prefect.flow_runs"), logging.getLogger("prefect")
    before = runs.level, prefect.level, logging.getLogger("prefect.task_runs").level
    prefect.setLevel(logging.WARNING)
    monkeypatch.setattr(logging.getLogger(), "handlers", [terminal])
    monkeypatch.setattr(runs, "handlers", [server])
    monkeypatch.setattr(prefect, "propagate", True)
    try:
        keep_run_logs_off_the_terminal()
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            runs.log(level, logging.getLevelName(level))
        logging.getLogger("elsewhere").error("ours")
    finally:
        for name, level in zip(("flow_runs", "", "task_runs"), before, strict=True):
            logging.getLogger(f"prefect.{name}".rstrip(".")).setLevel(level)
    assert [one.getMessage() for one in server.buffer] == ["INFO", "WARNING", "ERROR"]
    assert [one.getMessage() for one in terminal.buffer] == ["WARNING", "ours"]
