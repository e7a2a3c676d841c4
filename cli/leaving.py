"""How a command ends: its exit functions run, but the interpreter is not finalised.

In finalising, DuckDB 2.0.0 beside torch 2.13.0 prints pages of wrong "leaked instance" messages (nanobind's, which no
setting turns off), and Python waits for threads in which a user's tool may hang. There is no public function that runs
the exit functions alone: `atexit._run_exitfuncs` is CPython's, in 3.11 as in 3.14.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End the process with an exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(code)
