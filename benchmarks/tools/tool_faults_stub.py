"""The tool of `tool_faults.py`: it takes its time, and three of ten questions meet a fault, chosen by their digest."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from toolformer_core.records import ToolResponse, ToolResult
from toolformer_core.tools.base import ToolLimits

__all__ = ["EXPECTED", "FAULTS", "FaultyTool", "expected_failures", "fault_of"]

FAULTS = ("timeout", "exception", "empty", "huge", "surrogates", "brackets")  # a twentieth of the questions each
EXPECTED = {"timeout": "timeout", "exception": "crashed", "empty": "empty"}  # fault -> failure; the others are answered
_TEXTS = {
    "empty": " \x00\n",
    "huge": "many words and no end " * 450_000,  # 10 MB
    "surrogates": "caf\udce9 \ud800 forty-two",
    "brackets": "[Calculator(1 + 1) -> 2] ] -> [" * 200,
}


def fault_of(input_: str) -> str:
    """Return the fault that a question meets; "": none."""
    number = hashlib.blake2b(input_.encode(), digest_size=4).digest()[0] * 100 // 256
    return FAULTS[number // 5] if number < 30 else ""


class FaultyTool:
    """A calculator that always says 2.

    Args:
        seconds: that a call takes.
        faults: whether there are any.
        timeout_s: seconds that a call may take; one that hangs takes twice as long, and nobody waits for it.
    """

    key, name, description, fingerprint = "calculator", "Calculator", "Says 2.", "faulty"

    def __init__(self, seconds: float, faults: bool, timeout_s: float) -> None:
        self._seconds = seconds
        self._faults = faults
        self.limits = ToolLimits(timeout_s=timeout_s)

    def load(self) -> None:
        return None

    def run(self, input: str, context: str = "") -> ToolResult:
        fault = fault_of(input) if self._faults else ""
        time.sleep(2 * (self.limits.timeout_s or 0.0) if fault == "timeout" else self._seconds)
        if fault == "exception":
            raise ValueError("this tool has a fault")
        return ToolResponse(_TEXTS.get(fault, "2"))


def expected_failures(inputs: Sequence[str]) -> dict[str, int]:
    """Return failure -> number of these questions that must have it."""
    found = [EXPECTED[fault] for input_ in inputs if (fault := fault_of(input_)) in EXPECTED]
    return {reason: found.count(reason) for reason in sorted(set(found))}
