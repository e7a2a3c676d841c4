"""What a corpus, a tool or a user wrote cannot steer the terminal it is printed on; as JSON it comes back as it was."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
import rich.progress
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table

from cli.render.console import Console
from cli.terminal import print_json, say, visible
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
