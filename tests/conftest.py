"""What every test needs: a quiet, offline, single-threaded process."""

import atexit
import gc
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many tests at a time as cores; also for the processes they start

import pytest
import torch

torch.set_num_threads(1)  # tiny models: threads would only wait for each other
gc.disable()  # until all tests are imported
os.fsync = lambda fd: None  # nothing that is written here outlives a power cut

# How property tests draw; a real PostgreSQL, an S3 server and MLflow's tables, for whoever asks.
pytest_plugins = [f"tests.support.{name}" for name in "fuzz postgres objects tracked flow_runs snapshots".split()]

_status = 0


def pytest_collection_finish() -> None:
    gc.freeze()  # a million objects of imported modules, which every collection would look through
    gc.enable()


def pytest_sessionfinish(exitstatus: int | pytest.ExitCode) -> None:
    global _status
    _status = int(exitstatus)


@atexit.register  # registered first, so it runs last
def _leave_quietly() -> None:
    """With torch and duckdb in one process, taking the interpreter apart prints pages of "leaked instance" notes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_status)
