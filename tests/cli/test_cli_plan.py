"""`toolformer plan --documents`: the cost of a run by numbers, through `main`; and plan without it, as it was."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.render.cost import amount, hours
from tests.support.commands import Run

SIXTY_FOUR = ("--documents", "1e9", "--gpu", "h100", "--gpu-count", "64", "--gpu-price", "2.5", "--model", "gpt-j-6b")


@pytest.fixture
def nowhere(tmp_path: Path) -> tuple[str, str]:
    """A data folder that is not there, so that no sample build is found."""
    return "--data", str(tmp_path / "none")


def test_all_that_was_asked_for_is_told(run: Run, nowhere: tuple[str, str]) -> None:
    code, out, err = run("plan", *SIXTY_FOUR, *nowhere)
    assert (code, err) == (0, "")
    for word in ("tokens", "GPU h", "calls", "tool h", "CPU h", "in all"):
        assert word in out
    assert re.search(r"Wall time [\d.]+ days: ingest, then the longest of the others", out)
    assert "Bottleneck: cards." in out
    assert re.search(r"Money [\d,.]+: all cards and cores for the wall time", out)
    assert "Finetuning: C* of at most" in out
    assert "replace any of them with --assume NAME=VALUE" in out
    assert re.search(r"tflops +989\.4 TFLOP/s bf16 +vendor +NVIDIA H100 data sheet", out)
    assert re.search(r"calendar\.kept_share +0\.18 share +paper +Toolformer, App\. A\.1", out)
    assert max(map(len, out.split("No sample build")[0].splitlines())) <= 80
    assert not Path(nowhere[1]).exists()


def test_json_has_the_same_figures_and_every_assumption(run: Run, nowhere: tuple[str, str]) -> None:
    code, out, _ = run("plan", *SIXTY_FOUR, *nowhere, "--tools", "calculator,qa", "--json")
    told = json.loads(out)
    assert code == 0
    assert {stage["tool"] for stage in told["stages"]} == {"", "calculator", "qa"}
    for figure in ("lm_tokens", "gpu_hours", "tool_calls", "cpu_hours"):
        assert told["total"][figure] == pytest.approx(sum(stage[figure] for stage in told["stages"]))
    assert told["build_money"] > told["training_money"] > 0
    assert {line["origin"] for line in told["assumptions"]} >= {"paper", "vendor", "measured", "computed", "assumed"}


def test_an_assumption_that_was_given_is_shown_as_given(run: Run, nowhere: tuple[str, str]) -> None:
    options = ("--assume", "qa.kept_share=0.5,mfu=0.2", "--assume", "steps=100")
    out = run("plan", *SIXTY_FOUR, *nowhere, *options)[1]
    assert re.search(r"qa\.kept_share +0\.5 share +given +instead of 0\.989, measured", out)
    assert re.search(r"mfu +0\.2 share +given +instead of 0\.4, assumed", out)
    assert re.search(r"steps +100 steps +given", out)


def test_a_finished_build_is_measured(run: Run, as_built: Path) -> None:
    out = run("plan", "--documents", "1000", "--data", as_built, "--tools", "calculator,calendar")[1]
    assert "Measured from the sample build: 16 documents in" in out
    assert re.search(r"calculator\.ok_share +[\d.]+ share +measured +sample build: 16 documents", out)
    elsewhere = run("plan", "--documents", "1000", "--data", as_built.parent / "none", "--from", as_built, "--json")[1]
    assert json.loads(elsewhere)["sample"].startswith("16 documents in")


def test_no_model_library_is_loaded(nowhere: tuple[str, str]) -> None:
    code = (
        "import sys; from cli.main import app; app(sys.argv[1:], standalone_mode=False); "
        "print([name for name in ('torch', 'transformers', 'prefect', 'dask', 'mlflow') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, "plan", *SIXTY_FOUR, *nowhere], check=True, capture_output=True, text=True
    )
    assert said.stdout.splitlines()[-1] == "[]"


def test_amounts_and_hours_as_a_person_reads_them() -> None:
    assert amount(0) == ""
    amounts = " ".join(map(amount, (0.123, 5, 99.4, 1234, 12_345, 3.9e6, 4.4e12)))
    assert amounts == "0.12 5 99 1,234 12.3k 3.9M 4.4T"
    said = ", ".join(map(hours, (0.002, 0.5, 5, 100, 2400)))
    assert said == "7.2 s, 30 min, 5.0 h, 4.2 days, 100.0 days"
