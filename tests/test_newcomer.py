"""The quickstart's commands, run as they stand there: from a clone to a trained demo that MLflow compares."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from mlflow import MlflowClient

REPOSITORY = Path(__file__).resolve().parents[1]
VENV = REPOSITORY / ".venv"


def quickstart() -> list[str]:
    """The commands of its first block; of what they leave open, what it is here."""
    text = (REPOSITORY / "docs" / "quickstart.md").read_text(encoding="utf-8")
    block = text.split("```sh\n", 1)[1].split("```", 1)[0]
    return block.replace("REPOSITORY", str(REPOSITORY)).splitlines()


def test_the_readme_has_the_same_commands_at_most_six_and_all_of_them_exist() -> None:
    block = (REPOSITORY / "README.md").read_text(encoding="utf-8").split("```sh\n", 1)[1].split("```", 1)[0]
    assert block.replace("REPOSITORY", str(REPOSITORY)).splitlines() == quickstart()
    commands = [shlex.split(line) for line in quickstart()]
    assert len(commands) <= 6
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert {first for first, *_ in commands} == {"git", "cd", "make", "source", "toolformer"}
    ((_, target),) = [words for words in commands if words[0] == "make"]  # which installs everything
    assert re.search(rf"(?m)^{target}:", makefile)


@pytest.mark.slow  # the demo annotates, trains twice and evaluates: some minutes
def test_the_quickstart_ends_in_two_trainings_that_mlflow_compares(tmp_path: Path) -> None:
    if not (REPOSITORY / ".git").exists() or not (VENV / "bin").is_dir():
        pytest.skip("a clone is needed, with .venv as `make` makes it")
    clone, enter, *middle, view, last = (command.split("#")[0].rstrip() for command in quickstart())
    # Both stay until they are ended, and `up` serves the viewer too.
    assert [view, last] == ["toolformer view", "toolformer up"]
    # The packages are there already, so nothing is fetched; the code is the clone's.
    bin_ = shlex.quote(str(VENV / "bin"))
    prepared = f"mkdir .venv && ln -s {bin_} .venv/bin && touch .venv/.run .venv/.dev && export PYTHONPATH=$PWD"
    # Ports that others have are no concern of this test.
    served = f"exec {last} --prefect-port 0 --mlflow-port 0 --view-port 0 --json"
    script = "\n".join([clone, enter, prepared, *middle, served])
    not_a_newcomers = ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI", "OMP_NUM_THREADS")
    own = {k: v for k, v in os.environ.items() if k not in not_a_newcomers}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            ["bash", "-ec", script],
            cwd=tmp_path,
            env=own,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as shell,
    ):
        assert shell.stdout is not None
        try:
            told = next((line for line in shell.stdout if line.startswith("{")), None)
            assert told, (tmp_path / "log").read_text(errors="replace")[-2000:]
            compare(json.loads(told)["mlflow"])
            shell.send_signal(signal.SIGINT)
            assert shell.wait(120) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)  # nobody, if all went well


def compare(address: str) -> None:
    """What the page compares: two trainings of one dataset, with their perplexities, and the build both rest on."""
    client = MlflowClient(address)
    (experiment,) = [e for e in client.search_experiments() if e.name == "toolformer-data"]
    runs = client.search_runs([experiment.experiment_id], "attributes.status = 'FINISHED'")
    kinds = [run.data.tags["kind"] for run in runs]
    assert sorted(kinds) == ["build", "evaluate", "evaluate", "evaluate", "finetune", "finetune", "recipe"]
    trained = {run.data.tags["arm"]: run for run in runs if run.data.tags["kind"] == "finetune"}
    (built,) = [run for run in runs if run.data.tags["kind"] == "build"]
    assert set(trained) == {"toolformer", "cc"}
    assert all(run.data.metrics["best_dev_perplexity"] > 1 for run in trained.values())
    assert {run.data.tags["run.build"] for run in trained.values()} == {built.info.run_id}
    for run in runs:
        if run.data.tags["kind"] == "evaluate":
            assert run.data.tags["run.toolformer"] == trained["toolformer"].info.run_id
