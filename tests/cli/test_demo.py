"""What the demo says before it installs, and at its end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cli.commands.recipe import verdict
from flows.evaluate.metrics import ArmFigures


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
