"""A training of four steps on six short texts, for tests: its job's folder, what it said, and the program itself."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TEXTS

from toolformer_core.finetune.__main__ import main
from toolformer_core.finetune.events import EVENTS_FILE
from toolformer_core.finetune.recipe import Job, Recipe, write_job

STEPS = 4
RECIPE = Recipe(steps=STEPS, batch=3, learning_rate=1e-3, evaluate_every=2, micro_batch=2, sequence_length=64, seed=7)
TRAIN = [*TEXTS[2:], "One more text about 27 boats.", "The last one."]


def job_in(folder: Path, model: str, **changes: Any) -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in (("train", TRAIN), ("dev", TEXTS[:1])):
        lines = (json.dumps({"text": t}) + "\n" for t in texts)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    job = Job(model=model, device="cpu", recipe=dataclasses.replace(RECIPE, **changes))
    write_job(job, folder)
    return job


def events(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    lines = (folder / EVENTS_FILE).read_text(encoding="utf-8").splitlines()
    return [e for e in map(json.loads, lines) if kind in (None, e["event"])]


def losses(folder: Path) -> list[float]:
    return [e["loss"] for e in events(folder, "step")]


def run_program(folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{before}\nfrom toolformer_core.finetune.__main__ import main\nimport sys\nsys.exit(main())"
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def run_two_processes(folder: Path) -> None:
    """The program in two processes."""
    words = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
    words += ["-m", "toolformer_core.finetune", str(folder)]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def run_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The program in this process; returns its exit code."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "DS_ACCELERATOR": "cpu"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["finetune", str(folder)])
    try:
        return main()
    finally:
        torch.set_flush_denormal(False)
