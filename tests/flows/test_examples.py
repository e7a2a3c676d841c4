"""The examples, run as they stand, each in a folder of its own."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"own_corpus.py", "python_api.py"}


@pytest.mark.slow
def test_own_corpus_goes_from_texts_to_a_model_that_generates(
    prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["own_corpus.py", str(tmp_path / "own")])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    found = runpy.run_path(str(EXAMPLES / "own_corpus.py"))
    printed = capsys.readouterr().out.splitlines()
    built, trained, written = found["built"], found["trained"], found["written"]
    assert 0 < built.examples <= len(found["TEXTS"]) == 8
    # each call's answer is what its input comes to
    shown = [re.fullmatch(r"[+-]\d+\.\d\d  \[Calculator\((.+)\) -> (.+)\]", line) for line in printed[1:4]]
    assert all(shown)
    assert found["now"].examples == built.examples  # one threshold below another keeps no fewer
    assert found["then"].examples <= found["now"].examples
    rows = [json.loads(line) for line in found["exported"].read_text(encoding="utf-8").splitlines()]
    assert len(rows) == built.examples
    assert all("[Calculator(" in row["text"] for row in rows)
    assert (trained.steps, trained.skipped) == (4, False)
    assert printed[-1].startswith(found["prompt"] + written.text[:5].rstrip("\n"))


def test_python_api_annotates_explains_and_generates(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "python_api.py"))
    printed = capsys.readouterr().out
    assert (
        "Of the 587 books, 58 are lent out and only [Calculator(587 - 58) -> 529] 529 stand on the shelves." in printed
    )
    assert "587 - 58 -> 529  kept" in printed
    assert "587 - 58 -> 529  below_threshold" in printed  # the same call elsewhere
    assert "text 3: filtered_out, prefilter: few_numbers, samples: {}" in printed
    assert found["own"].annotated.count("[Difference(") == 1
    # the model that was taught calls, and each response is what the input comes to
    (call,) = found["written"].calls
    left, right = (int(number) for number in call.input.split(" - "))
    assert call.response == str(left - right)
