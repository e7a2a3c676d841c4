"""The command diagnose, on the embedded model and a few texts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from cli.main import app
from cli.render.diagnosis import DiagnosisDisplay, format_measure, gain_lines
from toolformer_core.annotate.in_memory import OnProgress
from toolformer_core.diagnose.figures import Gains
from toolformer_core.diagnose.observe import Observed, observe
from toolformer_core.diagnose.verdict import STEPS, Check

FEW = ["--tools", "calculator", "--documents", "8", "--top-k", "3", "--samples", "2"]


@pytest.fixture(scope="module")
def observed_once() -> Iterator[None]:
    """The model is asked once: what it draws, and what calls gain, depends on no threshold."""
    kept: list[Observed] = []

    def remembered(*given: Any, on_progress: OnProgress, **more: Any) -> Observed:
        kept[:] = kept or [observe(*given, on_progress=on_progress, **more)]
        on_progress("calculator", 8, 8)
        return kept[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toolformer_core.diagnose.run.observe", remembered)
        yield


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["diagnose", *arguments])


def test_ctrl_c_says_that_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolformer_core.diagnose.run.measure", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    result = run(*FEW)
    assert (result.exit_code, "nothing of a diagnosis is kept" in result.stderr) == (130, True)


def test_a_model_that_can_be_taught_exits_with_0(observed_once: None) -> None:
    result = run(*FEW, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    (tool,) = report["tools"]
    assert tool["verdict"]["teachable"]
    assert [check["step"] for check in tool["verdict"]["checks"]] == list(STEPS)
    assert tool["figures"]["documents"] == report["documents"] == 8


def test_a_step_in_the_way_is_named_with_what_to_do_and_exits_with_1(observed_once: None) -> None:
    result = run(*FEW, "--tau-f", "calculator=50")
    assert result.exit_code == 1
    assert "cannot be taught as it is: threshold" in result.stdout
    assert "--tau-f calculator=" in result.stdout
    assert "right response " in result.stdout  # the distribution of gains
    assert result.stdout.splitlines()[-1].startswith(
        ("calculator  stands in the way: threshold", "the column embedded")
    )
    assert "calculator 8 texts sampled" in result.stderr


def test_a_share_next_to_its_least_is_shown_with_the_digit_that_tells_them_apart() -> None:
    def shown(measured: float, passed: bool) -> str:
        return format_measure(Check("language", passed, measured, 0.1, None, ""), measured)

    assert shown(0.0979, False) == "9.8 %"
    assert shown(0.1021, True) == "10 %"
    assert shown(-0.002, False) == "0 %"
    assert shown(-0.25, False) == "-25 %"


def test_without_a_terminal_a_line_a_minute_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    display = DiagnosisDisplay(False, lambda: now)
    now = 60.0
    display.poll()
    display("qa", 1, 8)
    now = 120.0
    display.poll()
    display("qa", 8, 8)
    now = 300.0
    display.poll()
    assert [line.rstrip() for line in capsys.readouterr().err.splitlines()] == [
        "loading the model; 60 s so far",
        "qa         1 of 8 texts sampled; 60 s so far",  # since it was first reported, at 60
        "qa         8 texts sampled",
        "qa         texts sampled, calls being scored; 4 min so far",
    ]


@given(st.lists(st.floats(-20, 20)), st.lists(st.floats(-20, 20)), st.floats(-5, 10))
def test_lines_of_one_width_with_a_block_for_every_gain(gold: list[float], wrong: list[float], tau_f: float) -> None:
    kinds = {"gold": gold, "wrong": wrong, "unrelated": []}
    shown = gain_lines({kind: Gains(tuple(gains), None, None, None) for kind, gains in kinds.items()}, tau_f)
    assert {line[63] for line in shown[:3]} == {" "}  # 15 of a label, 48 of blocks
    for line, gains in zip(shown, (gold, wrong, []), strict=False):
        assert int(line.split()[-1]) == len(gains)
        assert any(block in line for block in "▁▂▃▄▅▆▇█") is bool(gains)
