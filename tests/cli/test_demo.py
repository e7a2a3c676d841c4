"""What the demo says before it installs, and at its end; and a short one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from cli.commands.recipe import verdict
from flows.evaluate.metrics import ArmFigures
from tests.support.commands import Run


def arm(name: str, k: int, right: int) -> ArmFigures:
    return ArmFigures("e", name, k, "m", 1, 150, right, right / 150, 0.0, 1.0, 0.0, 0.0, 0.0)


def test_the_verdict_sets_the_finetuned_model_with_tools_against_itself_without() -> None:
    arms = [arm("base", 0, 7), arm("toolformer", 10, 93), arm("toolformer", 1, 80), arm("toolformer-disabled", 0, 0)]
    assert verdict(arms) == "With tools 93 of 150 right, without 0."


def test_make_says_how_long_installing_takes_before_it_installs(tmp_path: Path) -> None:
    words = ["make", "--dry-run", "--no-print-directory", "demo", f"VENV={tmp_path}/new"]
    # what `make test` hands on to its children would make this one a part of it
    apart = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    here = Path(__file__).parents[2]
    said = subprocess.run(words, cwd=here, env=apart, capture_output=True, text=True, check=True).stdout
    assert "takes about two minutes" in said.splitlines()[0]


@pytest.mark.slow  # two trainings, and evaluations of two models
def test_a_limit_leaves_no_step_out(run: Run, prefect_server: None, tmp_path: Path) -> None:
    ended = run("demo", "--data", tmp_path, "--limit", "10", "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    with_tools = [(row["arm"], row["k"]) for row in result["table"] if row["k"]]
    assert with_tools == [(arm, k) for arm in ("base+tools", "toolformer") for k in (1, 10)]
    assert [training["steps"] for training in result["trainings"]] == [10, 10]
