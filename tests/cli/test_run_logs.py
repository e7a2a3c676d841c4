"""What of a run's log the terminal shows, and what the server that the environment names gets."""

from __future__ import annotations

import logging

import pytest

from cli.terminal import keep_run_logs_off_the_terminal


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_a_named_server_gets_a_runs_log_and_the_terminal_its_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.terminal.own_server_home", lambda: None)  # the environment names a server
    terminal, server = Kept(), Kept()
    runs, prefect = logging.getLogger("prefect.flow_runs"), logging.getLogger("prefect")
    before = runs.level, prefect.level, logging.getLogger("prefect.task_runs").level
    prefect.setLevel(logging.WARNING)
    monkeypatch.setattr(logging.getLogger(), "handlers", [terminal])
    monkeypatch.setattr(runs, "handlers", [server])
    monkeypatch.setattr(prefect, "propagate", True)
    try:
        keep_run_logs_off_the_terminal()
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            runs.log(level, logging.getLevelName(level))
        logging.getLogger("elsewhere").error("ours")
    finally:
        for name, level in zip(("flow_runs", "", "task_runs"), before, strict=True):
            logging.getLogger(f"prefect.{name}".rstrip(".")).setLevel(level)
    assert server.texts == ["INFO", "WARNING", "ERROR"]
    assert terminal.texts == ["WARNING", "ours"]
