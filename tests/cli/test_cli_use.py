"""The commands generate and chat, on the embedded model, and the options of `serve` that choose tools."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.terminal import visible
from cli.use.serve import ServeOptions, router_of
from cli.use.text import _Chat
from tests.core.decode.writers import merging, speaks, torn
from tests.fakes import FakeTool
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import UsageError
from toolformer_core.grounding.records import Weights
from toolformer_core.tools.calculator import Calculator
from toolformer_core.tools.calendar import Calendar

DEADLINE_S = 60.0
SUM = "The sum of 12 and 30 is [Calculator(12 + 30) -> 42] 42. The sum of 27 and 8 is"
FEW = ["--tools", "calculator", "--max-new-tokens", "8"]


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def test_the_text_stands_with_its_calls_behind_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = speaks(merging("Calculator(3 + 4) ->"), "Calculator(3 + 4) ->")  # behind a "!"
    monkeypatch.setattr("toolformer_core.lm.load.load_model", lambda name, **_: writer)
    told = run("generate", "So!", "--k", "1", *FEW, "--json")
    found = json.loads(told.stdout)
    assert found["prompt"] == "So!"
    (call,) = found["calls"]
    assert (call["tool"], call["input"], call["response"]) == ("Calculator", "3 + 4", "7")
    assert found["text"][call["start"] : call["end"]] == f" [{call['tool']}({call['input']}) -> {call['response']}]"
    assert found["new_tokens"] <= 8
    shown = run("generate", "So!", "--k", "1", *FEW)
    assert shown.exit_code == 0
    assert shown.stdout == "So!" + visible(found["text"]) + "\n"
    assert run("generate", "-", "--k", "1", *FEW, stdin="So!\n").stdout == shown.stdout


def test_a_threshold_holds_a_call_back(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, p = torn(merging("Calculator(3 + 4) ->"), "Calculator(3 + 4) ->")
    monkeypatch.setattr("toolformer_core.lm.load.load_model", lambda name, **_: writer)

    def calls(threshold: float) -> int:
        words = ["generate", "So!", "--k", "2", "--trigger", f"calculator={threshold}", *FEW, "--json"]
        return len(json.loads(run(*words).stdout)["calls"])

    assert [calls(0.999 * p), calls(1.001 * p)] == [1, 0]


def test_without_tools_there_are_no_calls() -> None:
    plain = json.loads(run("generate", SUM, "--no-tools", *FEW, "--json").stdout)
    assert plain["calls"] == []
    assert plain == json.loads(run("generate", SUM, "--k", "0", *FEW, "--json").stdout)


def test_samples_by_seed() -> None:
    def draw(seed: int) -> str:
        return run("generate", "The", "--no-tools", *FEW, "--temperature", "1.5", "--seed", str(seed)).stdout

    first, again, *others = map(draw, (1, 1, 2, 3))
    assert first == again
    assert {first} < {first, *others}


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (["generate", "a\udcffb"], b"", "TEXT is not UTF-8"),
        (["generate", "-"], b"a\xffb", "standard input is not UTF-8"),
        (["generate", "x", "--stop", "\udcff"], b"", "stop string is not UTF-8"),
        (["chat"], b"\na\xffb\n", "line 2 of standard input is not UTF-8"),
        (["chat", "--system", "\udcff"], b"", "--system is not UTF-8"),
        (["serve", "--name", "\udcff", "--port", "0"], b"", "the model's name is not UTF-8"),
    ],
)
def test_bytes_that_are_no_utf_8_are_a_mistake(arguments: list[str], stdin: bytes, says: str) -> None:
    """On a command line they arrive as lone surrogates; character 1 or 2 is the 0xff."""
    result = CliRunner().invoke(app, [*arguments, "--tools", "calculator"], input=stdin)
    assert isinstance(result.exception, UsageError)
    assert says in str(result.exception)
    assert "lone surrogate U+DCFF at character" in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_chat_through_a_pipe() -> None:
    one = run("chat", *FEW, "--no-tools", stdin="What is a week?\n")
    two = run("chat", *FEW, "--no-tools", stdin="What is a week?\n/reset\n\nWhat is a week?\n/nonsense\n/exit\nWhat?\n")
    (answer,) = one.stdout.splitlines()[:1]
    assert two.stdout == one.stdout * 2  # forgotten, and nothing after /exit
    assert not answer.startswith(" ")
    assert "unknown command /nonsense" in two.stderr


def test_the_turns_stand_before_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    prompt = _Chat._prompt

    def noted(self: _Chat) -> object:
        found = prompt(self)
        seen.append(found.text)
        return found

    monkeypatch.setattr(_Chat, "_prompt", noted)
    said = run("chat", "--system", "Be brief.", *FEW, "--no-tools", stdin="One?\nTwo?\n").stdout
    assert seen[0] == "Be brief.\n\nUser: One?\nAssistant:"
    answer = seen[1].removeprefix(seen[0] + " ").removesuffix("\nUser: Two?\nAssistant:")
    assert said.startswith(answer + "\n")


def test_a_long_talk_forgets_its_beginning() -> None:
    line = "Tell me of the number seven and of all the others. " * 12
    told = run("chat", *FEW, "--no-tools", stdin=f"{line}\n" * 8)
    assert told.exit_code == 0
    assert "forgotten" in told.stderr
    assert "error" not in told.stderr


def test_a_turn_that_is_too_long_is_told_and_forgotten() -> None:
    told = run("chat", *FEW, "--no-tools", stdin="word " * 3000 + "\nWhat is a week?\n")
    assert told.exit_code == 0
    assert "error: the prompt has" in told.stderr
    assert told.stdout.strip() == run("chat", *FEW, "--no-tools", stdin="What is a week?\n").stdout.strip()


def test_ctrl_c_ends_the_answer_and_not_the_talk() -> None:
    """On a terminal of its own; the answer is long, and the talk goes on after it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cli.main", "chat", "--no-tools", "--max-new-tokens", "3000"]
    command += ["--temperature", "9"]  # hardly any token is likelier than another: it does not come to its end soon
    # What is started in the background ignores SIGINT, and so do its children; what it handles they do not.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        signal.signal(signal.SIGINT, before)
        os.close(theirs)
        try:
            _read_until(ours, lambda seen: "> " in seen)
            os.write(ours, b"Hello\n")
            _read_until(ours, lambda seen: len(seen.partition("Hello")[2]) > 12)  # its answer has begun
            process.send_signal(signal.SIGINT)
            _read_until(ours, lambda seen: "(interrupted)" in seen and seen.endswith("> "))
            _interrupt_until(process, ours, "leaves")  # at the prompt it says how to leave
            os.write(ours, b"/exit\n")
            end = time.monotonic() + DEADLINE_S
            while process.poll() is None and time.monotonic() < end:
                _read_some(ours)
            assert process.returncode == 0
        finally:
            process.kill()
            os.close(ours)


def _read_some(terminal: int) -> str:
    """What is there, or comes within a moment."""
    if not select.select([terminal], [], [], 0.2)[0]:
        return ""
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:  # its other end is closed
        return ""


def _interrupt_until(process: subprocess.Popen[bytes], terminal: int, wanted: str) -> None:
    """Of a signal between the prompt and the wait for a key, Python's input() knows when the next one comes."""
    seen, end = "", time.monotonic() + DEADLINE_S
    while wanted not in seen:
        assert time.monotonic() < end, seen
        process.send_signal(signal.SIGINT)
        again = time.monotonic() + 5
        while wanted not in seen and time.monotonic() < again:
            seen += _read_some(terminal)


def _read_until(terminal: int, wanted: Callable[[str], bool]) -> None:
    seen, end = "", time.monotonic() + DEADLINE_S
    while not wanted(seen):
        assert time.monotonic() < end, seen
        seen += _read_some(terminal)


def never(name: str) -> Toolformer:
    raise AssertionError(f"{name} was loaded")


def test_what_the_options_make() -> None:
    assert router_of(ServeOptions(), [Calculator()], "m", never, 4) is None
    asked = {"router_model": "embedded", "router_threshold": 0.25, "router_gamma": 0.5, "router_mock": "calendar"}
    options = ServeOptions.model_validate({"router": "gear", **asked})
    router = router_of(options, [Calculator(), Calendar(), FakeTool({})], "other", never, 4)
    assert router is not None
    assert router.weights == Weights(gamma=0.5, threshold=0.25)
    assert [(one.key, one.mocked) for one in router.library] == [
        ("calculator", False),
        ("calendar", True),
        ("fake", False),  # it has no demonstrations, and is shown by its description
    ]
    assert (router.model, router.max_rows, router.encoder) == ("embedded", 4, None)
    assert router.load is not None
    with pytest.raises(AssertionError, match="embedded was loaded"):
        router.load()
    same = router_of(ServeOptions(router="gear", router_model="embedded"), [Calculator()], "embedded", never, 4)
    assert same is not None
    assert (same.load, same.model) == (None, "")
