"""A virtual environment for each loader, because their pins conflict, and programs that run there.

`requirements/<key>.txt` pins every package, so all but torch, which comes first, are installed without dependencies. An
environment whose requirements have not changed is used again.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolformer_core.errors import ToolformerError

_HERE = Path(__file__).parent
_STAMP = "certify.sha256"
_HOURS = 1
# A program must not reach for a hub, a GPU or somebody's telemetry; its models are too small for several cores.
_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false",
    "DO_NOT_TRACK": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "WANDB_DISABLED": "true",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": "",
}


class NotInstalledError(ToolformerError):
    """A loader could not be installed; the message is pip's reason."""


def _requirements(key: str) -> Path:
    return _HERE / "requirements" / f"{key}.txt"


def pinned(key: str, package: str) -> str:
    """Return the version of a package that the requirements of a loader name; "" if they name none."""
    lines = _requirements(key).read_text(encoding="utf-8").splitlines()
    return next((line.partition("==")[2] for line in lines if line.startswith(f"{package}==")), "")


def environment(key: str, folder: Path) -> Path:
    """Return the Python of a loader's environment, made if it is not there as its requirements want it."""
    place, requirements = folder / key, _requirements(key)
    python = place / "bin" / "python"
    stamp = place / _STAMP
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return python
    shutil.rmtree(place, ignore_errors=True)
    try:
        _run([sys.executable, "-m", "venv", str(place)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
        if torch := pinned(key, "torch"):
            _run([*pip, f"torch=={torch}", "--constraint", str(requirements)])
        _run([*pip, "--no-deps", "--requirement", str(requirements)])
    except subprocess.CalledProcessError as exc:
        lines = [line for line in exc.stderr.splitlines() if line.startswith("ERROR")] or [str(exc)]
        raise NotInstalledError(lines[-1].removeprefix("ERROR: ")) from exc
    stamp.write_text(digest)
    return python


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def run_program(python: Path, name: str, jobs: Sequence[dict[str, Any]], log: Path) -> dict[str, Any]:
    """Run a program of `programs/` with jobs and return its answer; what it prints goes to the log."""
    with tempfile.TemporaryDirectory() as folder, log.open("w", encoding="utf-8") as stream:
        jobs_file, answered = Path(folder, "jobs.json"), Path(folder, "answers.json")
        jobs_file.write_text(json.dumps(jobs), encoding="utf-8")
        command = [str(python), str(_HERE / "programs" / f"{name}.py"), str(jobs_file), str(answered)]
        variables = {**os.environ, **_VARIABLES, "HF_HOME": folder}
        try:
            subprocess.run(command, check=True, stdout=stream, stderr=stream, env=variables, timeout=_HOURS * 3600)
        except subprocess.SubprocessError as exc:
            raise ToolformerError(f"the program failed ({exc}); see {log}") from exc
        answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
        return answer
